"""Batches of photo pairs: for training random crops, turned and mirrored; for testing whole photos.

Pairs are read from files, or made from clean photos that are degraded as they are read.
"""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import Dataset, get_worker_info

from acda.photos.image_files import image_size, read_rgb
from acda.training.data.batches import TestBatches, TrainBatches, generator_for
from acda.training.data.degradations import MARGIN, Degradation
from acda.training.data.loading import DecodingLoader, checksum, names_and_sizes
from acda.training.data.pairs import PhotoPair

# Bytes of decoded photos that are kept from one epoch to the next. Larger sets are decoded each time, and so are all
# sets that workers read, because workers live for an epoch.
MOST_KEPT = 2_000_000_000
# From 0–255 to 0–1.
UNIT = torch.tensor([[0.0] * 3, [255.0] * 3])


Pixels = np.ndarray[Any, np.dtype[np.uint8]]


class Photos:
    """Pixels of pairs, (2, H, W, 3) of uint8, degraded first; kept in memory unless there are too many."""

    def __init__(self, pairs: list[PhotoPair]) -> None:
        self.pairs = pairs
        self._kept: dict[int, Pixels] = {}

    def __len__(self) -> int:
        return len(self.pairs)

    @cached_property
    def fit_in_memory(self) -> bool:
        return 6 * sum(width * height for width, height in (image_size(p.clean) for p in self.pairs)) <= MOST_KEPT

    def __getitem__(self, index: int) -> Pixels:
        if index in self._kept:
            return self._kept[index]
        pair = self.pairs[index]
        pixels = np.stack([read_rgb(pair.degraded), read_rgb(pair.clean)])
        if get_worker_info() is None and self.fit_in_memory:
            self._kept[index] = pixels
        return pixels


class PairLoader(DecodingLoader):
    """Degraded and clean, both (n, 3, H, W) from 0 to 1: crops of side×side, or one whole photo.

    The batches of an epoch may be of more crops than there are photos: crop i is of photo i modulo their number.
    degradation: where it is given, the photos are clean, and degraded as they are read.
    """

    def __init__(
        self,
        photos: Photos | Pixels,
        batches: TrainBatches | TestBatches,
        side: int,
        degradation: Degradation | None = None,
        workers: int = 0,
    ) -> None:
        super().__init__(batches, UNIT, workers)
        self.photos, self.side, self.degradation = photos, side, degradation

    def images(self, seed: tuple[int, int] | None) -> Dataset[Any]:
        if self.degradation is None:
            return _Pairs(self.photos, self.side, seed)
        return _Degraded(self.photos, self.side, self.degradation, seed)

    @cached_property
    def fingerprint(self) -> int:
        if not isinstance(self.photos, Photos):
            return checksum(self.photos.shape)
        return checksum(names_and_sizes(path for pair in self.photos.pairs for path in (pair.degraded, pair.clean)))


class _Pairs(Dataset[Any]):
    def __init__(self, photos: Photos | Pixels, side: int, seed: tuple[int, int] | None) -> None:
        self.photos, self.side, self.seed = photos, side, seed

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pixels = self.photos[index % len(self.photos)]
        if self.seed is not None:
            pixels = augmented(pixels, self.side, generator_for(*self.seed, index))
        degraded, clean = torch.from_numpy(np.ascontiguousarray(pixels.transpose(0, 3, 1, 2))).float()
        return degraded, clean / 255


class _Degraded(Dataset[Any]):
    def __init__(
        self, photos: Photos | Pixels, side: int, degradation: Degradation, seed: tuple[int, int] | None
    ) -> None:
        self.photos, self.side, self.degradation, self.seed = photos, side, degradation, seed

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        pixels = self.photos[index % len(self.photos)][1]
        if self.seed is None:
            clean = torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))).float() / 255
            return self.degradation.held_out(clean, index) * 255, clean
        generator = generator_for(*self.seed, index)
        clean = resized_crop(pixels, self.side + MARGIN, self.degradation.sizes, generator, self.degradation.aliased)
        degraded = self.degradation.random(clean, generator)
        top, left = (int(torch.randint(MARGIN + 1, (), generator=generator)) for _ in range(2))
        rows, columns = slice(top, top + self.side), slice(left, left + self.side)
        return degraded[:, rows, columns] * 255, clean[:, rows, columns]


def resized_crop(
    pixels: Pixels, side: int, sizes: tuple[float, float], generator: torch.Generator, aliased: float = 0.0
) -> Tensor:
    """A random square of a photo, mirrored or not, and turned by a random number of quarters: (3, side, side), 0 to 1.

    Half of the crops are resized by a factor within `sizes`: detail in users' photos may be finer or softer.
    """
    height, width = pixels.shape[:2]
    resized, place = int(torch.randint(2, (), generator=generator)), float(torch.rand((), generator=generator))
    factor = sizes[0] + (sizes[1] - sizes[0]) * place if resized else 1.0
    seen = min(round(side / factor), height, width)
    crop = augmented(pixels[None], seen, generator)[0]
    if seen != side:
        picks = seen > side and float(torch.rand((), generator=generator)) < aliased
        method = Image.Resampling.NEAREST if picks else Image.Resampling.BICUBIC
        crop = np.asarray(Image.fromarray(np.ascontiguousarray(crop)).resize((side, side), method))
    return torch.from_numpy(np.ascontiguousarray(crop.transpose(2, 0, 1))).float() / 255


def augmented(pixels: Pixels, side: int, generator: torch.Generator) -> Pixels:
    """A random square of both photos, mirrored or not, and turned by a random number of quarters."""
    height, width = pixels.shape[1:3]
    top, left = (int(torch.randint(length - side + 1, (), generator=generator)) for length in (height, width))
    mirrored, quarters = (int(torch.randint(most, (), generator=generator)) for most in (2, 4))
    crop = pixels[:, top : top + side, left : left + side]
    return np.rot90(crop[:, :, ::-1] if mirrored else crop, quarters, axes=(1, 2))
