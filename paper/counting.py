"""For Table 3: two constant guesses as baselines, the paper's pictures, and numbers for its Figure 7.

    python -m paper.counting --data DIR      # DIR as for paper.run

Writes results/counting_constants.json. Of the crowd counter it writes pictures/counting.png: photo, truth and
prediction with both counts; pictures/counting_scales.png: the weight of each scale, on photos with large and small
heads; results/counting_scales.json: whether large filters are preferred for large heads; and
results/counting_errors.json: the error of a photo's count, for few and for many heads.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.spatial import KDTree
from scipy.stats import spearmanr

from acda.insight import capture
from acda.insight.geometry import map_place
from acda.photos.files import read_photo
from acda.photos.tiles import apply_in_tiles
from acda.photos.trained import Trained
from acda.photos.weights import load
from acda.support.drawing import new_figure, save
from acda.training.data.crowds import Crowd, density_map, read_crowds
from paper.figures import draw_scales
from paper.results import PICTURES, Row, result, write

# A head's size is not annotated. Its distance to its nearest neighbours, this many, stands in for it.
NEIGHBOURS = 3
# Photos with fewer heads than this say nothing about order within them.
ENOUGH = 20
# Photos with an agency's mark are not ours to print; the next in order is used instead.
NOT_TO_PRINT = {"IMG_158.jpg"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    train, test = read_crowds(parser.parse_args().data / "shanghaitech/part_A")
    counts, truth = (np.array([len(crowd.points) for crowd in part]) for part in (train, test))
    rows = [
        each
        for name, guess in (("training_mean", counts.mean()), ("training_median", np.median(counts)))
        for each in constant_rows(name, float(guess), truth)
    ]
    write("counting_constants", rows, budget="no training", seed=0)
    trained = load("crowd_counter")
    draw(trained, pick(test), PICTURES / "counting.png")
    draw_scales(trained, [crowd.file for crowd in deepest(test)], PICTURES / "counting_scales.png")
    views = [look_at(trained, crowd) for crowd in test]
    budget = f"the packaged crowd_counter; one pass over each of {len(test)} test photos"
    write("counting_scales", scales(views), budget=budget, seed=0)
    write("counting_errors", errors(views), budget=budget, seed=0)


def constant_rows(name: str, guess: float, truth: Any) -> list[Row]:
    """The errors of one count for every photo."""
    errors = truth - guess
    figures = {"mae": np.abs(errors).mean(), "rmse": np.sqrt(np.square(errors).mean())}
    return [
        result("counting", "shanghaitech_a", name, metric, round(float(value), 2), guess=round(guess))
        for metric, value in figures.items()
    ]


def pick(crowds: list[Crowd]) -> list[Crowd]:
    """Three photos, by their number of heads: at a quarter, in the middle, at nine tenths; none is hand-picked."""
    printable = (crowd for crowd in crowds if crowd.file.name not in NOT_TO_PRINT)
    ordered = sorted(printable, key=lambda crowd: (len(crowd.points), crowd.file.name))
    return [ordered[int(share * len(ordered))] for share in (0.25, 0.5, 0.9)]


def spacing(crowd: Crowd) -> Any:
    """Mean distance of each head to its nearest neighbours, in pixels: (n,)."""
    distances, _ = KDTree(crowd.points).query(crowd.points, k=range(2, NEIGHBOURS + 2))  # the first is itself
    return np.mean(distances, 1)


def deepest(crowds: list[Crowd], count: int = 2) -> list[Crowd]:
    """The photos with the widest range of distances between heads, among those with a hundred heads or more."""

    def depth(crowd: Crowd) -> float:
        near, far = np.quantile(spacing(crowd), (0.9, 0.1))
        return float(near / max(far, 1.0))

    return sorted((crowd for crowd in crowds if len(crowd.points) >= 100), key=depth)[-count:]


@dataclass
class Seen:
    """A network's count of a photo, and the weight of each layer's scales at each head, (n,)."""

    crowd: Crowd
    count: float
    weights: dict[tuple[str, int], Any]


def look_at(trained: Trained, crowd: Crowd) -> Seen:
    captured = capture(trained.model, trained.normalised(read_photo(crowd.file).pixels))
    weights: dict[tuple[str, int], Any] = {}
    for name, view in captured.layers.items():
        y, x = np.array([map_place(view, crowd.size, *point) for point in crowd.points]).T
        at_heads = view.scale_weights()[0].numpy()[:, y, x]
        weights |= {(name, scale): found for scale, found in zip(view.scales, at_heads, strict=True)}
    return Seen(crowd, float(captured.output.double().sum()), weights)


def scales(views: list[Seen]) -> list[Row]:
    """Rank correlation of each scale's weight at a head with the distance to its neighbours, layer by layer."""
    views = [view for view in views if len(view.crowd.points) >= ENOUGH]
    distances = [spacing(view.crowd) for view in views]
    rows = []
    for name, scale in views[0].weights:
        found = [view.weights[name, scale] for view in views]
        together = rank_correlation(np.concatenate(found), np.concatenate(distances))
        within = np.mean([rank_correlation(w, d) for w, d in zip(found, distances, strict=True)])
        place = f"{name.removeprefix('backbone.').replace('.', '_')}_{scale}x{scale}"
        figures = {"correlation": together, "correlation_within_photo": float(within)}
        rows += [
            result("counting_scales", "shanghaitech_a", place, metric, round(value, 3), photos=len(views))
            for metric, value in figures.items()
        ]
    return rows


def errors(views: list[Seen]) -> list[Row]:
    """The errors over each quarter of the photos, by their number of heads, and over all of them."""
    ordered = sorted(views, key=lambda view: len(view.crowd.points))
    truth, found = np.array([(len(view.crowd.points), view.count) for view in ordered]).T
    everything = np.arange(len(views))
    parts = {f"quarter_{n}": part for n, part in enumerate(np.array_split(everything, 4), start=1)}
    parts["all"] = everything
    rows = [row for name, part in parts.items() for row in part_rows(name, truth[part], found[part])]
    each = {view.crowd.file.name: [len(view.crowd.points), round(view.count, 1)] for view in views}
    rows[-1]["each"] = each
    return rows


def part_rows(name: str, heads: Any, found: Any) -> list[Row]:
    error = found - heads
    figures = {
        "mae": round(float(np.abs(error).mean()), 1),
        "mean_error": round(float(error.mean()), 1),
        "median_relative_error": round(100 * float(np.median(np.abs(error) / heads))),
    }
    facts: dict[str, Any] = {"heads": [int(heads.min()), int(heads.max())], "photos": len(heads)}
    return [result("counting_errors", "shanghaitech_a", name, *figure, **facts) for figure in figures.items()]


def rank_correlation(a: Any, b: Any) -> float:
    return float(spearmanr(a, b).statistic)


def draw(trained: Trained, crowds: list[Crowd], to: Path) -> None:
    figure = new_figure(11, 2.9 * len(crowds))
    for crowd, row in zip(crowds, figure.subplots(len(crowds), 3, squeeze=False), strict=True):
        pixels = read_photo(crowd.file).pixels
        predicted = apply_in_tiles(trained.model, pixels, 1024, prepare=trained.normalised)[0, 0].numpy()
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
