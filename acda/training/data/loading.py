"""Batches of augmented images. The augmentation follows from seed, epoch and image, so that it can be repeated."""

import math
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from acda.photos.image_files import open_rgb
from acda.photos.weights import IMAGENET_STATISTICS
from acda.training.data.batches import TestBatches, TrainBatches, generator_for
from acda.training.data.classes import FileSet, ImageSet


class OtherData(ValueError):
    """A run was to be resumed with other data than it was started with."""


class EpochLoader:
    """The batches of an epoch, which can start in its middle: Lightning saves the position in checkpoints.

    A subclass yields images (n, 3, H, W), about zero mean and unit variance, and labels (n,).
    """

    def __init__(self, batches: TrainBatches | TestBatches, statistics: Tensor) -> None:
        self.batches = batches
        self.mean, self.deviation = statistics[0][:, None, None], statistics[1][:, None, None]
        self._taken = self._skipped = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        skipped, self._skipped = self._skipped, 0
        numbered = list(enumerate(self.batches))[skipped:]
        for (i, _), (images, labels) in zip(numbered, self.loaded(numbered), strict=True):
            self._taken = (i + 1) % len(self)  # the last batch completes the epoch, even if no further one is asked for
            yield (images.float() - self.mean) / self.deviation, labels

    def loaded(self, numbered: list[tuple[int, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        """Images of uint8 and labels of these batches, each with its number in the epoch."""
        raise NotImplementedError

    @cached_property
    def fingerprint(self) -> int:
        """A checksum of the images in their order."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, int]:
        place = {"epoch": getattr(self.batches, "epoch", 0), "taken": self._taken}
        return {**place, "batches": len(self), "fingerprint": self.fingerprint}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if state.get("batches", len(self)) != len(self):
            raise OtherData(
                f"the run had epochs of {state['batches']} steps, now they would have {len(self)}: a run is resumed "
                "with the number of processes that it was started with."
            )
        if state.get("fingerprint", self.fingerprint) != self.fingerprint:
            raise OtherData(
                "the run was started with other images than there are now: a run is resumed with the data that it was "
                "started with, wherever they are."
            )
        if isinstance(self.batches, TrainBatches):
            self.batches.set_epoch(state["epoch"])
        self._skipped = state["taken"]


class MemoryLoader(EpochLoader):
    """Of an ImageSet; for training shifted by up to `margin` pixels and mirrored, each image on its own.

    The whole batch is augmented at once, by indexing, so that one core is enough.
    """

    def __init__(
        self, images: ImageSet, batches: TrainBatches | TestBatches, statistics: Tensor, margin: int = 0
    ) -> None:
        super().__init__(batches, statistics)
        self.set, self.margin = images, margin

    @cached_property
    def fingerprint(self) -> int:
        return zlib.crc32(self.set.images.contiguous().numpy().data, zlib.crc32(self.set.labels.numpy().tobytes()))

    def loaded(self, numbered: list[tuple[int, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        for i, indices in numbered:
            images = self.set.images[indices]
            if self.margin and isinstance(self.batches, TrainBatches):
                images = self._augmented(images, self.batches, i)
            yield images, self.set.labels[indices]

    def _augmented(self, images: Tensor, batches: TrainBatches, index: int) -> Tensor:
        # Drawn for the batch of all processes, of which this one takes its part.
        generator = generator_for(batches.seed, batches.epoch, index)
        together = batches.batch_size * batches.world
        shifts = torch.randint(2 * self.margin + 1, (together, 2), generator=generator)
        mirrored = torch.rand(together, generator=generator) < 0.5
        mine = slice(batches.rank * batches.batch_size, (batches.rank + 1) * batches.batch_size)
        return shifted_and_mirrored(images, shifts[mine], mirrored[mine], self.margin)


def shifted_and_mirrored(images: Tensor, shifts: Tensor, mirrored: Tensor, margin: int) -> Tensor:
    """Each image, with a black margin around it, cropped to its size again at its own place, and mirrored or not.

    images: (n, C, H, W)    shifts: (n, 2), between 0 and 2·margin    mirrored: (n,)
    """
    n, C, H, W = images.shape
    padded = F.pad(images, (margin,) * 4)
    rows = shifts[:, :1] + torch.arange(H)
    columns = shifts[:, 1:] + torch.arange(W)
    columns = torch.where(mirrored[:, None], columns.flip(1), columns)
    each, channel = torch.arange(n)[:, None, None, None], torch.arange(C)[None, :, None, None]
    return padded[each, channel, rows[:, None, :, None], columns[:, None, None, :]]


class DecodingLoader(EpochLoader):
    """Of images that stay in their files, decoded by worker processes as they are needed."""

    def __init__(self, batches: TrainBatches | TestBatches, statistics: Tensor, workers: int) -> None:
        super().__init__(batches, statistics)
        self.workers = workers

    def images(self, seed: tuple[int, int] | None) -> Dataset[Any]:
        """All images with their labels. seed: of the augmentation, seed and epoch; None for testing."""
        raise NotImplementedError

    def loaded(self, numbered: list[tuple[int, Tensor]]) -> Iterator[tuple[Tensor, Tensor]]:
        training = isinstance(self.batches, TrainBatches)
        seed = (self.batches.seed, self.batches.epoch) if isinstance(self.batches, TrainBatches) else None
        loader = DataLoader(
            _Named(self.images(seed)),
            batch_sampler=[batch.tolist() for _, batch in numbered],
            num_workers=self.workers,
            collate_fn=_collated,
            pin_memory=training and _gpu(),
        )
        for batch in _unless_killed(loader):
            if isinstance(batch, Unreadable):
                raise ValueError(batch.reason)
            yield batch


@dataclass(frozen=True)
class Unreadable:
    """What is wrong with a file, in place of its image; an error in a worker would show its traceback."""

    reason: str


class _Named(Dataset[Any]):
    """Images, or what is wrong with them."""

    def __init__(self, images: Dataset[Any]) -> None:
        self.images = images

    def __getitem__(self, index: int) -> Any:
        try:
            return self.images[index]
        except (ValueError, OSError) as error:
            return Unreadable(str(error))


def _collated(samples: list[Any]) -> Any:
    broken = next((sample for sample in samples if isinstance(sample, Unreadable)), None)
    return broken or default_collate(samples)


def _unless_killed(loader: Iterable[Any]) -> Iterator[Any]:
    """Batches; a worker that the system killed, often for lack of memory, is reported in one line."""
    try:
        yield from loader
    except RuntimeError as error:
        if "DataLoader worker" not in str(error):
            raise
        line = str(error).splitlines()[0].rstrip(". ")
        raise ValueError(f"a process that reads images was killed ({line}). Try fewer --workers.") from error


class FileLoader(DecodingLoader):
    """Of a FileSet: for training a random part of the image, resized and perhaps mirrored (Inception's crop), for
    testing the centre. Both are size×size."""

    def __init__(self, files: FileSet, batches: TrainBatches | TestBatches, size: int, workers: int = 0) -> None:
        super().__init__(batches, IMAGENET_STATISTICS, workers)
        self.set, self.size = files, size

    def images(self, seed: tuple[int, int] | None) -> Dataset[Any]:
        return _Files(self.set, self.size, seed)

    @cached_property
    def fingerprint(self) -> int:
        return checksum(names_and_sizes(self.set.files))


def checksum(parts: Iterable[object]) -> int:
    """A checksum of how these are printed, in this order."""
    total = 0
    for part in parts:
        total = zlib.crc32(f"{part}\n".encode(), total)
    return total


def names_and_sizes(paths: Iterable[Path]) -> Iterator[str]:
    """What identifies files, wherever their folder is."""
    return (f"{path.name} {path.stat().st_size}" for path in paths)


def _gpu() -> bool:
    return torch.cuda.is_available()


class _Files(Dataset[Any]):
    def __init__(self, files: FileSet, size: int, seed: tuple[int, int] | None) -> None:
        self.set, self.size, self.seed = files, size, seed

    def __len__(self) -> int:
        return len(self.set.files)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = open_rgb(self.set.files[index])
        if self.seed is None:
            box, mirrored = centre_box(image.width, image.height), False
        else:
            generator = generator_for(*self.seed, index)
            box = random_box(image.width, image.height, generator)
            mirrored = bool(torch.rand((), generator=generator) < 0.5)
        pixels = np.array(image.resize((self.size, self.size), 2, box))  # 2: bilinear, with antialiasing
        pixels = pixels[:, ::-1] if mirrored else pixels
        return torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), int(self.set.labels[index])


def centre_box(width: int, height: int) -> tuple[float, float, float, float]:
    """The middle square, 7/8 of the shorter side: what resizing to 256 and cropping 224 keeps.

    >>> centre_box(400, 320)
    (60.0, 20.0, 340.0, 300.0)
    """
    side = min(width, height) * 0.875
    left, top = (width - side) / 2, (height - side) / 2
    return left, top, left + side, top + side


def random_box(width: int, height: int, generator: torch.Generator) -> tuple[float, float, float, float]:
    """A part of the image with 8 to 100 % of its area, 3:4 to 4:3 wide; the middle where ten draws do not fit."""
    for _ in range(10):
        share, shape, x, y = torch.rand(4, generator=generator).tolist()
        area = width * height * (0.08 + 0.92 * share)
        ratio = math.exp(math.log(3 / 4) + shape * math.log(16 / 9))
        w, h = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if w <= width and h <= height:
            left, top = x * (width - w), y * (height - h)
            return left, top, left + w, top + h
    return centre_box(width, height)
