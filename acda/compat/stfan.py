"""FAC, the filter adaptive convolution of STFAN: a filter per pixel and channel (Zhou et al., ICCV 2019)."""

import torch.nn.functional as F
from torch import Tensor, nn

from acda.checks import check_input
from acda.functional import per_pixel_conv2d
from acda.window import kernel_side


def fac(input: Tensor, kernel: Tensor, kernel_size: int) -> Tensor:
    """Filter every channel of a pixel with a filter of its own, as `KernelConv2D` of STFAN's code.

    input: (B, C, H, W)    kernel: (B, C·k², H, W), channel by channel, then rows    returns: (B, C, H, W)

    kernel_size: k, odd; the border pixels are repeated outside the map.

    >>> import torch
    >>> fac(torch.randn(1, 4, 7, 7), torch.randn(1, 4 * 25, 7, 7), 5).shape
    torch.Size([1, 4, 7, 7])
    """
    check_input(input)
    B, C, H, W = input.shape
    k = kernel_side(kernel_size)
    if tuple(kernel.shape) != (B, C * k * k, H, W):
        raise ValueError(
            f"kernel needs (B, C·k², H, W) = {(B, C * k * k, H, W)}; got {tuple(kernel.shape)}. Is kernel_size={k} the "
            "one that it was predicted for?"
        )
    padded = F.pad(input, (k // 2,) * 4, mode="replicate")
    return per_pixel_conv2d(padded, kernel.unflatten(1, (C, k, k)), groups=C)


class KernelConv2D(nn.Module):
    """`fac` as a module without parameters, which is how STFAN's code calls it.

    kernel_size: k, odd

    >>> import torch
    >>> KernelConv2D(5)(torch.randn(1, 4, 7, 7), torch.randn(1, 4 * 25, 7, 7)).shape
    torch.Size([1, 4, 7, 7])
    """

    def __init__(self, kernel_size: int) -> None:
        super().__init__()
        self.kernel_size = kernel_side(kernel_size)

    def forward(self, input: Tensor, kernel: Tensor) -> Tensor:
        return fac(input, kernel, self.kernel_size)

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}"
