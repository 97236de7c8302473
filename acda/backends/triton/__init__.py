"""The GPU kernels, written in Triton: the second implementation of the operators that `native` registers with torch.

They are checked in Triton's interpreter and compiled for the GPUs that the tests list. They were never run on a GPU and
never timed, so a trial precedes the first call on a device. Triton itself is imported with the first call.
"""

import os
import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from acda.backends.native import why_not_transformed
from acda.backends.native.layouts import PixelMajor, dense, numbers
from acda.backends.reference import batch_norm_tanh, conv2d, conv2d_tanh, needs_grad
from acda.backends.triton import operators
from acda.window import Window

__all__ = [
    "KEEPS_HALF",
    "WANTS_CHANNELS_LAST",
    "adaptive_conv2d",
    "adaptive_layer",
    "batch_norm_tanh",
    "conv2d",
    "conv2d_tanh",
    "per_pixel_conv2d",
    "train_layer",
    "why_not",
]
WANTS_CHANNELS_LAST = False
KEEPS_HALF = True
adaptive_layer = None
train_layer = None

# The oldest NVIDIA GPUs whose tensor cores multiply TF32 and bfloat16: Ampere.
LEAST_CAPABILITY = (8, 0)
_devices = {"cuda"}


def adaptive_conv2d(
    x: Tensor, alpha: Tensor, bases: Tensor | None, mixing: Tensor, bias: Tensor | None, window: Window, groups: int
) -> Tensor:
    """As reference.adaptive_conv2d; the result is channels_last."""
    parameters = (dense(bases), mixing.contiguous(), dense(bias))
    run = operators.with_learnable_bases if needs_grad(bases) else torch.ops.acda.adaptive_conv2d
    y = run(PixelMajor.apply(x), PixelMajor.apply(alpha), *parameters, *numbers(window), groups)
    return y.permute(0, 3, 1, 2)


def per_pixel_conv2d(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """As reference.per_pixel_conv2d; the result is channels_last."""
    filters = PixelMajor.apply(filters.flatten(2, 3))
    z = torch.ops.acda.adaptive_conv2d(PixelMajor.apply(x), filters, None, None, None, *numbers(window), 1)
    return z.permute(0, 3, 1, 2)


def why_not(x: Tensor, bases: Tensor | None = None, insisted: bool = False) -> str | None:
    """The reason why the kernels cannot take these tensors, or None when they can.

    insisted: the caller asked for these kernels, and so for their operators in an exported program too.
    """
    if x.device.type not in _devices:
        return f"it runs on CUDA and ROCm devices; the input is on {x.device}"
    if x.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"it computes in float32, float16 and bfloat16; the input is {x.dtype}"
    if reason := why_not_transformed(insisted):
        return reason
    return why_not_here(x.device.index or 0, x.dtype, x.device.type)


def why_not_here(index: int = 0, dtype: torch.dtype = torch.float32, kind: str = "cuda") -> str | None:
    """The reason why the kernels cannot run on this GPU of this installation, or None when they can."""
    # Each precision of products has its own kernels and its own trial.
    switch = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    products = switch.fp32_precision if dtype == torch.float32 else ""
    return _ask_once(index, dtype, kind, products)


# What torch.compiler.assume_constant_result sets, without importing all of torch._dynamo, which takes seconds.
why_not_here._dynamo_marked_constant = True  # type: ignore[attr-defined]


@cache
def _ask_once(index: int, dtype: torch.dtype, kind: str, products: str) -> str | None:
    if find_spec("triton") is None:
        return "Triton is not installed, which torch brings along on Linux"
    if kind == "cuda":
        if not torch.cuda.is_available():
            return None  # a fake tensor: nothing is computed, the operator gives shapes and FLOPs
        capability = torch.cuda.get_device_capability(index)
        if torch.version.hip is None and capability < LEAST_CAPABILITY:
            needed, came = (".".join(map(str, version)) for version in (LEAST_CAPABILITY, capability))
            return f"it needs compute capability {needed}, for TF32 and bfloat16; this GPU has {came}"
    return _try_out(torch.device(kind, index), dtype)


def _try_out(device: torch.device, dtype: torch.dtype) -> str | None:
    """Compare one small call with plain torch, and warn where they disagree."""
    from acda.backends.triton.trial import disagreement

    reason = disagreement(device, dtype)
    if reason:
        warnings.warn(
            f"acda's GPU kernels are not used on {device} for {dtype}: {reason}. Plain torch runs instead, right but "
            "slower. Please report this with the output of `acda info` and of `python benchmarks/gpu.py`.",
            RuntimeWarning,
            stacklevel=2,
        )
    return reason


def state() -> str:
    """What `acda info` says about the kernels."""
    if (reason := why_not_here()) or not torch.cuda.is_available():
        return reason or "it runs on CUDA and ROCm devices; there is none"
    return "yes, on CUDA and ROCm devices; a trial call agrees with plain torch here; never timed"


def interpret() -> None:
    """Let the operators run on the CPU in Triton's interpreter, for the rest of the process: for tests and debugging.

    It replaces the native kernel of the same operators.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("Triton's interpreter needs the environment variable TRITON_INTERPRET=1 from the start.")
    operators.implement("CPU")
    _devices.add("cpu")
