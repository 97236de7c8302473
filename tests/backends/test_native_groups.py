"""The kernel computes several narrow groups as one; non-finite values in one group do not reach the others."""

import pytest
import torch
from torch import Tensor

from acda.backends import native
from acda.functional import adaptive_conv2d
from tests.backends.comparing import LAYOUTS

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))

STRANGE = {"nan": float("nan"), "inf": float("inf"), "-inf": -float("inf"), "overflow": "overflow"}
GROUPS = [(32, 1, 1), (13, 1, 2), (12, 3, 2), (6, 5, 3)]  # groups, channels in and out of each
HIT = 2  # the group that the strange number is in


def operands(groups: int, before: int, after: int, dtype: torch.dtype) -> list[Tensor]:
    """Dense bases: the kernel leaves out taps at which every element is zero, where the reference multiplies by it."""
    shapes = [(2, groups * before, 6, 9), (2, 4, 5, 6, 9), (5, 3, 3), (groups * after, before, 4), (groups * after,)]
    return [torch.randn(*shape, dtype=dtype) for shape in shapes]


def strange(name: str, dtype: torch.dtype) -> float:
    """3e38 in float32, so that products overflow; a number as near to the largest one in float64."""
    return 0.9 * torch.finfo(dtype).max if name == "overflow" else STRANGE[name]


def run(tensors: list[Tensor], grad: Tensor, groups: int, backend: str) -> list[Tensor]:
    """The result and the gradients of x, coefficients, mixing and bias."""
    x, alpha, bases, mixing, bias = (t.detach().requires_grad_() for t in tensors)
    y = adaptive_conv2d(x, alpha, bases.detach(), mixing, bias, padding=1, groups=groups, backend=backend)
    return [y, *torch.autograd.grad(y, [x, alpha, mixing, bias], grad)]


def assert_finite_alike(tensors: list[Tensor], grad: Tensor, groups: int) -> list[Tensor]:
    ours, truth = (run(tensors, grad, groups, backend) for backend in ("native", "reference"))
    for a, b in zip(ours, truth, strict=True):
        assert torch.equal(a.isfinite(), b.isfinite())
        torch.testing.assert_close(a[b.isfinite()], b[b.isfinite()], rtol=1e-4, atol=1e-4)
    return ours


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", ["contiguous", "channels_last"])
@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("sizes", GROUPS)
def test_in_the_input(sizes, name, layout, dtype):
    groups, before, after = sizes
    tensors = operands(*sizes, dtype)
    tensors[0][1, HIT * before, 3, 4] = strange(name, dtype)
    # So that the overflow is certain: a sum of five times ±3 is at least 3 or at most -3.
    tensors[1], tensors[2] = 3 * tensors[1].sign(), tensors[2].sign()
    tensors[0] = LAYOUTS[layout](tensors[0])
    y, dx, *_ = assert_finite_alike(tensors, torch.randn(2, groups * after, 6, 9, dtype=dtype), groups)
    others = [o for o in range(groups * after) if o // after != HIT]
    assert y[:, others].isfinite().all()
    assert not y[1, HIT * after : (HIT + 1) * after, 3, 4].isfinite().any()
    assert dx.isfinite().all()
    with torch.no_grad():  # the way without gradients is another one
        planar = adaptive_conv2d(*tensors, padding=1, groups=groups, backend="native")
    assert torch.equal(planar.isfinite(), y.isfinite())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", STRANGE)
@pytest.mark.parametrize("sizes", GROUPS)
def test_in_the_gradient(sizes, name, dtype):
    groups, before, after = sizes
    tensors, grad = operands(*sizes, dtype), torch.randn(2, groups * after, 6, 9, dtype=dtype)
    grad[1, HIT * after, 3, 4] = strange(name, dtype)
    tensors[3] = 3 * tensors[3].sign()
    _, dx, _, dmixing, dbias = assert_finite_alike(tensors, grad, groups)
    others = [c for c in range(groups * before) if c // before != HIT]
    assert dx[:, others].isfinite().all()
    assert not dx[1, HIT * before, 3, 4].isfinite()
    assert dmixing[: HIT * after].isfinite().all()
    assert dbias.isfinite().sum() >= len(dbias) - 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", GROUPS)
def test_in_the_mixing_and_the_bias(sizes, dtype):
    groups, _, after = sizes
    for which in (3, 4):
        tensors = operands(*sizes, dtype)
        tensors[which][HIT * after] = float("nan")
        y, *_ = assert_finite_alike(tensors, torch.randn(2, groups * after, 6, 9, dtype=dtype), groups)
        assert y.isfinite().all(dim=(0, 2, 3)).sum() == groups * after - 1
