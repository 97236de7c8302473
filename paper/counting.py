"""Beside the counters of Table 3: two that do not look at the photo, and the paper's pictures.

    python paper/counting.py --data DIR      # DIR as for run.py

Writes results/counting_constants.json, and when the runs of run.py are complete, pictures/counting.png: photo, truth
and prediction with both counts.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from run import ARMS, HERE

from acda.data.crowds import Crowd, density_map, read_crowds
from acda.drawing import new_figure, save
from acda.environment import describe
from acda.files import written_whole
from acda.inference import apply_in_tiles
from acda.photos import read_photo
from acda.weights import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    train, test = read_crowds(parser.parse_args().data / "shanghaitech/part_A")
    counts, truth = (np.array([len(crowd.points) for crowd in part]) for part in (train, test))
    rows = [
        row
        for name, guess in (("training mean", counts.mean()), ("training median", np.median(counts)))
        for row in rows_of(f"the {name}, {guess:.0f}, for every photo", truth - guess)
    ]
    with written_whole(HERE / "results" / "counting_constants.json") as file:
        facts = {**describe(), "budget": "no training", "seed": 0}
        file.write_text(json.dumps({"rows": rows, "circumstances": facts}, indent=1, ensure_ascii=False) + "\n")
    arm = next(arm for arm in ARMS if arm.table == "counting")
    if arm.is_complete:
        draw(arm.out, pick(test), HERE / "pictures" / "counting.png")


def rows_of(name: str, errors: Any) -> list[dict[str, Any]]:
    common = {"table": "counting", "dataset": "ShanghaiTech A", "name": name}
    return [
        {**common, "metric": "MAE", "value": round(float(np.abs(errors).mean()), 2)},
        {**common, "metric": "root MSE", "value": round(float(np.sqrt(np.square(errors).mean())), 2)},
    ]


def pick(crowds: list[Crowd]) -> list[Crowd]:
    """Three photos, by their number of heads: at a quarter, in the middle, at nine tenths. Nobody chose them."""
    ordered = sorted(crowds, key=lambda crowd: (len(crowd.points), crowd.file.name))
    return [ordered[int(share * len(ordered))] for share in (0.25, 0.5, 0.9)]


def draw(run: Path, crowds: list[Crowd], to: Path) -> None:
    trained = load(run)
    figure = new_figure(11, 2.9 * len(crowds))
    for crowd, row in zip(crowds, figure.subplots(len(crowds), 3, squeeze=False), strict=True):
        pixels = read_photo(crowd.file).pixels
        predicted = apply_in_tiles(trained.model, trained.normalised(pixels), 1024)[0, 0].numpy()
        truth = density_map(crowd.points, predicted.shape, sigma=2.0, stride=4).numpy()
        row[0].imshow(pixels[0].permute(1, 2, 0).numpy())
        row[0].set_title(crowd.file.name)
        for axes, density, title in (
            (row[1], truth, f"truth: {len(crowd.points)}"),
            (row[2], predicted, f"predicted: {predicted.sum():.0f}"),
        ):
            shown = axes.imshow(density.clip(0), cmap="inferno", vmin=0, vmax=np.quantile(truth, 0.999))
            axes.set_title(title)
        figure.colorbar(shown, ax=row[2], label="people per cell")
        for axes in row:
            axes.set_axis_off()
    save(figure, to)


if __name__ == "__main__":
    main()
