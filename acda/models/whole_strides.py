"""Images of any size for networks that need multiples of their stride: extended before, cropped after.

torch.export has to prove that the bounds of every pad and slice are in order, and cannot if a size is rounded up to a
multiple. Indexing needs no proof, so it is used while a graph is recorded.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor


def in_whole_strides(network: Callable[[Tensor], Tensor], x: Tensor, stride: int) -> Tensor:
    """network(x) for any size: the last rows and columns repeated until the sizes are multiples of the stride."""
    H, W = x.shape[2:]
    if torch.compiler.is_exporting():
        for dim, size in ((2, H), (3, W)):
            places = torch.arange(whole(size, stride), device=x.device).clamp(max=size - 1)
            x = x.index_select(dim, places)
    elif H % stride or W % stride:
        x = F.pad(x, (0, -W % stride, 0, -H % stride), mode="replicate")
    return cropped(network(x), H, W)


def with_zeros(x: Tensor, stride: int) -> Tensor:
    """x with rows and columns of zeros at its end, until its sizes are multiples of the stride."""
    H, W = x.shape[2:]
    if not torch.compiler.is_exporting():
        return F.pad(x, (0, -W % stride, 0, -H % stride))
    return cropped(F.pad(x, (0, stride - 1, 0, stride - 1)), whole(H, stride), whole(W, stride))


def cropped(x: Tensor, height: int, width: int) -> Tensor:
    """The first rows and columns of x: (B, C, height, width)."""
    if not torch.compiler.is_exporting():
        return x[:, :, :height, :width]
    for dim, size in ((2, height), (3, width)):
        x = x.index_select(dim, torch.arange(size, device=x.device))
    return x


def whole(size: int, stride: int) -> int:
    """The size rounded up to a multiple of the stride.

    >>> whole(21, 4)
    24
    """
    # Of positive numbers only: ONNX rounds the quotient of a negative one towards zero.
    return (size + stride - 1) // stride * stride
