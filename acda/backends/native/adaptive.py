"""acda::adaptive_conv2d, the operator itself, with its gradient.

Pixel-major: x (B, H, W, C), coefficients (B, P, Q, M, L), result (B, P, Q, O). Without mixing the result is z, channel
c·M + m. Atoms, z and patches never exist for more than a few hundred pixels: the forward pass allocates its result,
training keeps x, the coefficients and the parameters, and the backward pass recomputes the rest.
"""

from typing import Any

import torch
from torch import Tensor

from acda.backends.native.registering import register, register_backward

OPERANDS = "Tensor x, Tensor coefficients, Tensor? bases, Tensor? mixing"
NUMBERS = "int k, int sy, int sx, int py, int px, int dy, int dx, int groups"


def multiply_adds(x: Any, alpha: Any, bases: Any, mixing: Any, channels: int = 3) -> int:
    """From shapes: compose the atoms, apply them, mix. `channels` is the dimension of x that holds them."""
    (B, P, Q, M, L), C = alpha, x[channels]
    taps = L if bases is None else bases[1] * bases[2]
    compose = 0 if bases is None else M * L * taps
    mix = 0 if mixing is None else mixing[0] * mixing[1] * M
    return int(B * P * Q * (compose + C * M * taps + mix))


def _fake(x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor | None, bias: Any, *numbers: int) -> Tensor:
    channels = x.shape[3] * alpha.shape[3] if mixing is None else mixing.shape[0]
    return x.new_empty(*alpha.shape[:3], channels)


def _flops(x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, **_: Any) -> int:
    return 2 * multiply_adds(x, alpha, bases, mixing)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, alpha, bases, mixing, bias, *ctx.numbers = inputs
    ctx.save_for_backward(x, alpha, bases, mixing)
    ctx.has_bias = bias is not None


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    x, alpha, bases, mixing = ctx.saved_tensors
    backward = torch.ops.acda.adaptive_conv2d_backward
    dx, dalpha, dmixing, dbias = backward(grad.contiguous(), x, alpha, bases, mixing, *ctx.numbers)
    parameters = (None, None if mixing is None else dmixing, dbias if ctx.has_bias else None)
    return dx, dalpha, *parameters, *[None] * len(ctx.numbers)


def _fake_backward(
    grad: Tensor, x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor | None, *numbers: int
) -> tuple[Tensor, ...]:
    C, M, groups = x.shape[3], alpha.shape[3], numbers[-1]
    O = 0 if mixing is None else mixing.shape[0]  # noqa: E741
    return torch.empty_like(x), torch.empty_like(alpha), x.new_empty(O, C // groups, M), x.new_empty(O)


def _flops_backward(grad: Any, x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, **_: Any) -> int:
    # Two products for every one of the forward pass; what is recomputed does not count, as with checkpointing.
    return 4 * multiply_adds(x, alpha, bases, mixing)


register("adaptive_conv2d", f"({OPERANDS}, Tensor? bias, {NUMBERS}) -> Tensor", _fake, _flops, _keep, _differentiate)
register_backward(
    "adaptive_conv2d_backward",
    f"(Tensor grad, {OPERANDS}, {NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor)",
    _fake_backward,
    _flops_backward,
)
