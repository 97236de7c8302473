"""Images in classes: the official CIFAR files, ImageNet, any folder of folders; small sets held in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from acda.data.batches import TestBatches, TrainBatches, generator_for
from acda.data.image_files import images_in, read_rgb
from acda.extras import need

# Folders in which torchvision keeps CIFAR, and the class that reads them.
CIFAR = {"cifar-10-batches-py": "CIFAR10", "cifar-100-python": "CIFAR100"}


@dataclass(frozen=True)
class ImageSet:
    """Images of one size in memory. images: (N, 3, H, W), eight bits    labels: (N,)"""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]


def read_image_sets(folder: Path, download: str | None = None) -> tuple[ImageSet, ImageSet]:
    """The training and the test set of a folder, whole, in memory.

    The folder has torchvision's CIFAR files, or `train` and `test` (or `val`) with one folder a class.
    download: "CIFAR10" or "CIFAR100", fetched into the folder by torchvision where it is missing.
    """
    kind = download or next((kind for name, kind in CIFAR.items() if (folder / name).is_dir()), None)
    if kind is not None:
        return _cifar(folder, kind, train=True, download=bool(download)), _cifar(folder, kind, train=False)
    train, test = find_splits(folder)
    return _read(train), _read(test, classes=tuple(train))


def read_test_set(folder: Path, classes: tuple[str, ...]) -> ImageSet:
    """The test images of a folder alone, in the classes that a network knows."""
    kind = next((kind for name, kind in CIFAR.items() if (folder / name).is_dir()), None)
    found = _cifar(folder, kind, train=False) if kind else _read(_files_of_classes(_test_folder(folder)), classes)
    if found.classes != classes:
        raise ValueError(f"{folder} has other classes than the network was trained on ({', '.join(classes[:3])}, …).")
    return found


def _cifar(folder: Path, kind: str, train: bool, download: bool = False) -> ImageSet:
    # torchvision compares the files with their known checksums before it opens them.
    part = getattr(need("torchvision.datasets", "train"), kind)(str(folder), train=train, download=download)
    images = torch.from_numpy(part.data).permute(0, 3, 1, 2).contiguous()
    return ImageSet(images, torch.tensor(part.targets), tuple(part.classes))


def find_splits(folder: Path) -> tuple[dict[str, list[Path]], dict[str, list[Path]]]:
    """The files of each class, for training and for testing; what is missing or empty is named."""
    tests = _test_folder(folder)
    if not (folder / "train").is_dir():
        raise ValueError(_what_is_needed(folder))
    train, test = _files_of_classes(folder / "train"), _files_of_classes(tests)
    _refuse_strangers(tests, test, tuple(train))
    return train, test


def _test_folder(folder: Path) -> Path:
    for name in ("test", "val"):
        if (folder / name).is_dir():
            return folder / name
    raise ValueError(_what_is_needed(folder))


def _what_is_needed(folder: Path) -> str:
    return (
        f"{folder} needs the folders train and test (or val), with one folder a class in each, or torchvision's "
        f"CIFAR files ({', '.join(CIFAR)})."
    )


def _refuse_strangers(folder: Path, files: dict[str, list[Path]], classes: tuple[str, ...]) -> None:
    strangers = sorted(set(files) - set(classes))
    if strangers:
        raise ValueError(f"{folder} has classes that there was no training for: {', '.join(strangers[:5])}.")


def _files_of_classes(folder: Path) -> dict[str, list[Path]]:
    # Tiny-ImageNet keeps the pictures of a class in a folder `images` of their own.
    classes = {
        p.name: images_in(p / "images" if (p / "images").is_dir() else p)
        for p in sorted(folder.iterdir())
        if p.is_dir() and not p.name.startswith(".")
    }
    if not classes:
        raise ValueError(f"{folder} has no folders: one for each class is needed.")
    for name, files in classes.items():
        if not files:
            raise ValueError(f"{folder / name} has no images. Remove the folder, or fill it.")
    return classes


def _read(files: dict[str, list[Path]], classes: tuple[str, ...] | None = None) -> ImageSet:
    classes = classes or tuple(files)
    _refuse_strangers(next(iter(files.values()))[0].parent.parent, files, classes)
    listed = [(path, classes.index(name)) for name, paths in files.items() for path in paths]
    first = read_rgb(listed[0][0])
    images = np.empty((len(listed), *first.shape), dtype=np.uint8)
    for i, (path, _) in enumerate(listed):
        image = read_rgb(path)
        if image.shape != first.shape:
            raise ValueError(
                f"images that are held in memory need one size; {listed[0][0]} has {first.shape[1]}×{first.shape[0]}, "
                f"{path} has {image.shape[1]}×{image.shape[0]}."
            )
        images[i] = image
    tensor = torch.from_numpy(images).permute(0, 3, 1, 2).contiguous()
    return ImageSet(tensor, torch.tensor([label for _, label in listed]), classes)


class MemoryLoader:
    """Batches of an ImageSet, normalised; for training shifted by up to `margin` pixels and mirrored, each on its own.

    The whole batch is augmented at once, by indexing, so that one core is enough.
    yields: images (n, 3, H, W), about zero mean and unit variance, and labels (n,)
    """

    def __init__(
        self, images: ImageSet, batches: TrainBatches | TestBatches, statistics: Tensor, margin: int = 0
    ) -> None:
        self.set, self.batches, self.margin = images, batches, margin
        self.mean, self.deviation = statistics[0][:, None, None], statistics[1][:, None, None]
        self._taken = self._skipped = 0

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        skipped, self._skipped = self._skipped, 0
        for i, indices in enumerate(self.batches):
            self._taken = (i + 1) % len(self)  # the last batch completes the epoch, asked for more or not
            if i < skipped:
                continue
            images = self.set.images[indices]
            if self.margin and isinstance(self.batches, TrainBatches):
                images = self._augmented(images, self.batches, i)
            yield (images.float() - self.mean) / self.deviation, self.set.labels[indices]

    def state_dict(self) -> dict[str, int]:
        """Where an epoch stands: Lightning keeps it in checkpoints."""
        return {"epoch": getattr(self.batches, "epoch", 0), "taken": self._taken}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """The next epoch begins after the batches that were taken already."""
        if isinstance(self.batches, TrainBatches):
            self.batches.set_epoch(state["epoch"])
        self._skipped = state["taken"]

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


def channel_statistics(images: Tensor) -> Tensor:
    """Mean and standard deviation of each channel, in steps of eight bits: (2, 3)."""
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]).double()
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ levels
    return torch.stack([mean, (share @ levels.square() - mean.square()).clamp_min(1.0).sqrt()]).float()
