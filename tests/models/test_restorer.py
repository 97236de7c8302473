"""Restorers have about the paper's parameters, take any size, and start close to the identity."""

import pytest
import torch

from acda import create_model
from acda.models.restorer import RESTORERS

MILLIONS = {"restorer": 2.03, "restorer_conv": 2.30, "restorer_conv_small": 1.56, "dncnn": 0.56}


@pytest.mark.parametrize("name", MILLIONS)
def test_parameters(name):
    count = sum(p.numel() for p in create_model(name).parameters()) / 1e6
    assert count == pytest.approx(MILLIONS[name], abs=0.005)


@pytest.mark.parametrize("size", [(32, 32), (13, 30), (1, 3)])
@pytest.mark.parametrize("name", RESTORERS)
def test_any_size_begins_as_the_photo(name, size):
    torch.manual_seed(0)
    photo = torch.rand(2, 3, *size)
    with torch.no_grad():
        result = create_model(name).eval()(photo)
    assert result.shape == photo.shape
    assert float((result - photo).abs().mean()) < 0.05


@pytest.mark.parametrize(
    "trunk_of",
    [
        lambda: create_model("restorer_conv_small", blind_to_smooth=True).trunk,
        lambda: create_model("restorer_variational").denoiser,
    ],
)
def test_a_denoisers_first_filters_see_nothing_of_what_is_smooth(trunk_of):
    torch.manual_seed(0)
    trunk = trunk_of()
    y, x = torch.meshgrid(torch.linspace(0, 1, 24), torch.linspace(0, 1, 20), indexing="ij")
    slopes = torch.stack([0.2 + 0.5 * x, 0.9 - 0.3 * y, 0.1 + 0.4 * x + 0.4 * y])[None]
    noise = 0.01 * torch.randn(slopes.shape)
    with torch.no_grad():
        smooth, noisy = (trunk.down[:2](photo)[:, :, 1:-1, 1:-1] for photo in (slopes, slopes + noise))
    assert float(smooth.abs().max()) < 1e-4
    assert float(noisy.abs().mean()) > 0.01
