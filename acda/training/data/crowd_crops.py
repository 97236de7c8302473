"""Batches of photos of crowds: for training crops with density maps, for testing whole photos with their counts."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from acda.photos.image_files import read_rgb
from acda.training.data.batches import TestBatches, TrainBatches, generator_for
from acda.training.data.crowds import Crowd, Points, density_map
from acda.training.data.loading import DecodingLoader, checksum, names_and_sizes


class CrowdLoader(DecodingLoader):
    """Crops of side×side with densities (n, 1, side/cell, side/cell), or one whole photo with its count (1,)."""

    def __init__(
        self,
        crowds: list[Crowd],
        batches: TrainBatches | TestBatches,
        statistics: Tensor,
        side: int,
        sigma: float,
        cell: int,
        workers: int = 0,
    ) -> None:
        super().__init__(batches, statistics, workers)
        self.crowds, self.side, self.sigma, self.cell = crowds, side, sigma, cell

    def images(self, seed: tuple[int, int] | None) -> Dataset[Any]:
        return _WholePhotos(self.crowds) if seed is None else _Crops(self, seed)

    @cached_property
    def fingerprint(self) -> int:
        return checksum(names_and_sizes(crowd.file for crowd in self.crowds))


class _WholePhotos(Dataset[Any]):
    def __init__(self, crowds: list[Crowd]) -> None:
        self.crowds = crowds

    def __len__(self) -> int:
        return len(self.crowds)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        crowd = self.crowds[index]
        return torch.from_numpy(read_rgb(crowd.file).transpose(2, 0, 1).copy()), len(crowd.points)


class _Crops(Dataset[Any]):
    def __init__(self, loader: CrowdLoader, seed: tuple[int, int]) -> None:
        self.loader, self.seed = loader, seed

    def __len__(self) -> int:
        return len(self.loader.crowds)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        crowd, side = self.loader.crowds[index], self.loader.side
        generator = generator_for(*self.seed, index)
        top, left = (_place(length, side, generator) for length in crowd.size)
        mirrored = bool(torch.rand((), generator=generator) < 0.5)
        image, points = cropped(read_rgb(crowd.file), crowd.points, top, left, side, mirrored, self.loader.mean)
        cells = side // self.loader.cell
        density = density_map(points, (cells, cells), self.loader.sigma / self.loader.cell, self.loader.cell)
        return image, density.float()[None]


def _place(length: int, side: int, generator: torch.Generator) -> int:
    """Where a crop begins: anywhere in the photo, or where that is too small, anywhere around it (negative)."""
    low, high = min(0, length - side), max(0, length - side)
    return low + int(torch.randint(high - low + 1, (), generator=generator))


def cropped(
    pixels: np.ndarray[Any, np.dtype[np.uint8]],
    points: Points,
    top: int,
    left: int,
    side: int,
    mirrored: bool,
    mean: Tensor,
) -> tuple[Tensor, Points]:
    """A square of the photo and the points in it. Beyond the photo is the mean, which the network sees as zero.

    pixels: (H, W, 3)    mean: (3, 1, 1)    returns: (3, side, side), and (n, 2)
    """
    height, width = pixels.shape[:2]
    image = mean.repeat(1, side, side)
    rows, columns = (slice(max(0, at), min(at + side, size)) for at, size in ((top, height), (left, width)))
    part = torch.from_numpy(pixels[rows, columns].transpose(2, 0, 1).copy()).float()
    image[:, rows.start - top : rows.stop - top, columns.start - left : columns.stop - left] = part
    points = points - (left, top)
    points = points[((points >= 0) & (points < side)).all(1)]
    if mirrored:
        image = image.flip(2)
        points = np.stack([np.nextafter(side, 0) - points[:, 0], points[:, 1]], 1)
    return image, points
