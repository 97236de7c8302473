"""KPN: predict one k×k filter per pixel and apply it to the image (Mildenhall et al., CVPR 2018), and its version on a
Laplacian pyramid, LP-KPN (Cai et al., ICCV 2019)."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.functional import per_pixel_conv2d
from acda.window import Pair, kernel_side


class KernelPrediction2d(nn.Module):
    """Two 3×3 convolutions turn features into one filter per pixel, shared by the image's channels.

    At the start each filter is near the identity.
    features: (B, in_channels, H, W)    image: (B, C, H, W)    returns: (B, C, H, W)
    kernel_size: of the filters    hidden: channels between the two convolutions

    >>> KernelPrediction2d(16, 5)(torch.randn(1, 16, 9, 8), torch.randn(1, 3, 9, 8)).shape
    torch.Size([1, 3, 9, 8])
    """

    def __init__(
        self,
        in_channels: int,
        kernel_size: Pair,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        self.side = kernel_side(kernel_size)
        self.predict = nn.Sequential(
            nn.Conv2d(in_channels, hidden, 3, padding=1, device=device, dtype=dtype),
            nn.ReLU(inplace=True),
            nn.Conv2d(hidden, self.side**2, 3, padding=1, device=device, dtype=dtype),
        )
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        first, _, last = self.predict
        assert isinstance(first, nn.Conv2d)
        assert isinstance(last, nn.Conv2d)
        assert last.bias is not None
        first.reset_parameters()
        last.reset_parameters()
        last.weight.mul_(0.1)
        last.bias.zero_()
        last.bias[self.side**2 // 2] = 1

    def forward(self, features: Tensor, image: Tensor) -> Tensor:
        if features.shape[2:] != image.shape[2:] or len(features) != len(image):
            raise ValueError(
                f"the image needs the features' batch and size, {len(features)} × {tuple(features.shape[2:])}; "
                f"got {len(image)} × {tuple(image.shape[2:])}."
            )
        filters = self.predict(features).unflatten(1, (1, self.side, self.side))
        return per_pixel_conv2d(image, filters.to(image.dtype), padding=self.side // 2)


class LaplacianKernelPrediction2d(nn.Module):
    """The image as a Laplacian pyramid, each level filtered with predicted kernels of its own, put together again.

    A small kernel then reaches as far as one 2^(levels-1) times as wide. The features are halved as the image is.
    Departs from the paper: one hidden layer per level where the authors' network has two, and no loss for each level.

    in_channels, kernel_size, hidden: as in KernelPrediction2d
    levels: of the pyramid

    >>> LaplacianKernelPrediction2d(16, 5)(torch.randn(1, 16, 9, 8), torch.randn(1, 3, 9, 8)).shape
    torch.Size([1, 3, 9, 8])
    """

    def __init__(
        self,
        in_channels: int,
        kernel_size: Pair,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        levels: int = 3,
        hidden: int = 64,
    ) -> None:
        super().__init__()
        if levels < 1:
            raise ValueError(f"levels needs to be at least 1; got {levels}.")
        self.levels = nn.ModuleList(
            KernelPrediction2d(in_channels, kernel_size, device, dtype, hidden=hidden) for _ in range(levels)
        )

    def forward(self, features: Tensor, image: Tensor) -> Tensor:
        filtered: list[Tensor] = []
        for predict, level in zip(self.levels, laplacian_pyramid(image, len(self.levels)), strict=True):
            features = _halve(features) if filtered else features
            filtered.append(predict(features, level))
        return collapse(filtered)


def laplacian_pyramid(image: Tensor, levels: int) -> list[Tensor]:
    """What each halving of the resolution loses, finest first, and the coarsest image last. `collapse` undoes it.

    >>> [tuple(level.shape[2:]) for level in laplacian_pyramid(torch.randn(1, 3, 9, 8), 3)]
    [(9, 8), (5, 4), (3, 2)]
    """
    pyramid = []
    for _ in range(levels - 1):
        coarse = _halve(image)
        pyramid.append(image - _enlarge(coarse, image))
        image = coarse
    return [*pyramid, image]


def collapse(pyramid: list[Tensor]) -> Tensor:
    """The image whose Laplacian pyramid this is."""
    *details, image = pyramid
    for detail in reversed(details):
        image = detail + _enlarge(image, detail)
    return image


def _halve(image: Tensor) -> Tensor:
    """Blur with the binomial filter 1 4 6 4 1 in both directions, keep every second pixel."""
    taps = image.new_tensor([1, 4, 6, 4, 1]) / 16
    blur = torch.outer(taps, taps).expand(image.shape[1], 1, 5, 5)
    return F.conv2d(F.pad(image, (2, 2, 2, 2), mode="replicate"), blur, stride=2, groups=image.shape[1])


def _enlarge(image: Tensor, like: Tensor) -> Tensor:
    """Twice the size, that of `like`: the pixels back where `_halve` took them, the same filter between them."""
    taps = image.new_tensor([1, 4, 6, 4, 1]) / 8
    blur = torch.outer(taps, taps).expand(image.shape[1], 1, 5, 5)
    large = F.conv_transpose2d(F.pad(image, (1, 1, 1, 1), mode="replicate"), blur, stride=2, groups=image.shape[1])
    return large[:, :, 4 : 4 + like.shape[2], 4 : 4 + like.shape[3]]
