"""Involution: a filter per pixel, shared by the channels of a group (Li et al., CVPR 2021)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.backends.calling import like_input
from acda.functional import per_pixel_conv2d
from acda.layers.conv_like import ConvLike
from acda.window import Pair


class Involution2d(ConvLike):
    """The kernel of a pixel is W₁·relu(norm(W₀·x)) of that pixel alone; it filters, and mixes no channels.

    Arguments as nn.Conv2d's, but in_channels = out_channels, and groups counts the kernels of a pixel: by default one
    for every 16 channels, as in the paper, or the next fewer that share them evenly. Under a stride the pixel is the
    one at the centre of the window.

    reduction: how many times fewer channels than the input W₀·x has

    >>> Involution2d(32, 32, 7, padding=3)(torch.randn(1, 32, 9, 8)).shape
    torch.Size([1, 32, 9, 8])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int | None = None,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        reduction: int = 4,
    ) -> None:
        if in_channels != out_channels:
            raise ValueError(
                f"involution keeps the channels: in and out need to be equal; got {in_channels}, {out_channels}."
            )
        if groups is None:
            groups = next(n for n in range(max(1, in_channels // 16), 0, -1) if in_channels % n == 0)
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        hidden = max(1, in_channels // reduction)
        self.squeeze = nn.Conv2d(in_channels, hidden, 1, bias=False, device=device, dtype=dtype)
        self.norm = nn.BatchNorm2d(hidden, device=device, dtype=dtype)
        self.span = nn.Conv2d(hidden, groups * self.window.side**2, 1, device=device, dtype=dtype)
        self.register_parameter(
            "bias", nn.Parameter(torch.zeros(out_channels, device=device, dtype=dtype)) if bias else None
        )

    def reset_parameters(self) -> None:
        """Start afresh."""
        for part in (self.squeeze, self.norm, self.span):
            part.reset_parameters()
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.span.weight)
        filters = self.filters(x).to(x.dtype)
        padded, window = self.extended(x)
        y = per_pixel_conv2d(padded, filters, *window[1:], groups=self.groups)
        return like_input(self.biased(y), x)

    def filters(self, x: Tensor) -> Tensor:
        """The kernels of every output pixel: (B, groups, k, k, P, Q)."""
        self.window.output_size(x.shape[2], x.shape[3])
        padded, window = self.extended(x)
        # Negative margins crop: what is left begins at the centre of the first window and ends at that of the last.
        (my, mx) = (p - r for p, r in zip(window.padding, window.reach, strict=True))
        centres = F.pad(padded, (mx, mx, my, my))[:, :, :: self.stride[0], :: self.stride[1]]
        k = self.window.side
        return self.span(self.norm(self.squeeze(centres)).relu()).unflatten(1, (self.groups, k, k))
