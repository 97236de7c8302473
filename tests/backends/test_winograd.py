"""Winograd's form of Φ's 3×3 convolutions, against torch's in float64: values and both gradients."""

from random import Random

import pytest
import torch
import torch.nn.functional as F

from acda import AdaptiveConv2d
from acda.backends import native
from tests.backends.comparing import threads

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))

# Batch, channels in, height, width, channels out, padding: whole and partial tiles, vectors and panels; crops.
SHAPES = [
    (1, 64, 40, 44, 108, (1, 1)),
    (2, 64, 24, 24, 72, (-1, -2)),
    (1, 108, 21, 22, 64, (1, 0)),
    (3, 17, 17, 33, 5, (2, 2)),
    (2, 16, 9, 30, 36, (1, 1)),
    (1, 33, 64, 7, 1, (0, 1)),
]
# The transforms multiply by up to 8 and add with both signs, which costs two bits beyond the direct form's rounding.
# At most 2.1e-6 of the norm was measured over these shapes; torch's own convolutions have 4e-7.
BOUND = 5e-6


def relative(ours, truth):
    return float((ours.detach().double() - truth.detach()).norm() / truth.detach().norm())


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_it_equals_the_convolution_in_values_and_gradients(shape, count):
    B, C, H, W, O, (py, px) = shape  # noqa: E741
    x, weight = torch.randn(B, C, H, W), torch.randn(O, C, 3, 3)
    truth = [t.double().requires_grad_() for t in (x, weight)]
    ours = [t.clone().requires_grad_() for t in (x, weight)]
    expected = F.conv2d(F.pad(truth[0], (px, px, py, py)), truth[1])
    upstream = torch.randn_like(expected)
    expected.backward(upstream)
    with threads(count):
        y = native.conv2d(*ours, (1, 1), (py, px))
        y.backward(upstream.float())
    assert relative(y, expected) < BOUND
    for a, b in zip(ours, truth, strict=True):
        assert relative(a.grad, b.grad) < BOUND


def test_it_is_what_runs_and_the_switch_turns_it_off():
    """Its rounding errors are larger than the direct form's, which tells the two apart."""
    x, weight = torch.randn(1, 64, 48, 48), torch.randn(36, 64, 3, 3)
    truth = F.conv2d(x.double(), weight.double())
    fast = relative(native.conv2d(x, weight, (1, 1), (0, 0)), truth)
    with native.exact_shifts():
        direct = relative(native.conv2d(x, weight, (1, 1), (0, 0)), truth)
    assert direct < 1e-6 < fast < 5e-6
    assert relative(native.conv2d(x, weight, (1, 1), (0, 0)), truth) == fast, "the switch is back where it was"


def test_results_repeat():
    x, weight = torch.randn(2, 64, 40, 40), torch.randn(72, 64, 3, 3, requires_grad=True)
    grads = []
    for _ in range(2):
        (grad,) = torch.autograd.grad(native.conv2d(x, weight, (1, 1), (1, 1)).square().sum(), weight)
        grads.append(grad)
    assert torch.equal(*grads)


def test_shifting_the_input_shifts_the_output_to_rounding():
    """Random layers and shifts. Over 200 of them, at most 2.8e-6 of the output's norm was measured.

    Bit for bit is tested with the direct form.
    """
    random = Random(torch.initial_seed())
    for _ in range(20):
        side, channels = random.choice([3, 5, 7]), random.randint(1, 40)
        layer = AdaptiveConv2d(channels, random.randint(1, 40), side, padding=side // 2, adaptivity=1).eval()
        x = torch.randn(1, channels, random.randint(24, 60), random.randint(24, 60))
        down, right, edge = random.randint(0, 9), random.randint(1, 9), side // 2 + 1
        with torch.no_grad():
            y, shifted = layer(x), layer(x.roll((down, right), (2, 3)))
        y = y[:, :, edge : -edge - down, edge : -edge - right]
        assert relative(shifted[:, :, edge + down : -edge, edge + right : -edge], y.double()) < 1e-5
