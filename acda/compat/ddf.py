"""DDF: a filter per pixel combined with a filter per channel (Zhou et al., CVPR 2021)."""

import torch.nn.functional as F
from torch import Tensor

from acda.checks import check_input
from acda.functional import per_pixel_conv2d
from acda.window import kernel_side


def ddf(
    features: Tensor,
    channel_filter: Tensor | None,
    spatial_filter: Tensor,
    kernel_size: int = 3,
    dilation: int = 1,
    stride: int = 1,
    head: int = 1,
    kernel_combine: str = "mul",
    version: str = "",
) -> Tensor:
    """The operator of Decoupled Dynamic Filters, as `ddf.ddf`, and its spatial branch alone.

    features: (B, C, H, W)    spatial_filter: (B, k², H//stride, W//stride), tap by tap, rows first
    channel_filter: (B, C, k, k), or None for the spatial branch alone
    returns: (B, C, H//stride, W//stride)

    kernel_size, dilation, stride: whole numbers; windows are centred on every stride-th pixel, zeros outside the map.
    head: 1, as in the original.
    kernel_combine: "mul" or "add", how the two filters make one. The filter of every channel and pixel is formed,
        which takes k² times the memory of the output; the spatial branch alone does not need that.
    version: which kernel the original would use; it changes nothing here.

    >>> import torch
    >>> ddf(torch.randn(1, 8, 6, 6), torch.randn(1, 8, 3, 3), torch.randn(1, 9, 6, 6)).shape
    torch.Size([1, 8, 6, 6])
    """
    check_input(features)
    k = kernel_side(kernel_size)
    _check(features, channel_filter, spatial_filter, k, stride, head, kernel_combine)
    P, Q = spatial_filter.shape[2:]
    extended = _extended(features, dilation * (k // 2), stride, P, Q)
    spatial = spatial_filter.unflatten(1, (1, k, k))
    if channel_filter is None:
        return per_pixel_conv2d(extended, spatial, stride, 0, dilation)
    channel = channel_filter[..., None, None]
    own = spatial * channel if kernel_combine == "mul" else spatial + channel
    return per_pixel_conv2d(extended, own, stride, 0, dilation, groups=features.shape[1])


def _extended(x: Tensor, reach: int, stride: int, P: int, Q: int) -> Tensor:
    """The map with zeros around it, up to where the last window ends: P is H//stride, not rounded up."""
    bottom, right = ((count - 1) * stride + reach + 1 - size for count, size in zip((P, Q), x.shape[2:], strict=True))
    return F.pad(x, (reach, right, reach, bottom))


def _check(
    features: Tensor,
    channel_filter: Tensor | None,
    spatial_filter: Tensor,
    k: int,
    stride: int,
    head: int,
    kernel_combine: str,
) -> None:
    B, C, H, W = features.shape
    if head != 1:
        raise ValueError(f"head needs to be 1, as in the original; got {head}.")
    if kernel_combine not in ("mul", "add"):
        raise ValueError(f'kernel_combine needs "mul" or "add"; got {kernel_combine!r}.')
    expected = (B, k * k, H // stride, W // stride)
    if tuple(spatial_filter.shape) != expected:
        raise ValueError(
            f"spatial_filter needs (B, k², H//stride, W//stride) = {expected}; got {tuple(spatial_filter.shape)}."
        )
    if channel_filter is not None and tuple(channel_filter.shape) != (B, C, k, k):
        raise ValueError(f"channel_filter needs (B, C, k, k) = {(B, C, k, k)}; got {tuple(channel_filter.shape)}.")
