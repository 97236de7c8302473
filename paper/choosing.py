"""Scores of files of denoising weights on photos that no table tests, to choose among them: into studies/denoiser.json.

    python -m paper.choosing --data DIR NAME=FILE [NAME=FILE …]

DIR has `free_photos`, `polyu` and `sidd_small_256`. The photos are eight held-out free ones, without noise and with
white noise, and pairs of PolyU's and SIDD's training cameras. NAME is how the file calls the weights; OpenCV's
non-local means at its defaults stands beside them. Rows of other names are kept.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from acda.photos.image_files import read_rgb
from acda.photos.weights import load
from acda.support.environment import write_results
from acda.training.data.pairs import read_clean, read_pairs
from paper.alternatives import SIGMAS, Pair, Pixels, middle, nlm, psnr_of, white_noise
from paper.results import HERE

OUT = HERE / "studies" / "denoiser.json"
# Photos that are looked at: every so many-th, and the side of their middle.
FREE, POLYU, SIDD, SIDE = 2, 5, 4, 256


def sets(data: Path) -> dict[str, list[Pair]]:
    free = [middle(read_rgb(path), SIDE) for path in read_clean(data / "free_photos")[1][::FREE]]
    real = {
        "polyu_training": read_pairs(data / "polyu/CroppedImages")[0][::POLYU],
        "sidd_training": read_pairs(data / "sidd_small_256")[0][::SIDD],
    }
    return {
        "free_photos_clean": white_noise(free, 0),
        **{f"free_photos_{sigma}": white_noise(free, sigma) for sigma in SIGMAS},
        **{
            name: [(middle(read_rgb(p.degraded), SIDE), middle(read_rgb(p.clean), SIDE), None) for p in pairs]
            for name, pairs in real.items()
        },
    }


def score(name: str, method: Callable[[Pixels], Pixels], pairs: list[Pair], photos: str) -> dict[str, Any]:
    results = [method(noisy) for noisy, _, _ in pairs]
    each = [psnr_of(found, clean) for found, (_, clean, _) in zip(results, pairs, strict=True)]
    shifts = [
        float(np.abs(found.mean((0, 1)) - clean.mean((0, 1))).max())
        for found, (_, clean, _) in zip(results, pairs, strict=True)
    ]
    return {
        "weights": name,
        "photos": photos,
        "psnr": round(statistics.mean(each), 2),
        "colour_shift": round(max(shifts), 2),
        "each": [round(value, 2) for value in each],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", nargs="+", metavar="NAME=FILE")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    methods: dict[str, Callable[[Pixels], Pixels]] = {"non-local means, default": lambda photo: nlm(photo, 3)}
    for given in options.weights:
        name, _, file = given.partition("=")
        methods[name] = load(file or "denoiser")
    rows = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    rows = [row for row in rows if row["weights"] not in methods]
    for photos, pairs in sets(options.data).items():
        for name, method in methods.items():
            rows.append(score(name, method, pairs, photos))
            print({key: value for key, value in rows[-1].items() if key != "each"}, flush=True)
    write_results(options.out, rows, budget="scores only; each name says how its weights were trained", seed=0)


if __name__ == "__main__":
    main()
