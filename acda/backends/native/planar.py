"""acda::adaptive_conv2d_planar, the operator for a contiguous x: (B, C, H, W) to (B, O, P, Q). It has no gradient."""

from typing import Any

from torch import Tensor

from acda.backends.native.adaptive import NUMBERS, multiply_adds
from acda.backends.native.registering import register


def _fake(x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape[0], mixing.shape[0], *alpha.shape[1:3])


def _flops(x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, **_: Any) -> int:
    return 2 * multiply_adds(x, alpha, bases, mixing, channels=1)


register(
    "adaptive_conv2d_planar",
    f"(Tensor x, Tensor coefficients, Tensor? bases, Tensor mixing, Tensor? bias, {NUMBERS}) -> Tensor",
    _fake,
    _flops,
)
