"""Restorers: the paper's parameters nearly, any size, and a photo is what they begin with."""

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
    if "kpn" not in name:  # whose filters begin near the one that changes nothing
        assert float((result - photo).abs().mean()) < 0.05
