"""The kernels as torch's implementation of acda's operators on CUDA, and the gradient for learnable bases.

Schemas, shapes, gradients and FLOPs of adaptive_conv2d and its backward are registered by `native`. `driver`, which
imports Triton, is imported with the first call.
"""

from typing import Any

import torch
from torch import Tensor

from acda.backends.native.adaptive import NUMBERS, multiply_adds
from acda.backends.native.registering import register_backward

_WITH_BASES = "adaptive_conv2d_backward_with_bases"


def with_learnable_bases(*arguments: Any) -> Tensor:
    """adaptive_conv2d with a gradient for the bases too."""
    return _LearnableBases.apply(*arguments)


class _LearnableBases(torch.autograd.Function):
    """The operator with a gradient for the bases, which its registered gradient leaves out."""

    @staticmethod
    def forward(*arguments: Any) -> Tensor:
        return torch.ops.acda.adaptive_conv2d(*arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, alpha, bases, mixing, bias, *ctx.numbers = inputs
        ctx.save_for_backward(x, alpha, bases, mixing)
        ctx.has_bias = bias is not None

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        run = getattr(torch.ops.acda, _WITH_BASES)
        dx, dalpha, dmixing, dbias, dbases = run(grad.contiguous(), *ctx.saved_tensors, *ctx.numbers)
        return dx, dalpha, dbases, dmixing, dbias if ctx.has_bias else None, *[None] * len(ctx.numbers)


def _forward(*arguments: Any) -> Tensor:
    from acda.backends.triton import driver

    return driver.forward(*arguments)


def _backward(*arguments: Any) -> tuple[Tensor, ...]:
    from acda.backends.triton import driver

    return driver.backward(*arguments, learn_bases=False)[:4]


def _backward_with_bases(*arguments: Any) -> tuple[Tensor, ...]:
    from acda.backends.triton import driver

    return driver.backward(*arguments, learn_bases=True)


def implement(key: str) -> None:
    """Register the kernels for torch's dispatch key; "CUDA" is ROCm's too."""
    torch.library.impl("acda::adaptive_conv2d", key, _forward)
    torch.library.impl("acda::adaptive_conv2d_backward", key, _backward)
    torch.library.impl(f"acda::{_WITH_BASES}", key, _backward_with_bases)


def _fake(grad: Tensor, x: Tensor, alpha: Tensor, bases: Tensor, mixing: Tensor, *numbers: int) -> tuple[Tensor, ...]:
    like_inputs = tuple(torch.empty_like(t) for t in (x, alpha, mixing))
    return *like_inputs, x.new_empty(mixing.shape[0]), torch.empty_like(bases)


def _flops(grad: Any, x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, **_: Any) -> int:
    # Two products for every one of the forward pass, as without learnable bases: αᵀ·dD is the second of αψ.
    return 4 * multiply_adds(x, alpha, bases, mixing)


register_backward(
    _WITH_BASES,
    f"(Tensor grad, Tensor x, Tensor coefficients, Tensor bases, Tensor mixing, {NUMBERS})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fake,
    _flops,
)
implement("CUDA")
