"""Networks whose 3×3 convolutions are computed by acda's kernel."""

import pytest
import torch
from torch import nn

from acda.backends import native
from paper import winograd

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


@pytest.fixture
def _patched(monkeypatch):
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", winograd.conv_forward)


@pytest.mark.usefixtures("_patched")
def test_a_network_computes_what_it_did_before():
    model = nn.Sequential(nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 8, 3, stride=2, padding=1))
    x = torch.randn(2, 16, 20, 21)
    truth = nn.functional.conv2d(x, model[0].weight, model[0].bias, padding=1).relu()
    truth = nn.functional.conv2d(truth, model[2].weight, model[2].bias, stride=2, padding=1)
    # The bound of tests/backends/test_winograd.py, for the rounding of Winograd's form.
    assert (model(x) - truth).norm() < 5e-6 * truth.norm()


def test_other_convolutions_are_left_to_torch():
    x = torch.randn(1, 4, 8, 8)
    assert winograd.fits(nn.Conv2d(4, 4, 3, padding=1), x)
    for other in (nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 5, padding=1), nn.Conv2d(4, 4, 3, padding=1, groups=2)):
        assert not winograd.fits(other, x)
