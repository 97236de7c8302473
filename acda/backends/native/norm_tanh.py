"""acda::norm_tanh, batch normalisation and Tanh of pixel-major maps in one operator, with its gradient.

It uses the statistics of the batch unless others are given, and returns those that it used.
"""

from typing import Any

import torch
from torch import Tensor

from acda.backends.native.layouts import PixelMajor, dense
from acda.backends.native.registering import register, register_backward

Three = tuple[Tensor, Tensor, Tensor]


def norm_tanh(u: Tensor, weight: Tensor, bias: Tensor, mean: Tensor | None, var: Tensor | None, eps: float) -> Three:
    """tanh(F.batch_norm(…)) in channels_last, and the mean and variance used: the given ones, or the batch's own."""
    parameters = (dense(t) for t in (weight, bias, mean, var))
    y, mean, var = torch.ops.acda.norm_tanh(PixelMajor.apply(u), *parameters, eps)
    return y.permute(0, 3, 1, 2), mean, var


@torch.no_grad()
def update_running(
    running_mean: Tensor, running_var: Tensor, mean: Tensor, var: Tensor, values: int, momentum: float
) -> None:
    """Update the running statistics as F.batch_norm does. mean, var: of a batch with so many values per channel"""
    running_mean.lerp_(mean, momentum)
    running_var.lerp_(var * (values / (values - 1)), momentum)


def _fake(u: Tensor, weight: Tensor, *rest: Any) -> Three:
    return torch.empty_like(u), torch.empty_like(weight), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Three) -> None:
    u, weight, _, given, _, ctx.eps = inputs
    y, mean, var = output
    ctx.fixed = given is not None
    ctx.mark_non_differentiable(mean, var)
    ctx.save_for_backward(y, u, weight, mean, var)


def _differentiate(ctx: Any, grad: Tensor, *statistics: Any) -> tuple[Tensor | None, ...]:
    du, dweight, dbias = torch.ops.acda.norm_tanh_backward(grad.contiguous(), *ctx.saved_tensors, ctx.eps, ctx.fixed)
    return du, dweight, dbias, None, None, None


def _fake_backward(grad: Tensor, y: Tensor, u: Tensor, weight: Tensor, *rest: Any) -> Three:
    return _fake(u, weight)


register(
    "norm_tanh",
    "(Tensor u, Tensor weight, Tensor bias, Tensor? mean, Tensor? var, float eps) -> (Tensor, Tensor, Tensor)",
    _fake,
    None,
    _keep,
    _differentiate,
)
register_backward(
    "norm_tanh_backward",
    "(Tensor grad, Tensor y, Tensor u, Tensor weight, Tensor mean, Tensor var, float eps, bool fixed)"
    " -> (Tensor, Tensor, Tensor)",
    _fake_backward,
    None,
)
