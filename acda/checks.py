"""What the operators and the layers ask of their arguments. Errors say what was needed, what came, what to try."""

from math import isqrt

import torch
from torch import Tensor

from acda.backends.calling import autocast_on
from acda.window import Window, kernel_side


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
        if t.dtype != x.dtype and not autocast_on(x):
            raise TypeError(
                f"all tensors need one dtype outside autocast; the input is {x.dtype}, {name} is {t.dtype}. "
                "Convert one with .to(dtype)."
            )


def check_groups(in_channels: int, out_channels: int, groups: int) -> None:
    """Both channel counts need to be multiples of groups, as in Conv2d."""
    if groups < 1 or in_channels % groups or out_channels % groups:
        raise ValueError(
            f"groups needs to divide the channels in and out; got groups={groups} for {in_channels} in and "
            f"{out_channels} out."
        )


def check_filter_groups(channels: int, filters: int, groups: int) -> None:
    """Every group has equally many channels, and equally many filters."""
    if groups < 1 or channels % groups or filters % groups:
        raise ValueError(
            f"groups needs to divide the channels and the filters of a pixel; got groups={groups} for {channels} "
            f"channels and {filters} filters."
        )


def side_of(coefficients: Tensor, bases: Tensor | None) -> int:
    """The kernel's side k: that of the bases or, without bases, the root of the number of coefficients."""
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


def check_operands(
    x: Tensor, coefficients: Tensor, bases: Tensor | None, mixing: Tensor, bias: Tensor | None, groups: int
) -> None:
    """What adaptive_conv2d takes: alike, with a mixing and a bias that fit the channels and the atoms."""
    check_alike(x, coefficients=coefficients, bases=bases, mixing=mixing, bias=bias)
    C, M = x.shape[1], coefficients.shape[1]
    check_groups(C, mixing.shape[0] if mixing.ndim else 0, groups)
    if mixing.ndim != 3 or tuple(mixing.shape[1:]) != (C // groups, M):
        raise ValueError(
            f"mixing needs (O, C/groups, M) = (O, {C // groups}, {M}) for an input of {C} channels, groups={groups} "
            f"and {M} atoms; got {tuple(mixing.shape)}."
        )
    if bias is not None and tuple(bias.shape) != (mixing.shape[0],):
        raise ValueError(f"bias needs one number per output channel, ({mixing.shape[0]},); got {tuple(bias.shape)}.")


def check_per_pixel(name: str, t: Tensor, leading: tuple[int, ...], x: Tensor, window: Window) -> None:
    """One set of numbers for each output pixel: the leading dimensions, then (P, Q)."""
    expected = (*leading, *window.output_size(x.shape[2], x.shape[3]))
    if tuple(t.shape) != expected:
        raise ValueError(
            f"{name} needs one set per output pixel, {expected}; got {tuple(t.shape)}. "
            "Does what predicts them use the layer's stride, padding and dilation?"
        )
