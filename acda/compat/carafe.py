"""CARAFE: enlarge a map, every new pixel with a filter of its own (Wang et al., ICCV 2019)."""

from torch import Tensor

from acda.checks import check_input
from acda.functional import per_pixel_conv2d
from acda.window import kernel_side


def carafe(features: Tensor, masks: Tensor, kernel_size: int, group_size: int = 1, scale_factor: int = 1) -> Tensor:
    """The reassembly of CARAFE, as `mmcv.ops.carafe`: out(y, x) = Σ masks(y, x)·features around (y/s, x/s).

    features: (B, C, H, W)    masks: (B, group_size·k², s·H, s·W), tap by tap, rows first    returns: (B, C, s·H, s·W)

    kernel_size: k, odd; outside the map are zeros.
    group_size: how many groups of adjacent channels have masks of their own.
    scale_factor: s, a whole number.
    The masks are used as they are: apply the softmax over the taps first.

    >>> import torch
    >>> carafe(torch.randn(1, 8, 5, 6), torch.randn(1, 25, 10, 12).softmax(1), 5, 1, 2).shape
    torch.Size([1, 8, 10, 12])
    """
    check_input(features)
    k, s = kernel_side(kernel_size), scale_factor
    B, C, H, W = features.shape
    if s < 1 or group_size < 1 or C % group_size:
        raise ValueError(
            f"scale_factor needs to be at least 1, and group_size to divide the channels; got {scale_factor=}, "
            f"{group_size=} for {C} channels."
        )
    expected = (B, group_size * k * k, s * H, s * W)
    if tuple(masks.shape) != expected:
        raise ValueError(
            f"masks needs one k×k mask per group and new pixel, {expected}; got {tuple(masks.shape)}. Does "
            "scale_factor match the features' size?"
        )
    # The s·s new pixels of an old one see the same window: they are s² filters of that pixel.
    filters = masks.unflatten(3, (W, s)).unflatten(2, (H, s)).unflatten(1, (group_size, k, k))
    filters = filters.movedim((5, 7), (2, 3)).flatten(1, 3)
    y = per_pixel_conv2d(features, filters, padding=k // 2, groups=group_size).unflatten(1, (C, s, s))
    return y.movedim((2, 3), (3, 5)).flatten(4, 5).flatten(2, 3)
