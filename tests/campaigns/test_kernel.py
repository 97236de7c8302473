"""Random calls of the CPU kernel against the reference in float64: values and all gradients.

Errors are relative to the norm of what was summed (tests/backends/comparing.py). Scratch memory is filled with NaN.
"""

from functools import partial
from random import Random

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from acda import AdaptiveConv2d, fourier_bessel, multiscale_fourier_bessel
from acda.backends import BACKENDS, native
from acda.functional import adaptive_conv2d, per_pixel_conv2d
from acda.window import Window
from tests.backends.comparing import (
    DTYPES,
    LAYOUTS,
    TOLERANCE,
    assert_near,
    compare,
    compare_without_gradients,
    threads,
)
from tests.backends.normalising import norm_tanh, summed_in_norm_tanh
from tests.campaigns.frame import Campaign

MOST_PRODUCTS = 5e6  # a case takes some tenths of a second at most


def try_case(random: Random) -> str:
    """One call of one operator, with one thread or two, its scratch memory poisoned."""
    torch.manual_seed(random.randrange(2**31))
    operators = [adaptive_case] * 6 + [per_pixel_case, conv2d_case, conv2d_tanh_case, norm_tanh_case, layer_case]
    torch.ops.acda.poison_scratch(True)
    try:
        with threads(random.choice([1, 2])):
            return random.choice(operators)(random)
    finally:
        torch.ops.acda.poison_scratch(False)


def adaptive_case(random: Random) -> str:
    groups, before, after = random_groups(random)
    side, atoms, batch = random_side(random), random.randint(1, 15), random.choice([0, 1, 1, 1, 2, 3, 4])
    bases = random_bases(random, side)
    window, (H, W) = random_window(random, side)
    options = {**window, "groups": groups}
    P, Q = Window.of(side, **window).output_size(H, W)
    L = side**2 if bases is None else len(bases)
    if (products := batch * P * Q * atoms * side**2 * (L + groups * before)) > MOST_PRODUCTS:
        H, W = (max(1, int(n * (MOST_PRODUCTS / products) ** 0.5)) for n in (H, W))
        H, W = at_least_one_window(side, window, H, W)
        P, Q = Window.of(side, **window).output_size(H, W)
    inputs = [
        torch.randn(batch, groups * before, H, W),
        torch.randn(batch, atoms, L, P, Q),
        bases,
        torch.randn(groups * after, before, atoms),
        torch.randn(groups * after) if random.random() < 0.5 else None,
    ]
    dtype = random.choice([*DTYPES, *DTYPES, *TOLERANCE])
    check = random.choice([compare, compare_without_gradients])
    check(partial(adaptive_conv2d, **options), small(inputs, dtype), dtype, random_layout(random))
    return f"adaptive_conv2d {str(dtype).removeprefix('torch.')}"


def per_pixel_case(random: Random) -> str:
    side, atoms, batch = random_side(random), random.randint(1, 15), random.randint(0, 3)
    window, (H, W) = random_window(random, side)
    H, W = at_least_one_window(side, window, min(H, 24), min(W, 24))
    filters = torch.randn(batch, atoms, side, side, *Window.of(side, **window).output_size(H, W))
    inputs, dtype = [torch.randn(batch, random.randint(1, 20), H, W), filters], random.choice(list(TOLERANCE))
    check = random.choice([compare, compare_without_gradients])
    check(partial(per_pixel_conv2d, **window), small(inputs, dtype), dtype, random_layout(random))
    return "per_pixel_conv2d"


def conv2d_case(random: Random) -> str:
    side = random.choice([1, 3, 5, 7])
    padding = random.randint(-3, side - 1), random.randint(-3, side - 1)
    H, W = (random.randint(1, 40) + max(0, side - 1 - 2 * p) for p in padding)
    x = torch.randn(random.randint(0, 3), random.randint(1, 70), H, W)
    weight = torch.randn(random.randint(1, 70), x.shape[1], side, side)
    run = lambda x, weight, _, backend: BACKENDS[backend].conv2d(x, weight, (1, 1), padding)  # noqa: E731
    compare(run, [x, weight, None], random.choice(DTYPES), random_layout(random))
    return "conv2d"


def conv2d_tanh_case(random: Random) -> str:
    side, stride = random.choice([1, 3, 5]), (random.randint(1, 3), random.randint(1, 3))
    py, px = padding = random.randint(-3, 4), random.randint(-3, 4)
    H, W = (random.randint(1, 40) + max(0, side - 1 - 2 * p) for p in padding)
    dtype, outputs = random.choice(DTYPES), random.randint(1, 70)
    x = torch.randn(random.randint(0, 3), random.randint(1, 70), H, W)
    tensors = [t.to(dtype) for t in (x, torch.randn(outputs, x.shape[1], side, side), torch.randn(outputs))]
    padded, *rest = (t.double() for t in (F.pad(tensors[0], (px, px, py, py)), *tensors[1:]))
    truth = F.conv2d(padded, *rest, stride).tanh()
    steep = F.conv2d(padded.abs(), *(t.abs() for t in rest), stride) * (1 - truth.square())
    y = native.conv2d_tanh(random_layout(random)(tensors[0]), *tensors[1:], stride, padding)
    assert_near(y, truth, dtype, truth.abs() + steep)
    return "conv2d_tanh"


def norm_tanh_case(random: Random) -> str:
    shape = random.randint(1, 3), random.randint(1, 70), random.randint(1, 30), random.randint(2, 90)
    mean = random.choice([0, 1, 10, 1000]) * torch.randn(shape[1])
    u = torch.randn(shape) + mean[:, None, None]
    fixed = (mean, torch.rand(shape[1]) + 0.5) if random.random() < 0.3 else None
    inputs = [u, torch.randn(shape[1]), None, torch.randn(shape[1])]
    run, summed = partial(norm_tanh, fixed=fixed), partial(summed_in_norm_tanh, fixed=fixed)
    compare(run, inputs, random.choice(DTYPES), random_layout(random), summed)
    return "norm_tanh"


def layer_case(random: Random) -> str:
    """A whole layer in inference against its parts, bit for bit; the other cases compare those with the reference."""
    groups, before, after = random_groups(random)
    side = random_side(random)
    window, size = random_window(random, side)
    options = {"hidden": random.choice([3, 16, 64]), "num_atoms": random.randint(1, 8), "groups": groups}
    bases = None if side == 1 or random.random() < 0.3 else "fourier_bessel"
    dtype = random.choice(DTYPES)
    layer = AdaptiveConv2d(groups * before, groups * after, side, **window, **options, bases=bases, dtype=dtype).eval()
    x = random_layout(random)(torch.randn(random.randint(0, 3), groups * before, *size, dtype=dtype))
    with torch.no_grad():
        operands = (x, layer.coefficients(x), layer.bases, layer.mixing, layer.bias)
        parts = adaptive_conv2d(*operands, **window, groups=groups, backend="native")
        assert torch.equal(layer(x), parts)
    return "layer"


def random_groups(random: Random) -> tuple[int, int, int]:
    """Groups, and the channels in and out of one: depthwise, narrow, wide, or everything in one."""
    kind = random.choice(["one", "depthwise", "narrow", "wide"])
    if kind == "one":
        return 1, random.randint(1, 70), random.randint(1, 70)
    if kind == "depthwise":
        return random.randint(2, 70), 1, random.choice([1, 1, 2, 3])
    most = 5 if kind == "narrow" else 20
    return random.randint(2, 16 if kind == "narrow" else 4), random.randint(1, most), random.randint(1, most)


def random_side(random: Random) -> int:
    return random.choice([1, 3, 3, 3, 5, 5, 7, 7, 9, 11])


def random_bases(random: Random, side: int) -> Tensor | None:
    kind = random.choice(["none", "own", "holes", "fourier_bessel", "multiscale"])
    if kind == "none":
        return None
    if side == 1 or kind in ("own", "holes"):
        own = torch.randn(random.randint(1, 12), side, side)
        return own * (torch.rand(side, side) < 0.5) if kind == "holes" else own
    return multiscale_fourier_bessel(side) if kind == "multiscale" else fourier_bessel(side, random.randint(1, 8))


def random_window(random: Random, side: int) -> tuple[dict, tuple[int, int]]:
    """Stride, padding, dilation, and the size of an input that holds at least one window."""
    pair = lambda high, low=1: (random.randint(low, high), random.randint(low, high))  # noqa: E731
    window: dict = {"dilation": pair(3)}
    if random.random() < 0.3:
        window["padding"] = random.choice(["same", "valid"])
    else:
        window |= {"stride": pair(4), "padding": pair(side, 0)}
    largest = random.choice([3, 12, 40, 140])
    return window, at_least_one_window(side, window, *pair(largest))


def at_least_one_window(side: int, window: dict, H: int, W: int) -> tuple[int, int]:
    geometry = Window.of(side, **window)
    least = (2 * r + 1 - 2 * p for r, p in zip(geometry.reach, geometry.padding, strict=True))
    height, width = (max(1, n, m) for n, m in zip((H, W), least, strict=True))
    return height, width


def random_layout(random: Random):
    """A memory format, or the strides of a part of a larger map, which no format has."""
    inside = lambda t: F.pad(t, (2, 1, 1, 0))[..., 1:, 2:-1]  # noqa: E731
    return random.choice([*LAYOUTS.values(), inside])


def small(inputs: list, dtype: torch.dtype) -> list:
    """Float16 ends at 65504 and is imprecise below 1e-5: numbers whose sums stay in between."""
    return [None if t is None else t / 8 for t in inputs] if dtype == torch.float16 else inputs


@pytest.mark.campaign
@pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))
def test_the_kernel_equals_the_reference(run_campaign):
    run_campaign(Campaign("kernel", try_case))


if __name__ == "__main__":
    Campaign("kernel", try_case).main()
