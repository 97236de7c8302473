"""PAC: a shared filter, modulated at every pixel by how alike its neighbours are (Su et al., CVPR 2019)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.backends.calling import like_input
from acda.layers.conv_like import ConvLike
from acda.window import Pair


class PixelAdaptiveConv2d(ConvLike):
    """y(p) = Σ_t exp(-½‖f(p) - f(t)‖²)·W[t]·x(t) + b, where f is a guide of the input's size, or the input itself.

    The guide is divided by a learned `bandwidth` first, √C at the beginning: in many channels all differences are
    large, and the equation as printed would use the centre pixel only.

    guide_channels: channels of the guide; without it the input is its own guide

    >>> layer = PixelAdaptiveConv2d(8, 16, 3, padding=1, guide_channels=3)
    >>> layer(torch.randn(2, 8, 10, 10), guide=torch.randn(2, 3, 10, 10)).shape
    torch.Size([2, 16, 10, 10])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        guide_channels: int | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.guide_channels = guide_channels if guide_channels is not None else in_channels
        shape = (out_channels, in_channels // groups, *self.kernel_size)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.bandwidth = nn.Parameter(torch.empty((), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As nn.Conv2d's; the bandwidth afresh."""
        bound = 1 / math.sqrt(self.weight[0].numel())
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)
        nn.init.constant_(self.bandwidth, math.sqrt(self.guide_channels))

    def forward(self, x: Tensor, guide: Tensor | None = None) -> Tensor:
        self.check(x, self.weight)
        guide = x if guide is None else guide
        if guide.shape[0] != x.shape[0] or guide.shape[2:] != x.shape[2:] or guide.shape[1] != self.guide_channels:
            raise ValueError(
                f"the guide needs {(x.shape[0], self.guide_channels, *x.shape[2:])}, the input's batch and size and "
                f"guide_channels={self.guide_channels}; got {tuple(guide.shape)}."
            )
        P, Q = self.window.output_size(x.shape[2], x.shape[3])
        taps = [self.window.tap(i, j, P, Q) for i in range(self.window.side) for j in range(self.window.side)]
        padded, guide = self.padded(x), self.padded(guide / self.bandwidth)
        here = guide[:, :, *taps[len(taps) // 2]]
        total: Tensor | None = None
        for tap, weight in zip(taps, self.weight.flatten(2).unbind(2), strict=True):
            alike = torch.exp(-0.5 * (here - guide[:, :, *tap]).square().sum(1, keepdim=True))
            part = F.conv2d(padded[:, :, *tap] * alike, weight[:, :, None, None], groups=self.groups)
            total = part if total is None else total + part
        assert total is not None
        return like_input(self.biased(total), x)
