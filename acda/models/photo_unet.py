"""A restorer for people's photos: adaptive layers at half and at a quarter of the resolution, joined as a U-Net."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from acda.layers import AdaptiveConv2d
from acda.models.noise_hints import NoiseHints
from acda.models.whole_strides import in_whole_strides


class PhotoUNet(nn.Module):
    """Predict what is wrong with a photo and subtract it. Any size.

    Unlike `Restorer`, the network of the paper, it keeps a path at half the resolution, whose pixels hold all of the
    photo, and has no batch normalisation outside Φ.

    width: channels at half the resolution; twice as many at a quarter
    outer, inner: residual blocks before and after the quarter, each; blocks there
    conv, kernel_size: the first layer of each block
    hints: also give it measurements of the photo's noise, see NoiseHints
    layer: further arguments of that layer, such as hidden=32
    x: (B, 3, H, W), about 0 to 1    returns: the same shape

    >>> import torch
    >>> PhotoUNet()(torch.rand(1, 3, 21, 34)).shape
    torch.Size([1, 3, 21, 34])
    """

    # Pixels per output pixel.
    cell = 1

    def __init__(
        self,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
        kernel_size: int = 7,
        *,
        width: int = 48,
        outer: int = 2,
        inner: int = 4,
        hints: bool = False,
        **layer: Any,
    ) -> None:
        super().__init__()
        # The period of the network: shifted by so many pixels, it does the same.
        self.stride = NoiseHints.stride if hints else 4
        self.hints = NoiseHints(width) if hints else None
        block = partial(ResidualBlock, conv=partial(conv, **layer), kernel_size=kernel_size)
        self.head = nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(12, width, 3, padding=1))
        self.before = nn.Sequential(*(block(width) for _ in range(outer)))
        self.down = nn.Conv2d(width, 2 * width, 2, stride=2)
        self.middle = nn.Sequential(*(block(2 * width) for _ in range(inner)))
        self.up = nn.Sequential(nn.Conv2d(2 * width, 4 * width, 1), nn.PixelShuffle(2))
        self.after = nn.Sequential(*(block(width) for _ in range(outer)))
        self.tail = nn.Sequential(nn.Conv2d(width, 12, 3, padding=1), nn.PixelShuffle(2))
        last = self.tail[0]
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        nn.init.normal_(last.weight, std=1e-3)  # start with nearly the photo itself
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x - in_whole_strides(self._residual, x, self.stride)

    def _residual(self, x: Tensor) -> Tensor:
        shallow = self.head(x - 0.5)
        fine = self.before(shallow if self.hints is None else shallow + self.hints(x))
        coarse = self.middle(self.down(fine))
        residual: Tensor = self.tail(self.after(fine + self.up(coarse)))
        return residual


class ResidualBlock(nn.Module):
    """A layer of any kind, ReLU, and a 3×3 convolution, beside a shortcut; starts as the shortcut."""

    def __init__(self, width: int, conv: Callable[..., nn.Module], kernel_size: int) -> None:
        super().__init__()
        self.first = conv(width, width, kernel_size, padding=kernel_size // 2)
        self.act = nn.ReLU(inplace=True)
        self.second = nn.Conv2d(width, width, 3, padding=1)
        nn.init.normal_(self.second.weight, std=1e-2 / width**0.5)
        assert self.second.bias is not None
        nn.init.zeros_(self.second.bias)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.second(self.act(self.first(x)))
        return y


PHOTO_UNETS: dict[str, Callable[..., nn.Module]] = {
    "photo_unet": partial(PhotoUNet, hidden=32),
    "photo_denoiser": partial(PhotoUNet, hidden=32, hints=True),
    # Ordinary convolutions of about the same cost.
    "photo_unet_conv": partial(PhotoUNet, nn.Conv2d, 5),
    "photo_denoiser_conv": partial(PhotoUNet, nn.Conv2d, 5, hints=True),
}
