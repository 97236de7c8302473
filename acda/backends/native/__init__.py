"""The fused CPU kernel as a backend. Each file here is a torch operator: schema, shapes, gradient and multiply-adds.

The C++ is in csrc/ beside this folder. The operators are registered with torch whether or not it was compiled.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from acda.backends.native import adaptive, conv, conv_tanh, layer, library, norm_tanh, planar, training
from acda.backends.native.layer import adaptive_layer
from acda.backends.native.layouts import PixelMajor, dense, numbers
from acda.backends.native.steps import batch_norm_tanh, conv2d, conv2d_tanh
from acda.backends.native.training import train_layer
from acda.backends.reference import needs_grad
from acda.window import Window

__all__ = [
    "KEEPS_HALF",
    "WANTS_CHANNELS_LAST",
    "adaptive_conv2d",
    "adaptive_layer",
    "batch_norm_tanh",
    "conv2d",
    "conv2d_tanh",
    "exact_shifts",
    "per_pixel_conv2d",
    "train_layer",
    "why_not",
]
# Importing these registers the operators.
OPERATORS = (adaptive, planar, layer, training, conv, conv_tanh, norm_tanh)
# Why the kernel cannot run in this installation, or None.
MISSING = library.load()
_said = False

WANTS_CHANNELS_LAST = True
KEEPS_HALF = False


def adaptive_conv2d(
    x: Tensor, alpha: Tensor, bases: Tensor | None, mixing: Tensor, bias: Tensor | None, window: Window, groups: int
) -> Tensor:
    """As reference.adaptive_conv2d; the result has the memory format of the input, or is channels_last in training."""
    rest = (PixelMajor.apply(alpha), dense(bases), mixing.contiguous(), dense(bias), *numbers(window), groups)
    if x.is_contiguous() and not needs_grad(x, alpha, mixing, bias):
        return torch.ops.acda.adaptive_conv2d_planar(x, *rest)
    return torch.ops.acda.adaptive_conv2d(PixelMajor.apply(x), *rest).permute(0, 3, 1, 2)


def per_pixel_conv2d(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """As reference.per_pixel_conv2d; the result is channels_last."""
    filters = PixelMajor.apply(filters.flatten(2, 3))
    z = torch.ops.acda.adaptive_conv2d(PixelMajor.apply(x), filters, None, None, None, *numbers(window), 1)
    return z.permute(0, 3, 1, 2)


def why_not(x: Tensor, bases: Tensor | None = None, insisted: bool = False) -> str | None:
    """The reason why the kernel cannot take these tensors, or None when it can.

    insisted: the caller asked for this kernel, and so for its operators in an exported program too.
    """
    if x.is_meta:
        return None  # nothing is computed: the operator gives shapes and FLOPs
    if MISSING:
        return MISSING
    if x.device.type != "cpu":
        return f"it runs on the CPU; the input is on {x.device}"
    if bases is not None and bases.requires_grad and torch.is_grad_enabled():
        return "it has no gradient for learnable bases"
    return why_not_transformed(insisted)


def why_not_transformed(insisted: bool) -> str | None:
    """The reason why no operator of ours can run while torch exports, traces or transforms a function, or None."""
    if torch.compiler.is_exporting() and not insisted:
        return "an exported program consists of standard operations"
    if torch._C._get_tracing_state() is not None:
        return "a traced program consists of standard operations"
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return "it has no rule for vmap and forward-mode derivatives"
    return None


@contextmanager
def exact_shifts() -> Iterator[None]:
    """Compute Φ's 3×3 convolutions directly, so that shifting the input shifts the output bit for bit.

    Winograd's form, the default in float32, is about three times faster; with it a shift is exact up to rounding, and a
    NaN spreads over a tile of 4×4 pixels. The environment variable ACDA_WINOGRAD=0 chooses the direct form for a whole
    process.
    """
    if MISSING:
        yield
        return
    before = torch.ops.acda.use_winograd(False)
    try:
        yield
    finally:
        torch.ops.acda.use_winograd(before)


def say_once_that_it_is_slow() -> None:
    """Warn once per process where the kernel is missing: the results are right, but slower than they could be."""
    global _said
    if MISSING and not _said and not torch.compiler.is_compiling():
        _said = True
        warnings.warn(f"acda runs in plain torch, several times slower than its CPU kernel: {MISSING}", stacklevel=5)
