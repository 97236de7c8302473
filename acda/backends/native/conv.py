"""acda::conv2d, a convolution of Φ in training, with its gradient.

Pixel-major maps, stride 1; negative padding crops.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from acda.backends.native.layouts import PixelMajor
from acda.backends.native.registering import register, register_backward
from acda.window import output_length


def conv2d(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    """F.conv2d with gradients, for stride 1 and padding smaller than the window; the result is channels_last."""
    return torch.ops.acda.conv2d(PixelMajor.apply(x), weight.contiguous(), *padding).permute(0, 3, 1, 2)


def _fake(x: Tensor, weight: Tensor, py: int, px: int) -> Tensor:
    (B, H, W, _), (O, _, k, _) = x.shape, weight.shape  # noqa: E741
    return x.new_empty(B, output_length(H, k, padding=py), output_length(W, k, padding=px), O)


def _flops(x: Any, weight: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
    return int(2 * prod(out_shape[:3]) * prod(weight))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, *ctx.padding = inputs
    ctx.save_for_backward(x, weight)


def _differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    needs_input = ctx.needs_input_grad[0]
    dx, dweight = torch.ops.acda.conv2d_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.padding, needs_input)
    return dx if needs_input else None, dweight, None, None


def _fake_backward(grad: Tensor, x: Tensor, weight: Tensor, py: int, px: int, input: bool) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape[0] if input else 0, *x.shape[1:]), torch.empty_like(weight)


def _flops_backward(grad: Any, x: Any, weight: Any, py: int, px: int, input: bool, **_: Any) -> int:
    return int(2 * (1 + input) * prod(grad[:3]) * prod(weight))


register("conv2d", "(Tensor x, Tensor weight, int py, int px) -> Tensor", _fake, _flops, _keep, _differentiate)
register_backward(
    "conv2d_backward",
    "(Tensor grad, Tensor x, Tensor weight, int py, int px, bool input) -> (Tensor, Tensor)",
    _fake_backward,
    _flops_backward,
)
