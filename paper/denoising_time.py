"""How long the methods of paper.alternatives take for a photo, relative to OpenCV: into results/denoising_time.json.

    python -m paper.denoising_time --data DIR     # on an idle machine; some ten minutes, most of them BM3D

DIR has `free_photos`. The photo is a held-out one, mirrored to 12 megapixels, with white noise of σ = 10; and its first
megapixel. Every method runs once, after a small photo to warm up. BM3D runs on one megapixel only.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from acda.photos.image_files import read_rgb
from acda.training.data.pairs import read_clean
from paper.alternatives import Method, Pixels, bm3d, denoisers, middle, white_noise
from paper.results import Row, result, write

SIGMA = 10
SIZES = {"megapixels_1": (1000, 1000), "megapixels_12": (3000, 4000)}
SLOW = "bm3d"


def mirrored(photo: Pixels, height: int, width: int) -> Pixels:
    """The photo continued by its mirror images to this size."""
    rows, columns = height - photo.shape[0], width - photo.shape[1]
    return np.pad(photo, ((0, max(0, rows)), (0, max(0, columns)), (0, 0)), mode="symmetric")[:height, :width]


def methods() -> dict[str, Method]:
    """The first is what the others are compared with."""
    settings = denoisers()
    quick = {name: settings[name][0] for name in ("nlm", "wavelets", "denoiser")}
    return {**quick, SLOW: lambda photo, sigma: bm3d(photo, sigma or SIGMA)}


def seconds(method: Method, photo: Pixels) -> float:
    begun = time.perf_counter()
    method(photo, SIGMA)
    return time.perf_counter() - begun


def rows_of(dataset: str, photo: Pixels, contenders: dict[str, Method]) -> list[Row]:
    """Times relative to the first of them, with the seconds of each."""
    taken = {}
    for name, method in contenders.items():
        method(middle(photo, 64), SIGMA)
        taken[name] = seconds(method, photo)
        print(f"{dataset} {name}: {taken[name]:.1f} s", flush=True)
    first = taken[next(iter(taken))]
    return [
        result("denoising_time", dataset, name, "time_nlm", round(value / first, 2), seconds=round(value, 1))
        for name, value in taken.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    options = parser.parse_args()
    torch.set_num_threads(2)
    known = methods()
    clean = mirrored(read_rgb(read_clean(options.data / "free_photos")[1][0]), *SIZES["megapixels_12"])
    ((photo, _, _),) = white_noise([clean], SIGMA)
    rows: list[Row] = []
    for dataset, (height, width) in SIZES.items():
        quick = {name: method for name, method in known.items() if name != SLOW or dataset == "megapixels_1"}
        rows += rows_of(dataset, photo[:height, :width], quick)
    write("denoising_time", rows, budget="each method once per photo, two threads", seed=0)


if __name__ == "__main__":
    main()
