"""SKA, the small-kernel aggregation of LSNet (Wang et al., CVPR 2025)."""

from math import isqrt

from torch import Tensor, nn

from acda.checks import check_input
from acda.functional import per_pixel_conv2d
from acda.window import kernel_side


def ska(x: Tensor, w: Tensor) -> Tensor:
    """Filter channel c of a pixel with that pixel's filter c mod G, as `SKA` of LSNet's code.

    x: (B, C, H, W)    w: (B, G, k², H, W), tap by tap, rows first; G divides C    returns: (B, C, H, W)

    Outside the map are zeros.

    >>> import torch
    >>> ska(torch.randn(1, 16, 7, 7), torch.randn(1, 2, 9, 7, 7)).shape
    torch.Size([1, 16, 7, 7])
    """
    check_input(x)
    if w.ndim != 5 or isqrt(w.shape[2]) ** 2 != w.shape[2]:
        raise ValueError(f"w needs (B, G, k², H, W); got {tuple(w.shape)}.")
    G, k = w.shape[1], kernel_side(isqrt(w.shape[2]))
    if G < 1 or x.shape[1] % G:
        raise ValueError(f"w needs a number of filters G that divides the {x.shape[1]} channels; got {G}.")
    # Channels that share a filter are G apart here, and adjacent in per_pixel_conv2d.
    adjacent = x.unflatten(1, (x.shape[1] // G, G)).transpose(1, 2).flatten(1, 2)
    y = per_pixel_conv2d(adjacent, w.unflatten(2, (k, k)), padding=k // 2, groups=G)
    return y.unflatten(1, (G, x.shape[1] // G)).transpose(1, 2).flatten(1, 2)


class SKA(nn.Module):
    """`ska` as a module without parameters, which is how LSNet's code calls it.

    >>> import torch
    >>> SKA()(torch.randn(1, 16, 7, 7), torch.randn(1, 2, 9, 7, 7)).shape
    torch.Size([1, 16, 7, 7])
    """

    def __init__(self) -> None:  # nn.Module's own would show *args
        super().__init__()

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        return ska(x, w)
