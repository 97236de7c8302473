"""Winograd's convolutions against torch's own in float64, in values and gradients."""

import shutil

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from acda.models import create_model
from paper import winograd
from tests.backends.comparing import LAYOUTS, assert_near, threads

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="there is no C++ compiler")


@pytest.fixture
def installed(monkeypatch):
    monkeypatch.setattr(nn.Conv2d, "_conv_forward", winograd.conv_forward)


@settings(deadline=None)  # it is compiled first
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(1, 30), st.integers(1, 30)),
    st.integers(1, 3),
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, 3),
)
def test_values_and_gradients_are_those_of_conv2d(shape, outputs, layout, count):
    """Any size, also smaller than a tile; any number of threads."""
    B, sixteens, H, W = shape
    inputs = torch.randn(B, 16 * sixteens, H, W), torch.randn(16 * outputs, 16 * sixteens, 3, 3)
    x, weight = LAYOUTS[layout](inputs[0]).requires_grad_(), inputs[1].clone().requires_grad_()
    truth = [t.double().requires_grad_() for t in inputs]
    upstream = torch.randn(B, 16 * outputs, H, W)
    expected = F.conv2d(*truth, padding=1)
    with threads(count):
        y = winograd.Winograd.apply(x, weight)
        grads = torch.autograd.grad(y, [x, weight], LAYOUTS[layout](upstream))
    assert_near(y, expected, torch.float32)
    for grad, right in zip(grads, torch.autograd.grad(expected, truth, upstream.double()), strict=True):
        assert_near(grad, right, torch.float32)


def test_a_network_is_the_same_with_it(installed, monkeypatch):
    torch.manual_seed(0)
    network, x = create_model("dncnn", depth=5), torch.rand(2, 3, 21, 34)
    nn.init.normal_(network.layers[-1].weight, std=0.1)
    used = []
    monkeypatch.setattr(winograd, "fits", lambda layer, x, ask=winograd.fits: used.append(ask(layer, x)) or used[-1])
    y = network(x)
    assert used == [False, True, True, True, False]  # all that have 64 channels on both sides
    assert_near(y, network.double()(x.double()), torch.float32)


@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv2d(16, 16, 3),
        nn.Conv2d(16, 16, 3, padding=1, stride=2),
        nn.Conv2d(16, 16, 3, padding=1, groups=2),
        nn.Conv2d(16, 16, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(16, 16, 5, padding=2),
        nn.Conv2d(16, 20, 3, padding=1),
        nn.Conv2d(16, 16, 3, padding=1).double(),
    ],
)
def test_other_convolutions_stay_torchs(layer, installed, monkeypatch):
    monkeypatch.setattr(winograd, "Winograd", None)
    x = torch.randn(1, 16, 9, 9, dtype=layer.weight.dtype)
    expected = winograd._torchs(layer, x, layer.weight, layer.bias)
    torch.testing.assert_close(layer(x), expected)


def test_a_bias_is_added(installed):
    layer, x = nn.Conv2d(16, 32, 3, padding=1), torch.randn(2, 16, 8, 9)
    expected = F.conv2d(x, layer.weight, layer.bias, padding=1)
    torch.testing.assert_close(layer(x), expected, rtol=1e-4, atol=1e-5)
