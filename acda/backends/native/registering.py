"""Register an operator with torch: its schema, the shapes of its results, its gradient and its multiply-adds."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import register_flop_formula


def register(
    name: str,
    schema: str,
    fake: Callable[..., Any] | None = None,
    flops: Callable[..., int] | None = None,
    keep: Callable[..., None] | None = None,
    differentiate: Callable[..., Any] | None = None,
) -> None:
    """Register acda::name; the compiled kernel, where there is one, computes it.

    fake: returns empty results of the right shapes
    flops: from the shapes of the arguments; `out_shape` is that of the result
    keep: autograd's setup_context
    differentiate: autograd's backward
    """
    torch.library.define(f"acda::{name}", schema)
    if fake is not None:
        torch.library.register_fake(f"acda::{name}", fake)
    if differentiate is not None:
        torch.library.register_autograd(f"acda::{name}", differentiate, setup_context=keep)
    if flops is not None:
        register_flop_formula(getattr(torch.ops.acda, name))(flops)


def register_backward(name: str, schema: str, fake: Callable[..., Any], flops: Callable[..., int] | None) -> None:
    """Register an operator that computes the gradients of another and has none of its own."""
    register(name, schema, fake, flops, lambda ctx, inputs, output: None, _refuse)


def _refuse(ctx: Any, *grads: Any) -> None:
    raise NotImplementedError(
        "acda's kernels have first derivatives only. "
        'For second derivatives set layer.backend = "reference", or pass backend="reference" to acda.functional.'
    )
