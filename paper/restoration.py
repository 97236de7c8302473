"""What needs no training in the tables of restoration, and the denoisers' scores set by set.

    python paper/restoration.py --data DIR     # DIR as for run.py; --only denoising for one of the two

Writes results/city100_input.json (the low resolution as it is), results/city100_photos.json (the networks, photo by
photo) and results/denoising.json (the noisy photo, a Gaussian blur at the width that is best on the
training photos, and the networks, on each set's test photos). Networks are the runs that are
complete; figures of runs that are no longer there stay as they are.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from run import ARMS, RESULTS, Arm, also, hours_of, read_results, save_rows, trained_how
from scipy import ndimage
from torch import Tensor

from acda.cost import count
from acda.photos.files import eight_bits
from acda.photos.weights import load
from acda.support.environment import describe, write_results
from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import luma, psnr, ssim

SETS = {"PolyU": "denoising/polyu", "SIDD, 256×256": "denoising/sidd"}
OURS = "ACDA"
WIDTHS = [0.05 * step for step in range(6, 31)]
Restore = Callable[[Tensor], Tensor]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", choices=["city100", "denoising"])
    settings = parser.parse_args()
    data, only = settings.data, settings.only
    if only != "denoising":
        super_resolution(data, [arm for arm in ARMS if arm.table == "city100" and arm.is_complete])
    arms = [arm for arm in ARMS if arm.table == "denoising" and arm.is_complete]
    if arms and only != "city100":
        facts = {**trained_how(arms), "scored at": describe()["commit"]}
        save_rows("denoising", denoising(data, arms), facts)


def super_resolution(data: Path, arms: list[Arm]) -> None:
    city = Photos(read_pairs(data / "city100/City100_iPhoneX")[1])
    rows = rows_of("city100", "City100, iPhone", "low resolution as it is", lambda x: x, city, on="Y")
    write_results(RESULTS / "city100_input.json", rows, budget="no training", seed=0)
    if arms:
        facts, saved = trained_how(arms), read_results("city100_photos")
        if {row["name"] for row in saved["rows"]} - {arm.name for arm in arms}:
            facts = also(facts, saved["circumstances"])
        write_results(RESULTS / "city100_photos.json", photo_by_photo(city, rows[0]["each"], arms), **facts)


def photo_by_photo(photos: Photos, before: list[float], arms: list[Arm]) -> list[dict[str, Any]]:
    """What each network gains on each photo, and how sure it is that ours is ahead of the others."""
    gains = {row["name"]: np.array(row["each"]) for row in read_results("city100_photos")["rows"] if "each" in row}
    for arm in arms:
        gains[arm.name] = np.array([p for p, _ in scores(load(arm.out).model, photos, on="Y")]) - before
    rows = []
    for name, gain in gains.items():
        common = {"table": "city100_photos", "dataset": "", "name": name, "photos": len(gain)}
        figures = {"gain over the low resolution, dB": gain.mean(), "least gain of a photo, dB": gain.min()}
        if name != OURS and OURS in gains:
            ahead = gains[OURS] - gain
            error = ahead.std(ddof=1) / len(ahead) ** 0.5
            figures |= {f"{OURS} is ahead by, dB": ahead.mean(), "standard error of that": error}
            figures |= {"on so many photos": int((ahead > 0).sum())}
        rows += [{**common, "metric": metric, "value": round(float(value), 3)} for metric, value in figures.items()]
        rows[-len(figures)]["each"] = [round(float(value), 3) for value in gain]
    return rows


def denoising(data: Path, arms: list[Arm]) -> list[dict[str, Any]]:
    sets = {name: [Photos(part) for part in read_pairs(data / folder)] for name, folder in SETS.items()}
    rows = []
    for name, (train, test) in sets.items():
        rows += rows_of("denoising", name, "noisy", lambda x: x, test)
        width = max(WIDTHS, key=lambda sigma: sum(float(psnr(*pair)) for pair in results(blur(sigma), train)))
        blurred = rows_of("denoising", name, "Gaussian blur, the best width", blur(width), test)
        rows += [{**row, "σ": round(width, 2)} for row in blurred]
    for arm in arms:
        trained = load(arm.out)
        for name, (_, test) in sets.items():
            rows += rows_of("denoising", name, arm.name, trained.model, test)
        cost = count(trained.model, (1, 3, arm.size, arm.size))
        common = {"table": "denoising", "dataset": "", "name": arm.name, **arm.training, "hours": hours_of(arm)}
        rows.append({**common, "metric": "parameters, M", "value": round(cost.parameters / 1e6, 3)})
        pixels = f"multiply-adds at {arm.size}×{arm.size}, M"
        rows.append({**common, "metric": pixels, "value": round(cost.multiply_adds / 1e6, 2)})
    return rows


def blur(sigma: float) -> Restore:
    def blurred(x: Tensor) -> Tensor:
        return torch.from_numpy(ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest"))

    return blurred


def scores(restore: Restore, photos: Photos, on: str = "RGB") -> list[tuple[float, float]]:
    """PSNR and SSIM of each photo."""
    return [(float(psnr(*pair)), float(ssim(*pair))) for pair in results(restore, photos, on)]


def results(restore: Restore, photos: Photos, on: str = "RGB") -> Iterator[tuple[Tensor, Tensor]]:
    """Each photo restored, rounded to eight bits as a file would have it, and clean."""
    for index in range(len(photos)):
        degraded, clean = torch.from_numpy(photos[index].transpose(0, 3, 1, 2).copy()).float()[:, None] / 255
        with torch.no_grad():
            result = eight_bits(restore(degraded)) / 255
        yield (luma(result), luma(clean)) if on == "Y" else (result, clean)


def rows_of(
    table: str, dataset: str, name: str, restore: Restore, photos: Photos, on: str = "RGB"
) -> list[dict[str, Any]]:
    each = scores(restore, photos, on)
    common = {"table": table, "dataset": dataset, "name": name, "photos": len(each)}
    means = [sum(values) / len(each) for values in zip(*each, strict=True)]
    return [
        {**common, "metric": f"PSNR on {on}, dB", "value": round(means[0], 2), "each": [round(p, 3) for p, _ in each]},
        {**common, "metric": f"SSIM on {on}", "value": round(means[1], 4)},
    ]


if __name__ == "__main__":
    main()
