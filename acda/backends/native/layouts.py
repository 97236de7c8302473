"""Arguments of the operators: pixel-major maps, dense parameters, the window as numbers. GPU kernels take the same."""

from typing import Any

import torch
from torch import Tensor

from acda.window import Window, output_length


class PixelMajor(torch.autograd.Function):
    """(B, …, P, Q) → (B, P, Q, …), dense; a channels_last tensor is not copied.

    The gradient has the layout of the input. This is necessary: torch 2.15's BatchNorm returns wrong gradients when a
    contiguous input meets a gradient in channels_last whose stride along a batch of one is not the usual one, and a
    reshape in between produces such strides.
    """

    # In this form, without setup_context, apply does not inspect the signature of forward at every call.
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        pixel_major = t.movedim((-2, -1), (1, 2))
        ctx.was_pixel_major = pixel_major.is_contiguous()
        return pixel_major.contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.movedim((1, 2), (-2, -1))
        return grad if ctx.was_pixel_major else grad.contiguous()


def dense(t: Tensor | None) -> Tensor | None:
    """The parameter in contiguous memory; None stays None."""
    return None if t is None else t.contiguous()


def numbers(window: Window) -> tuple[int, ...]:
    """Kernel side, then stride, padding and dilation, each vertical and horizontal."""
    return window.side, *window.stride, *window.padding, *window.dilation


def output_size(
    height: int, width: int, k: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int
) -> tuple[int, int]:
    """(P, Q) for a map of this height and width, with the window as numbers. It checks nothing."""
    return output_length(height, k, sy, py, dy), output_length(width, k, sx, px, dx)
