"""Beside the counters of Table 3: two that do not look at the photo, the paper's pictures, and what its Figure 7 says.

    python paper/counting.py --data DIR      # DIR as for run.py

Writes results/counting_constants.json, and of the packaged counter pictures/counting.png: photo, truth and prediction
with both counts; pictures/counting_scales.png: the weight of each scale, where heads are large near and
small far; results/counting_scales.json: whether large filters are preferred for large heads; and
results/counting_errors.json: how wrong the count of a photo is, for few and for many heads.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from figures import draw_scales
from run import HERE, RESULTS
from scipy.spatial import KDTree
from scipy.stats import spearmanr

from acda.insight import capture
from acda.insight.draw import map_place
from acda.photos.files import read_photo
from acda.photos.tiles import apply_in_tiles
from acda.photos.weights import Trained, load
from acda.support.drawing import new_figure, save
from acda.support.environment import write_results
from acda.training.data.crowds import Crowd, density_map, read_crowds

# A head's size is not annotated. Its distance to its nearest neighbours, this many, stands in for it.
NEIGHBOURS = 3
# Photos with fewer heads than this say nothing about order within them.
ENOUGH = 20
# Photos with an agency's mark on them are not ours to print; the next in order stands in.
NOT_TO_PRINT = {"IMG_158.jpg"}


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
    write_results(RESULTS / "counting_constants.json", rows, budget="no training", seed=0)
    trained = load("crowd_counter")
    draw(trained, pick(test), HERE / "pictures" / "counting.png")
    draw_scales(trained, [crowd.file for crowd in deepest(test)], HERE / "pictures" / "counting_scales.png")
    views = [seen(trained, crowd) for crowd in test]
    budget = f"the packaged crowd_counter; one pass over each of {len(test)} test photos"
    write_results(RESULTS / "counting_scales.json", scales(views), budget=budget, seed=0)
    write_results(RESULTS / "counting_errors.json", errors(views), budget=budget, seed=0)


def rows_of(name: str, errors: Any) -> list[dict[str, Any]]:
    common = {"table": "counting", "dataset": "ShanghaiTech A", "name": name}
    return [
        {**common, "metric": "MAE", "value": round(float(np.abs(errors).mean()), 2)},
        {**common, "metric": "root MSE", "value": round(float(np.sqrt(np.square(errors).mean())), 2)},
    ]


def pick(crowds: list[Crowd]) -> list[Crowd]:
    """Three photos, by their number of heads: at a quarter, in the middle, at nine tenths. Nobody chose them."""
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
    """What a network made of a photo: its count, and the weight of each layer's scales at each head, (n,)."""

    crowd: Crowd
    count: float
    weights: dict[tuple[str, int], Any]


def seen(trained: Trained, crowd: Crowd) -> Seen:
    captured = capture(trained.model, trained.normalised(read_photo(crowd.file).pixels))
    weights: dict[tuple[str, int], Any] = {}
    for name, view in captured.layers.items():
        y, x = np.array([map_place(view, crowd.size, *point) for point in crowd.points]).T
        at_heads = view.scale_weights()[0].numpy()[:, y, x]
        weights |= {(name, scale): found for scale, found in zip(view.scales, at_heads, strict=True)}
    return Seen(crowd, float(captured.output.double().sum()), weights)


def scales(views: list[Seen]) -> list[dict[str, Any]]:
    """Rank correlation of each scale's weight at a head with the distance to its neighbours, layer by layer."""
    views = [view for view in views if len(view.crowd.points) >= ENOUGH]
    distances = [spacing(view.crowd) for view in views]
    common = {"table": "counting_scales", "dataset": f"{len(views)} photos"}
    rows = []
    for name, scale in views[0].weights:
        found = [view.weights[name, scale] for view in views]
        together = rank_correlation(np.concatenate(found), np.concatenate(distances))
        within = np.mean([rank_correlation(w, d) for w, d in zip(found, distances, strict=True)])
        own = {**common, "name": f"{name.removeprefix('backbone.')}, weight of {scale}×{scale}"}
        rows += [
            {**own, "metric": "all heads together", "value": round(together, 3)},
            {**own, "metric": "within a photo, mean", "value": round(float(within), 3)},
        ]
    return rows


def errors(views: list[Seen]) -> list[dict[str, Any]]:
    """Over each quarter of the photos, by their number of heads, and over all of them."""
    ordered = sorted(views, key=lambda view: len(view.crowd.points))
    truth, found = np.array([(len(view.crowd.points), view.count) for view in ordered]).T
    rows = []
    for part in [*np.array_split(np.arange(len(views)), 4), np.arange(len(views))]:
        heads, error = truth[part], found[part] - truth[part]
        name = f"{heads.min():.0f} to {heads.max():.0f} heads, {len(part)} photos"
        common = {"table": "counting_errors", "dataset": "", "name": name}
        half = round(100 * float(np.median(np.abs(error) / heads)))
        rows += [
            {**common, "metric": "MAE", "value": round(float(np.abs(error).mean()), 1)},
            {**common, "metric": "mean of count − truth", "value": round(float(error.mean()), 1)},
            {**common, "metric": "error of half of the photos is below, %", "value": half},
        ]
    each = {view.crowd.file.name: [len(view.crowd.points), round(view.count, 1)] for view in views}
    rows[-1]["each"] = each
    return rows


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
