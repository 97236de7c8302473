"""Pairs of a degraded and a clean photo of one scene: RealSR, City100, SIDD, PolyU, any two folders of equal names."""

import filecmp
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from acda.photos.image_files import image_size, images_in, orientation_of

# City100: every tenth scene is for testing. SIDD: these scenes. PolyU: these cameras.
SIDD_TEST_SCENES = ("009", "010")
POLYU_TEST_CAMERAS = ("Sony", "NikonD800")
# Of clean photos in one folder, one in so many is for testing.
EIGHTH = 8
# How deep in a folder datasets are searched for.
DEEPEST = 3


@dataclass(frozen=True)
class PhotoPair:
    """Two files of one size. scene: what is photographed; all photos of one are for training, or all for testing"""

    degraded: Path
    clean: Path
    scene: str


Split = tuple[list[PhotoPair], list[PhotoPair]]


def read_pairs(folder: Path, scale: int | None = None) -> Split:
    """The training and the test pairs of a folder in one of the layouts, all found, whole and of equal sizes.

    RealSR: {Canon,Nikon}/{Train,Test}/SCALE/NAME_HR.png and NAME_LRn.png, both cameras; scale: 2, 3 or 4.
    City100: 001H.PNG and 001L.PNG; every tenth is for testing.
    SIDD: Data/INSTANCE/GT_SRGB_010.PNG and NOISY_SRGB_010.PNG; scenes 009 and 010 are for testing.
    PolyU: NAME_real.JPG and NAME_mean.JPG; the Sony's and the Nikon D800's scenes are for testing.
    Your own: {train,test}/{input,target}/ with equal names.
    A folder that has folders in these layouts, itself or in other folders, is all of them together.
    """
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}. Give that of the dataset.")
    known = _all_known(folder, scale, DEEPEST)
    if not known:
        raise ValueError(
            f"{folder} has no known layout of a dataset: RealSR's Canon and Nikon, City100's 001H.PNG, SIDD's Data, "
            "PolyU's *_real.JPG, or train and test with input and target in each."
        )
    train, test = [pair for part, _ in known for pair in part], [pair for _, part in known for pair in part]
    _check_apart((pair.clean for pair in train), (pair.clean for pair in test))
    return train, test


def _all_known(folder: Path, scale: int | None, depth: int) -> list[Split]:
    """The pairs of a folder in one of the layouts, or of all such folders in it, not deeper than this."""
    own = _known(folder, scale)
    if own is not None or not depth:
        return [] if own is None else [own]
    places = [place for place in sorted(folder.iterdir()) if place.is_dir()]
    return [split for place in places for split in _all_known(place, scale, depth - 1)]


def _known(folder: Path, scale: int | None) -> Split | None:
    """The pairs of a folder in one of the layouts, checked; None where it has none of them."""
    for layout in (_realsr, _city100, _sidd, _polyu, _own):
        found = layout(folder, scale)
        if found is not None:
            for name, pairs in zip(("training", "testing"), found, strict=True):
                if not pairs:
                    raise ValueError(f"{folder} has no pairs for {name}.")
                _check_sizes(pairs)
            return found
    return None


def _realsr(folder: Path, scale: int | None) -> Split | None:
    cameras = [folder / name for name in ("Canon", "Nikon") if (folder / name).is_dir()]
    if not cameras:
        return None
    if scale is None:
        raise ValueError(f"{folder} has several scales: say which one, 2, 3 or 4.")

    def part(name: str) -> list[PhotoPair]:
        found = []
        for place in (camera / name / str(scale) for camera in cameras):
            if not place.is_dir():
                raise ValueError(f"{place} is missing.")
            for clean in images_in(place):
                if clean.stem.endswith("_HR"):
                    scene = clean.stem.removesuffix("_HR")
                    # Each part numbers its scenes separately.
                    found.append(PhotoPair(_present(place / f"{scene}_LR{scale}.png"), clean, f"{name}/{scene}"))
        return found

    return part("Train"), part("Test")


def _city100(folder: Path, scale: int | None) -> Split | None:
    clean = [path for path in images_in(folder) if re.fullmatch(r"\d+H", path.stem)]
    if not clean:
        return None
    pairs = [PhotoPair(_present(p.with_name(f"{p.stem[:-1]}L{p.suffix}")), p, p.stem[:-1]) for p in clean]
    return _split(pairs, lambda pair: int(pair.scene) % 10 == 0)


def _sidd(folder: Path, scale: int | None) -> Split | None:
    if not (folder / "Data").is_dir():
        return None
    pairs = []
    for place in sorted((folder / "Data").iterdir()):
        for clean in images_in(place) if place.is_dir() else ():
            if "GT_SRGB" in clean.name:
                scene = re.match(r"[^_]+_([^_]+)", place.name)
                if scene is None:
                    raise ValueError(f"{place} does not name its scene, as SIDD's folders do: 0001_001_S6_00100 ….")
                noisy = _present(clean.with_name(clean.name.replace("GT_SRGB", "NOISY_SRGB")))
                pairs.append(PhotoPair(noisy, clean, scene[1]))
    return _split(pairs, lambda pair: pair.scene in SIDD_TEST_SCENES)


def _polyu(folder: Path, scale: int | None) -> Split | None:
    noisy = [path for path in images_in(folder) if path.stem.endswith("_real")]
    if not noisy:
        return None
    pairs = [
        PhotoPair(path, _present(path.with_name(path.name.replace("_real", "_mean"))), _polyu_scene(path))
        for path in noisy
    ]
    return _split(pairs, lambda pair: pair.scene.startswith(POLYU_TEST_CAMERAS))


def _polyu_scene(path: Path) -> str:
    """The name up to its last number, which counts the crops of a scene."""
    return re.sub(r"_?\d+$", "", path.stem.removesuffix("_real"))


def _own(folder: Path, scale: int | None) -> Split | None:
    if not all((folder / part / side).is_dir() for part in ("train", "test") for side in ("input", "target")):
        return None

    def part(name: str) -> list[PhotoPair]:
        clean = images_in(folder / name / "target")
        return [PhotoPair(_present(folder / name / "input" / p.name), p, f"{name}/{p.stem}") for p in clean]

    return part("train"), part("test")


def _split(pairs: list[PhotoPair], for_testing: Callable[[PhotoPair], bool]) -> Split:
    return [p for p in pairs if not for_testing(p)], [p for p in pairs if for_testing(p)]


def _present(path: Path) -> Path:
    if not path.exists():
        raise ValueError(f"{path} is missing: the other half of a pair.")
    return path


def _check_sizes(pairs: Iterable[PhotoPair]) -> None:
    for pair in pairs:
        degraded, clean = image_size(pair.degraded), image_size(pair.clean)
        if degraded != clean:
            raise ValueError(
                f"the photos of a pair need one size; {pair.degraded} has {degraded[0]}×{degraded[1]}, {pair.clean} "
                f"has {clean[0]}×{clean[1]}."
            )
        if orientation_of(pair.degraded) != orientation_of(pair.clean):
            raise ValueError(f"{pair.degraded} and {pair.clean} have different EXIF orientations: save both upright.")


def _check_apart(trained: Iterable[Path], tested: Iterable[Path]) -> None:
    """Refuse a test photo that is also in the training set, under any name."""
    by_size: dict[int, list[Path]] = {}
    for path in trained:
        by_size.setdefault(path.stat().st_size, []).append(path)
    for path in tested:
        for other in by_size.get(path.stat().st_size, ()):
            if filecmp.cmp(other, path, shallow=False):
                raise ValueError(
                    f"{path} is for testing and {other} for training, but they are the same photo: remove one."
                )


def read_clean(folder: Path) -> tuple[list[Path], list[Path]]:
    """Photos without a degraded counterpart: those of {train,test}/, or all of the folder, every eighth for testing."""
    if not folder.is_dir():
        raise ValueError(f"there is no folder {folder}. Give one with clean photos.")
    if all((folder / name).is_dir() for name in ("train", "test")):
        train, test = images_in(folder / "train"), images_in(folder / "test")
    else:
        photos = images_in(folder)
        train, test = [p for i, p in enumerate(photos) if i % EIGHTH], photos[::EIGHTH]
    for name, photos in (("training", train), ("testing", test)):
        if not photos:
            raise ValueError(
                f"{folder} needs clean photos for training and for testing, in train and test or two at least in the "
                f"folder itself; it has none for {name}."
            )
        for photo in photos:
            image_size(photo)
    _check_apart(train, test)
    return train, test


def read_blocks(folder: Path) -> np.ndarray[Any, np.dtype[np.uint8]] | None:
    """SIDD's validation blocks, (n, 2, 256, 256, 3), noisy first, where their two files are in the folder."""
    names = ("ValidationNoisyBlocksSrgb", "ValidationGtBlocksSrgb")
    files = [folder / f"{name}.mat" for name in names]
    if not any(file.exists() for file in files):
        return None
    blocks = []
    for file, name in zip(files, names, strict=True):
        try:
            content = scipy.io.loadmat(str(_present(file)))[name]
        except Exception as error:  # a broken file can raise anything
            raise ValueError(f"{file} cannot be read as SIDD's blocks ({type(error).__name__}: {error}).") from error
        if content.ndim != 5 or content.shape[-1] != 3 or content.dtype != np.uint8:
            raise ValueError(f"{file} needs eight-bit blocks (images, blocks, H, W, 3); got {content.shape}.")
        blocks.append(content.reshape(-1, *content.shape[2:]))
    if blocks[0].shape != blocks[1].shape:
        raise ValueError(f"{folder}: the noisy and the clean blocks have shapes {blocks[0].shape}, {blocks[1].shape}.")
    return np.stack(blocks, 1)
