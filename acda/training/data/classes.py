"""Images in classes: the official CIFAR files, ImageNet, any folder of folders; small sets held in memory."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acda.photos.image_files import check_whole, images_in, read_rgb
from acda.support.extras import need

# Folders in which torchvision keeps CIFAR, and the class that reads them.
CIFAR = {"cifar-10-batches-py": "CIFAR10", "cifar-100-python": "CIFAR100"}


@dataclass(frozen=True)
class ImageSet:
    """Images of one size in memory. images: (N, 3, H, W), uint8    labels: (N,)"""

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]


@dataclass(frozen=True)
class FileSet:
    """Images that stay in their files until they are needed. labels: (N,)"""

    files: tuple[Path, ...]
    labels: Tensor
    classes: tuple[str, ...]


def list_image_sets(folder: Path, check: bool = True) -> tuple[FileSet, FileSet]:
    """The training and the test files of a folder with `train` and `val` (or `test`), ImageNet's layout.

    check: look at both ends of every file, so that a broken one is reported now and not after an hour.
    """
    train, test = find_splits(folder)
    sets = _listed(train, tuple(train)), _listed(test, tuple(train))
    if check:
        check_all(path for part in sets for path in part.files)
    return sets


def list_test_set(folder: Path, classes: tuple[str, ...]) -> FileSet:
    """The test files of a folder alone, in the classes that a network knows."""
    files = _files_of_classes(_test_folder(folder))
    _refuse_strangers(_test_folder(folder), files, classes)
    listed = _listed(files, classes)
    check_all(listed.files)
    return listed


def check_all(paths: Iterable[Path]) -> None:
    """Refuse the first file that is not an image or is cut off, and name it."""
    with ThreadPoolExecutor(8) as pool:
        for _ in pool.map(check_whole, paths, chunksize=256):
            pass


def _listed(files: dict[str, list[Path]], classes: tuple[str, ...]) -> FileSet:
    pairs = [(path, classes.index(name)) for name, paths in files.items() for path in paths]
    return FileSet(tuple(path for path, _ in pairs), torch.tensor([label for _, label in pairs]), classes)


def fetch_cifar(folder: Path, kind: str) -> None:
    """Download "CIFAR10" or "CIFAR100" from its authors into the folder, unless it is there."""
    try:
        getattr(need("torchvision.datasets", "train"), kind)(str(folder), download=True)
    except (OSError, RuntimeError) as error:
        raise ValueError(f"{kind} could not be fetched into {folder} ({error}). Is the network reachable?") from error


def read_image_sets(folder: Path, wanted: str | None = None) -> tuple[ImageSet, ImageSet]:
    """The training and the test set of a folder, whole, in memory.

    The folder has torchvision's CIFAR files, or `train` and `val` (or `test`) with one folder a class.
    wanted: which CIFAR, where the folder may have both
    """
    kind = _cifar_in(folder, wanted)
    if kind is not None:
        return _cifar(folder, kind, train=True), _cifar(folder, kind, train=False)
    if wanted is not None and not (folder / "train").is_dir():
        raise ValueError(f"{_what_is_needed(folder)} --download fetches {wanted} into it.")
    train, test = find_splits(folder)
    return _read(train), _read(test, classes=tuple(train))


def read_test_set(folder: Path, classes: tuple[str, ...], wanted: str | None = None) -> ImageSet:
    """The test images of a folder alone, in the classes that a network knows."""
    kind = _cifar_in(folder, wanted)
    found = _cifar(folder, kind, train=False) if kind else _read(_files_of_classes(_test_folder(folder)), classes)
    if found.classes != classes:
        raise ValueError(f"{folder} has other classes than the network was trained on ({', '.join(classes[:3])}, …).")
    return found


def _cifar_in(folder: Path, wanted: str | None) -> str | None:
    """Which of torchvision's CIFARs the folder has, if any; one that is not the wanted one is refused."""
    found = [kind for name, kind in CIFAR.items() if (folder / name).is_dir()]
    if wanted in found or not found:
        return wanted if found else None
    if wanted is not None or len(found) > 1:
        raise ValueError(f"{folder} has {' and '.join(found)}; {wanted or 'one of them'} is needed.")
    return found[0]


def _cifar(folder: Path, kind: str, train: bool) -> ImageSet:
    # torchvision compares the files with their known checksums before it opens them.
    try:
        part = getattr(need("torchvision.datasets", "train"), kind)(str(folder), train=train)
    except RuntimeError as error:
        raise ValueError(f"{folder}: {kind}'s files are not complete ({error}).") from error
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
    for name in ("val", "test"):  # where there are both, as in ImageNet, only the first has labels
        if (folder / name).is_dir():
            return folder / name
    raise ValueError(_what_is_needed(folder))


def _what_is_needed(folder: Path) -> str:
    return (
        f"{folder} needs the folders train and val (or test), with one folder a class in each, or torchvision's "
        f"CIFAR files ({', '.join(CIFAR)})."
    )


def _refuse_strangers(folder: Path, files: dict[str, list[Path]], classes: tuple[str, ...]) -> None:
    strangers = sorted(set(files) - set(classes))
    if strangers:
        raise ValueError(f"{folder} has classes that are not in the training set: {', '.join(strangers[:5])}.")


def _files_of_classes(folder: Path) -> dict[str, list[Path]]:
    # Tiny-ImageNet keeps the pictures of a class in its own folder `images`.
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
    listed = _listed(files, classes)
    first = read_rgb(listed.files[0])
    images = np.empty((len(listed.files), *first.shape), dtype=np.uint8)
    for i, path in enumerate(listed.files):
        image = read_rgb(path)
        if image.shape != first.shape:
            raise ValueError(
                f"images that are held in memory need one size; {listed.files[0]} has "
                f"{first.shape[1]}×{first.shape[0]}, {path} has {image.shape[1]}×{image.shape[0]}."
            )
        images[i] = image
    return ImageSet(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), listed.labels, classes)


def channel_statistics(images: Tensor) -> Tensor:
    """Mean and standard deviation of each channel, 0–255: (2, 3)."""
    levels = torch.arange(256, dtype=torch.float64)
    counts = torch.stack([torch.bincount(channel.flatten(), minlength=256) for channel in images.unbind(1)]).double()
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ levels
    return torch.stack([mean, (share @ levels.square() - mean.square()).clamp_min(1.0).sqrt()]).float()
