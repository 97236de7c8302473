"""Denoisers that predict variances: VDNet's pair of networks (Yue et al., 2019), around any denoiser."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.layers import AdaptiveConv2d
from acda.models.restorer import Trunk
from acda.models.whole_strides import in_whole_strides

# The variance of the clean photo's prior, 1e-6, is also the best one of a posterior, whatever its mean.
BEST_LOG_VARIANCE = math.log(1e-6)


class Posterior(NamedTuple):
    """The posterior of each pixel and channel: clean ~ N(mean, e^log_variance), noise variance ~ inverse-gamma."""

    mean: Tensor
    log_variance: Tensor
    log_alpha: Tensor
    log_beta: Tensor

    def noise(self) -> Tensor:
        """The standard deviation of the noise at the variance's most likely value, β / (α + 1)."""
        return (0.5 * (self.log_beta - torch.log1p(self.log_alpha.exp()))).exp()


class VariationalDenoiser(nn.Module):
    """One network for the clean photo's mean and variance, and a small one for the noise's.

    denoiser: x → (B, 2·channels, H, W) for sizes that are multiples of the stride
    width: channels of the small network
    x: (B, channels, H, W), about 0 to 1    returns: the mean, the same shape; `posterior` returns all

    >>> VariationalDenoiser(Trunk(3, 6), stride=4)(torch.rand(1, 3, 21, 34)).shape
    torch.Size([1, 3, 21, 34])
    """

    cell = 1

    def __init__(self, denoiser: nn.Module, stride: int, channels: int = 3, width: int = 64) -> None:
        super().__init__()
        self.denoiser, self.stride = denoiser, stride
        layers: list[nn.Module] = []
        for before, after in ((channels, width), (width, width), (width, width), (width, width)):
            conv = nn.Conv2d(before, after, 3, padding=1)
            nn.init.kaiming_normal_(conv.weight, a=0.2, nonlinearity="leaky_relu")
            layers += [conv, nn.LeakyReLU(0.2, inplace=True)]
        last = nn.Conv2d(width, 2 * channels, 3, padding=1)
        # Begin near the prior of the noise's variance, whose shape is 23.5, for a noise of some hundredths.
        _begin_with(last, math.log(23.5), -4.0)
        self.noise = nn.Sequential(*layers, last)

    def forward(self, x: Tensor) -> Tensor:
        return x + in_whole_strides(self.denoiser, x, self.stride).chunk(2, 1)[0]

    def posterior(self, x: Tensor) -> Posterior:
        """All four maps, each of x's shape; the logarithms within bounds, so that no exponential overflows."""
        residual, log_variance = in_whole_strides(self.denoiser, x, self.stride).chunk(2, 1)
        log_alpha, log_beta = self.noise(x).clamp(-16, 10).chunk(2, 1)
        return Posterior(x + residual, log_variance.clamp(-23, 0), log_alpha, log_beta)


class UNet(nn.Module):
    """VDNet's own denoiser: four levels of two 3×3 convolutions, halved by averaging, doubled by transposed ones.

    x: (B, in_channels, H, W), both multiples of 8    returns: (B, out_channels, H, W)
    """

    def __init__(self, in_channels: int, out_channels: int, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()
        befores = (in_channels, *widths[:-1])
        self.down = nn.ModuleList(_two(before, after) for before, after in zip(befores, widths, strict=True))
        lower = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.enlarge = nn.ModuleList(nn.ConvTranspose2d(before, after, 2, stride=2) for before, after in lower)
        self.up = nn.ModuleList(_two(2 * after, after) for _, after in lower)
        self.last = nn.Conv2d(widths[0], out_channels, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        maps = []
        for i, level in enumerate(self.down):
            x = level(F.avg_pool2d(x, 2) if i else x)
            maps.append(x)
        maps.pop()
        for enlarge, level in zip(self.enlarge, self.up, strict=True):
            x = level(torch.cat([enlarge(x), maps.pop()], 1))
        y: Tensor = self.last(x)
        return y


def _two(before: int, after: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(after, after, 3, padding=1),
        nn.LeakyReLU(0.2, inplace=True),
    )


def variational(
    conv: Callable[..., nn.Module] = AdaptiveConv2d, kernel_size: int = 7, **layer: Any
) -> VariationalDenoiser:
    """The restorer's trunk with a mean and a variance at its end; layer: further arguments, as in Restorer."""
    trunk = Trunk(3, 6, partial(conv, **layer), kernel_size, blind_to_smooth=True)
    model = VariationalDenoiser(trunk, stride=4)
    assert isinstance(model.denoiser, Trunk)
    _begin_with(model.denoiser.up[-2], 0.0, BEST_LOG_VARIANCE)
    return model


def vdnet() -> VariationalDenoiser:
    """VDNet as published: a U-Net denoises."""
    unet = UNet(3, 6)
    _begin_with(unet.last, 0.0, BEST_LOG_VARIANCE)
    return VariationalDenoiser(unet, stride=8)


def _begin_with(last: nn.Module, first: float, second: float) -> None:
    """A layer whose first and second half of channels are nearly these numbers, before a pixel-shuffle too."""
    assert isinstance(last, nn.Conv2d)
    assert last.bias is not None
    nn.init.normal_(last.weight, std=1e-3)
    with torch.no_grad():
        last.bias[: last.out_channels // 2] = first
        last.bias[last.out_channels // 2 :] = second


VARIATIONAL: dict[str, Callable[..., nn.Module]] = {"restorer_variational": variational, "vdnet": vdnet}
