"""The operator as functions: check the arguments, choose a backend, call it.

>>> from acda import multiscale_fourier_bessel
>>> x = torch.randn(1, 8, 20, 30)
>>> coefficients = torch.randn(1, 6, 18, 20, 30)             # 6 atoms over 18 basis elements at every pixel
>>> mixing = torch.randn(16, 8, 6)
>>> adaptive_conv2d(x, coefficients, multiscale_fourier_bessel(7), mixing, padding=3).shape
torch.Size([1, 16, 20, 30])
"""

from collections.abc import Callable
from math import isqrt
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.backends import choose, native, triton
from acda.window import Pair, Window, kernel_side


def adaptive_conv2d(
    x: Tensor,
    coefficients: Tensor,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    backend: str = "auto",
) -> Tensor:
    """Convolve every pixel with a filter of its own, K = mixing · coefficients · bases.

    x: (B, C, H, W)    coefficients: (B, M, L, P, Q)    bases: (L, k, k)    mixing: (O, C/groups, M)    bias: (O,)
    returns: (B, O, P, Q), the shape that `F.conv2d` gives with the same arguments; channels_last where x is

    bases=None is the pixel basis: L = k², row by row, and the coefficients are the atoms themselves.
    stride, padding, dilation, groups: as in `F.conv2d`.
    backend: "triton" are the GPU kernels, "native" is the fused CPU kernel, "reference" plain torch, "auto" the first
        of them that can run.
    Half precision is computed and accumulated in float32 and cast back. The GPU kernels multiply it as it is, and
    accumulate in float32.
    """
    check_input(x)
    window = Window.of(_side_of(coefficients, bases), stride, padding, dilation)
    check_alike(x, coefficients=coefficients, bases=bases, mixing=mixing, bias=bias)
    _check_mixing(x, coefficients, mixing, bias, groups)
    _check_per_pixel("coefficients", coefficients, (x.shape[0], *coefficients.shape[1:3]), x, window)
    kernels = choose(backend, x, bases)
    compute, result = _precision(x, kernels)
    args = [None if t is None else t.to(compute) for t in (x, coefficients, bases, mixing, bias)]
    return like_input(_without_autocast(kernels.adaptive_conv2d, x, *args, window, groups).to(result), x)


def per_pixel_conv2d(
    x: Tensor,
    filters: Tensor,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    backend: str = "auto",
) -> Tensor:
    """Filter every channel of a pixel with each of that pixel's own M filters.

    x: (B, C, H, W)    filters: (B, M, k, k, P, Q)    returns: (B, C·M, P, Q), channel c·M + m

    stride, padding, dilation: as in `F.conv2d`.
    backend: as in adaptive_conv2d.

    >>> blur = torch.full((1, 1, 3, 3, 4, 4), 1 / 9)
    >>> per_pixel_conv2d(torch.ones(1, 3, 6, 6), blur).shape
    torch.Size([1, 3, 4, 4])
    """
    check_input(x)
    if filters.ndim != 6:
        raise ValueError(f"filters needs 6 dimensions, (B, M, k, k, P, Q); got {tuple(filters.shape)}.")
    # Shapes are tensors while torch.jit traces.
    window = Window.of(kernel_side((int(filters.shape[2]), int(filters.shape[3]))), stride, padding, dilation)
    check_alike(x, filters=filters)
    _check_per_pixel("filters", filters, (x.shape[0], *filters.shape[1:4]), x, window)
    kernels = choose(backend, x)
    compute, result = _precision(x, kernels)
    y = _without_autocast(kernels.per_pixel_conv2d, x, x.to(compute), filters.to(compute), window)
    return like_input(y.to(result), x)


def conv2d_tanh(
    x: Tensor, weight: Tensor, shift: Tensor, stride: tuple[int, int], padding: tuple[int, int], backend: str = "auto"
) -> Tensor:
    """tanh(F.conv2d(…)) without gradients, negative padding cropping the map: a step of Φ in inference."""
    if takes_native_exactly(backend, x):
        return native.conv2d_tanh(x, weight, shift, stride, padding)
    return F.conv2d(_cropped(x, padding), weight, shift, stride, _not_negative(padding)).tanh_()


def conv2d(
    x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int], backend: str = "auto"
) -> Tensor:
    """F.conv2d with gradients, negative padding cropping the map: what a step of Φ in training begins with."""
    if stride == (1, 1) and max(padding) < weight.shape[2] and takes_native_exactly(backend, x):
        return native.conv2d(x, weight, padding)
    return F.conv2d(_cropped(x, padding), weight, None, stride, _not_negative(padding))


def _cropped(x: Tensor, padding: tuple[int, int]) -> Tensor:
    cy, cx = (min(p, 0) for p in padding)
    # Not a slice: its gradient would be contiguous whatever the map is, and BatchNorm is ten times slower then.
    return F.pad(x, (cx, cx, cy, cy)) if cx or cy else x


def _not_negative(padding: tuple[int, int]) -> tuple[int, int]:
    return max(padding[0], 0), max(padding[1], 0)


def takes_native_exactly(backend: str, x: Tensor) -> bool:
    """takes_native, for what has no conversion of dtypes around it."""
    return x.dtype in (torch.float32, torch.float64) and not _autocast_on(x) and takes_native(backend, x)


def takes_native(backend: str, x: Tensor, bases: Tensor | None = None) -> bool:
    """Whether the native kernel is the one to run."""
    return choose(backend, x, bases) is native


def _side_of(coefficients: Tensor, bases: Tensor | None) -> int:
    """The kernel's side k, which the bases tell, or without bases the number of coefficients."""
    if coefficients.ndim != 5:
        raise ValueError(f"coefficients needs 5 dimensions, (B, M, L, P, Q); got {tuple(coefficients.shape)}.")
    L = coefficients.shape[2]
    if bases is None:
        side = isqrt(L)
        if side * side != L:
            raise ValueError(
                f"without bases the coefficients are the k·k pixels of an atom, so L needs to be a square number; "
                f"got L = {L} in {tuple(coefficients.shape)}. Are the bases missing?"
            )
        return kernel_side(side)
    if bases.ndim != 3 or bases.shape[0] != L:
        raise ValueError(
            f"bases needs one k×k element per coefficient, ({L}, k, k); got {tuple(bases.shape)} "
            f"for coefficients {tuple(coefficients.shape)}."
        )
    return kernel_side((int(bases.shape[1]), int(bases.shape[2])))


def check_input(x: Tensor) -> None:
    """An image batch: floating point, (B, C, H, W)."""
    if not isinstance(x, Tensor):
        hint = ""
        if isinstance(x, torch.fx.Proxy):
            hint = " Tracing needs the layer as a leaf: see acda.fx_leaf_modules."
        raise TypeError(f"the input needs to be a tensor (B, C, H, W); got {type(x).__name__}.{hint}")
    if x.ndim != 4:
        hint = " Add a batch dimension with x.unsqueeze(0)." if x.ndim == 3 else ""
        raise ValueError(f"the input needs 4 dimensions, (B, C, H, W); got {tuple(x.shape)}.{hint}")
    if not x.is_floating_point():
        raise TypeError(f"the input needs a floating-point dtype; got {x.dtype}. Convert it with x.float().")


def check_alike(x: Tensor, **others: Tensor | None) -> None:
    """Every tensor on the input's device and, outside autocast, of its dtype."""
    for name, t in others.items():
        if t is None:
            continue
        if t.device != x.device:
            raise ValueError(
                f"all tensors need to be on one device; the input is on {x.device}, {name} on {t.device}. "
                "Move them with .to(device)."
            )
        if not t.is_floating_point():
            raise TypeError(f"{name} needs a floating-point dtype; got {t.dtype}.")
        if t.dtype != x.dtype and not _autocast_on(x):
            raise TypeError(
                f"all tensors need one dtype outside autocast; the input is {x.dtype}, {name} is {t.dtype}. "
                "Convert one with .to(dtype)."
            )


def _check_mixing(x: Tensor, coefficients: Tensor, mixing: Tensor, bias: Tensor | None, groups: int) -> None:
    C, M = x.shape[1], coefficients.shape[1]
    check_groups(C, mixing.shape[0] if mixing.ndim else 0, groups)
    if mixing.ndim != 3 or tuple(mixing.shape[1:]) != (C // groups, M):
        raise ValueError(
            f"mixing needs (O, C/groups, M) = (O, {C // groups}, {M}) for an input of {C} channels, groups={groups} "
            f"and {M} atoms; got {tuple(mixing.shape)}."
        )
    if bias is not None and tuple(bias.shape) != (mixing.shape[0],):
        raise ValueError(f"bias needs one number per output channel, ({mixing.shape[0]},); got {tuple(bias.shape)}.")


def check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    """Both channel counts need to be multiples of groups, as in Conv2d."""
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ValueError(
            f"groups needs to divide the channels in and out; got groups={groups} for {in_channels} in and "
            f"{out_channels} out."
        )


def _check_per_pixel(name: str, t: Tensor, leading: tuple[int, ...], x: Tensor, window: Window) -> None:
    expected = (*leading, *window.output_size(x.shape[2], x.shape[3]))
    if tuple(t.shape) != expected:
        raise ValueError(
            f"{name} needs one set per output pixel, {expected}; got {tuple(t.shape)}. "
            "Does what predicts them use the layer's stride, padding and dilation?"
        )


def _autocast_on(x: Tensor) -> bool:
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _precision(x: Tensor, kernels: ModuleType) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes to compute in and to return: float64 stays, everything else is computed in float32.

    Under autocast the result has autocast's dtype, as a convolution's would. The GPU kernels compute in the dtype of
    the result.
    """
    if x.dtype == torch.float64:
        return torch.float64, torch.float64
    result = torch.get_autocast_dtype(x.device.type) if _autocast_on(x) else x.dtype
    return result if kernels is triton else torch.float32, result


def _without_autocast(function: Callable[..., Tensor], x: Tensor, *args: Any) -> Tensor:
    if not _autocast_on(x):
        return function(*args)
    with torch.autocast(x.device.type, enabled=False):
        return function(*args)


def like_input(y: Tensor, x: Tensor) -> Tensor:
    """Answer channels_last with channels_last and everything else with contiguous, as convolutions do."""
    if torch._C._are_functorch_transforms_active():
        return y  # vmap knows no memory formats
    if not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        return y.contiguous(memory_format=torch.channels_last)
    return y.contiguous()
