"""Networks that restore photos: dynamic bottlenecks at a quarter of the resolution (Section 4.3), and baselines."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.layers import AdaptiveConv2d, KernelPrediction2d, LaplacianKernelPrediction2d
from acda.models.blocks import DynamicBottleneck
from acda.models.whole_strides import in_whole_strides


class Trunk(nn.Module):
    """Down to a quarter of the resolution by pixel-unshuffle and convolutions, eight dynamic bottlenecks, and up again.

    conv, kernel_size: what is in the middle of the blocks. out_channels: of the result, at full resolution.
    blind_to_smooth: initialise the first filters so that they respond to detail and noise only, as our denoisers do.
    x: (B, in_channels, H, W), about 0 to 1; H and W multiples of 4    returns: (B, out_channels, H, W)
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
        kernel_size: int = 7,
        *,
        width: int = 256,
        inner: int = 48,
        depth: int = 8,
        blind_to_smooth: bool = False,
    ) -> None:
        super().__init__()
        self.down = nn.Sequential(
            nn.PixelUnshuffle(2),
            nn.Conv2d(4 * in_channels, width // 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.PixelUnshuffle(2),
            nn.Conv2d(width, width, 3, padding=1),
            nn.ReLU(inplace=True),
        )
        blocks = [DynamicBottleneck(width, inner, width, kernel_size, conv=conv) for _ in range(depth)]
        for block in blocks:
            nn.init.zeros_(block.bn3.weight)  # each starts as its shortcut
        self.blocks = nn.Sequential(*blocks)
        self.up = nn.Sequential(
            nn.Conv2d(width, width, 3, padding=1),
            nn.PixelShuffle(2),
            nn.ReLU(inplace=True),
            nn.Conv2d(width // 4, 4 * out_channels, 3, padding=1),
            nn.PixelShuffle(2),
        )
        # No normalisation follows these: with torch's default initialisation the signal fades from layer to layer, and
        # with input whose mean is not zero the first steps fit that mean and leave most of the ReLUs dead.
        for part in (*self.down, self.up[0]):
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
                assert part.bias is not None
                nn.init.zeros_(part.bias)
        if blind_to_smooth:
            first = self.down[1]
            assert isinstance(first, nn.Conv2d)
            _blind_to_smooth(first)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.up(self.blocks(self.down(x - 0.5)))
        return y


def _blind_to_smooth(conv: nn.Conv2d) -> None:
    """Remove from the filters of a convolution after PixelUnshuffle(2) the response to a constant or a slope of colour.

    Their responses to photos are then several times smaller; the filters are made six times larger to compensate.
    """
    colours, side = conv.in_channels // 4, 2 * conv.kernel_size[0]
    along = torch.linspace(-1, 1, side)
    planes = torch.stack([torch.ones(side, side), along.expand(side, side), along[:, None].expand(side, side)])
    smooth = torch.einsum("cd,pyx->cpdyx", torch.eye(colours), planes).flatten(0, 1)
    directions = torch.linalg.qr(F.pixel_unshuffle(smooth, 2).flatten(1).T).Q
    with torch.no_grad():
        filters = conv.weight.flatten(1)
        conv.weight.copy_(6 * (filters - filters @ directions @ directions.T).view_as(conv.weight))


class Restorer(nn.Module):
    """Predict what is missing from a photo and add it. Any size.

    channels: of the photo
    conv, kernel_size: the layers in the middle of the blocks
    blind_to_smooth: how the trunk is initialised; True for denoising
    layer: further arguments of the layers in the middle of the blocks, such as num_atoms=9
    x: (B, channels, H, W), about 0 to 1    returns: the same shape

    >>> import torch
    >>> Restorer()(torch.rand(1, 3, 21, 34)).shape
    torch.Size([1, 3, 21, 34])
    """

    # Pixels per output pixel, and the period of the network: shifted by so many pixels, it does the same.
    cell = 1
    stride = 4

    def __init__(
        self,
        channels: int = 3,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
        kernel_size: int = 7,
        *,
        blind_to_smooth: bool = False,
        **layer: Any,
    ) -> None:
        super().__init__()
        self.trunk = Trunk(channels, channels, partial(conv, **layer), kernel_size, blind_to_smooth=blind_to_smooth)
        last = self.trunk.up[-2]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        nn.init.normal_(last.weight, std=1e-3)  # start with nearly the photo itself
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + in_whole_strides(self.trunk, x, self.stride)


class KernelPredictor(nn.Module):
    """Predict one filter for each pixel of the photo, with the same trunk: KPN, or LP-KPN on a pyramid.

    >>> import torch
    >>> KernelPredictor(KernelPrediction2d)(torch.rand(1, 3, 21, 34)).shape
    torch.Size([1, 3, 21, 34])
    """

    cell = 1
    stride = 4

    def __init__(self, predict: Callable[..., nn.Module], kernel_size: int = 5, features: int = 16) -> None:
        super().__init__()
        self.trunk = Trunk(3, features, nn.Conv2d)
        self.predict = predict(features, kernel_size)

    def forward(self, x: Tensor) -> Tensor:
        return in_whole_strides(lambda photo: self.predict(self.trunk(photo), photo), x, self.stride)


class DnCNN(nn.Module):
    """A plain stack of 3×3 convolutions with batch normalisation that predicts the noise (Zhang et al., 2017).

    >>> import torch
    >>> DnCNN(depth=4)(torch.rand(1, 3, 21, 34)).shape
    torch.Size([1, 3, 21, 34])
    """

    cell = stride = 1

    def __init__(self, channels: int = 3, width: int = 64, depth: int = 17) -> None:
        super().__init__()
        middle: list[nn.Module] = []
        for _ in range(depth - 2):
            middle += [nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True)]
        last = nn.Conv2d(width, channels, 3, padding=1)
        self.layers = nn.Sequential(nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(inplace=True), *middle, last)
        for part in self.layers:
            if isinstance(part, nn.Conv2d):
                nn.init.kaiming_normal_(part.weight, nonlinearity="relu")
        assert last.bias is not None
        nn.init.normal_(last.weight, std=1e-3)
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x - self.layers(x)
        return y


RESTORERS: dict[str, Callable[..., nn.Module]] = {
    "restorer": Restorer,
    "restorer_conv": partial(Restorer, conv=nn.Conv2d),
    "restorer_conv_small": partial(Restorer, conv=nn.Conv2d, kernel_size=3),
    "kpn": partial(KernelPredictor, KernelPrediction2d),
    "lp_kpn": partial(KernelPredictor, LaplacianKernelPrediction2d),
    "dncnn": DnCNN,
}
