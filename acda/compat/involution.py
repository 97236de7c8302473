"""Involution: a filter per pixel and group of channels (Li et al., CVPR 2021)."""

from torch import Tensor

from acda.functional import per_pixel_conv2d
from acda.window import Pair


def involution(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    dilation: Pair = 1,
) -> Tensor:
    """The operator of involution, as `_involution_cuda` of the authors' code.

    input: (B, C, H, W)    weight: (B, groups, k, k, P, Q)    bias: (C,)    returns: (B, C, P, Q)

    stride, padding, dilation: as in `F.conv2d`; P and Q are what it gives.
    acda.layers.Involution2d is the whole layer, which also predicts the weight.

    >>> import torch
    >>> involution(torch.randn(1, 32, 8, 8), torch.randn(1, 2, 7, 7, 8, 8), padding=3).shape
    torch.Size([1, 32, 8, 8])
    """
    if weight.ndim != 6:
        raise ValueError(f"weight needs 6 dimensions, (B, groups, k, k, P, Q); got {tuple(weight.shape)}.")
    y = per_pixel_conv2d(input, weight, stride, padding, dilation, groups=weight.shape[1])
    if bias is None:
        return y
    if tuple(bias.shape) != (y.shape[1],):
        raise ValueError(f"bias needs one number per channel, ({y.shape[1]},); got {tuple(bias.shape)}.")
    return y + bias[:, None, None]
