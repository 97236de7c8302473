"""A crowd counter for people's photos: EfficientNet-lite0, and adaptive layers that decode its maps."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from acda.layers import AdaptiveConv2d, CondConv2d
from acda.models.blocks import DynamicBottleneck
from acda.models.efficientnet_lite import EfficientNetLite
from acda.models.whole_strides import cropped, with_zeros


class LiteCounter(nn.Module):
    """Photos to density maps at an eighth of their resolution: the sum over a map is the number of heads.

    conv, kernel_size: the layer in the middle of the decoder's blocks
    width: channels of the decoder
    layer: further arguments of that layer, such as adapt="image"
    x: (B, 3, H, W), any size, scaled to ±1    returns: (B, 1, H/8, W/8), rounded up, at least 0

    >>> import torch
    >>> LiteCounter()(torch.zeros(1, 3, 100, 131)).shape
    torch.Size([1, 1, 13, 17])
    """

    # Pixels per cell of the map, and the period of the network: shifted by so many pixels, it does the same.
    cell = 8
    stride = 32
    # The last layer learns densities in this unit, about the mean of crowds, so that its outputs are near 1.
    unit = 0.04

    def __init__(
        self,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
        kernel_size: int = 7,
        *,
        width: int = 128,
        **layer: Any,
    ) -> None:
        super().__init__()
        self.backbone = EfficientNetLite()
        self.decoder = DensityDecoder(
            self.backbone.widths,
            width,
            partial(DynamicBottleneck, kernel_size=kernel_size, conv=partial(conv, **layer)),
        )

    def forward(self, x: Tensor) -> Tensor:
        H, W = x.shape[2:]
        density = self.unit * self.decoder(self.backbone(with_zeros(x, self.stride)))
        return cropped(density, -(-H // self.cell), -(-W // self.cell))

    def load_classifier(self, state: dict[str, Tensor]) -> None:
        """Load the features of the published classifier. state: as in EfficientNetLite.load_published"""
        self.backbone.load_published(state)


class DensityDecoder(nn.Module):
    """From the coarsest map to the finest: add the map at that stride, apply blocks, double the resolution.

    widths: channels of the maps, the finest first    width: channels of the decoder
    block: makes a block from its input, inner and output channels
    maps: (B, C, P, Q), (B, C', P/2, Q/2), …    returns: (B, 1, P, Q), at least 0
    """

    def __init__(self, widths: tuple[int, ...], width: int, block: Callable[[int, int, int], nn.Module]) -> None:
        super().__init__()
        # The maps are not normalised, and their ranges differ.
        self.lateral = nn.ModuleList(
            nn.Sequential(nn.Conv2d(each, width, 1, bias=False), nn.BatchNorm2d(width)) for each in widths
        )
        # Two blocks at the finest map, where heads are seen.
        depths = (2, *(1 for _ in widths[1:]))
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.ReLU(), *(block(width, width // 2, width) for _ in range(depth))) for depth in depths
        )
        self.density = nn.Conv2d(width, 1, 1)
        nn.init.normal_(self.density.weight, std=0.01)
        assert self.density.bias is not None
        nn.init.constant_(self.density.bias, 0.5)

    def forward(self, maps: tuple[Tensor, ...]) -> Tensor:
        y: Tensor | None = None
        for x, lateral, blocks in zip(reversed(maps), reversed(self.lateral), reversed(self.blocks), strict=True):
            joined = lateral(x)
            if y is not None:
                joined = joined + F.interpolate(y, scale_factor=2.0, mode="nearest")
            y = blocks(joined)
        assert y is not None
        density: Tensor = F.softplus(self.density(y))
        return density


# The same decoder with 3×3 convolutions, and with a filter per image.
LITE_COUNTERS: dict[str, Callable[..., LiteCounter]] = {
    "lite_counter": LiteCounter,
    "lite_counter_conv": partial(LiteCounter, nn.Conv2d, 3),
    "lite_counter_condconv": partial(LiteCounter, CondConv2d, 3),
}
