"""The figures of the paper that need no unreleased data, drawn again, and the diversity of α.

    python -m paper.figures --data DIR      # DIR as for paper.run

Writes pictures/: bases.png (Figure B), decomposition.png (A), and of the super-resolver positions.png (C) and
scales.png (Figure 7; the paper's shows crowds, see counting.py). Writes results/diversity.json: the trained networks
on test photos of the kind that they were trained for, and the same networks untrained.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch

from acda import decompose_filters, fourier_bessel, multiscale_fourier_bessel
from acda.insight.geometry import map_place
from acda.insight.subject import fitted, look_inside
from acda.insight.view import LayerView
from acda.photos.files import read_photo
from acda.photos.ready import ready
from acda.photos.trained import Trained
from acda.photos.weights import fresh, load
from acda.support.drawing import MARK, new_figure, save
from acda.training.data.crowds import read_crowds
from acda.training.data.pairs import read_pairs
from paper.results import PICTURES, Row, result, write

# At most so many test photos, evenly from the first to the last, are used for the diversity.
PHOTOS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    crowds, cities = data / "shanghaitech/part_A", data / "city100/City100_iPhoneX"
    draw_bases(PICTURES / "bases.png")
    draw_decomposition(PICTURES / "decomposition.png")
    phone = [pair.degraded for pair in read_pairs(cities)[1]]
    draw_positions(load("super_resolver"), phone[0], PICTURES / "positions.png")
    draw_scales(load("super_resolver"), phone[:3], PICTURES / "scales.png")
    rows = [
        *diversity("super_resolver", "city100_iphone", phone),
        *diversity("crowd_counter", "shanghaitech_a", [crowd.file for crowd in read_crowds(crowds)[1]]),
    ]
    budget = "one pass over each photo; the untrained networks' normalisations have seen them once before"
    write("diversity", rows, budget=budget, seed=0)


def draw_bases(path: Path) -> None:
    """Six Fourier-Bessel elements at each of three scales."""
    figure = new_figure(8, 4.3)
    grid = figure.subplots(3, 6)
    for row, side in zip(grid, (3, 5, 7), strict=True):
        shown = [kernel(axes, basis.numpy()) for axes, basis in zip(row, fourier_bessel(side), strict=True)][-1]
        row[0].set_ylabel(f"{side}×{side}")
    colour_bar(figure, shown, grid, "relative to the largest")
    save(figure, path)


def draw_decomposition(path: Path) -> None:
    """Eight 7×7 filters of the kind that networks learn, the six atoms that are nearest to all, and what they give."""
    y, x = np.mgrid[-3:4, -3:4]
    turned = [x * np.cos(angle) + y * np.sin(angle) for angle in np.linspace(0, np.pi, 4, endpoint=False)]
    wanted = [np.cos(1.1 * t + phase) * np.exp(-(x**2 + y**2) / 6) for t in turned for phase in (0, np.pi / 2)]
    bases = multiscale_fourier_bessel(7, dtype=torch.float64)
    found = decompose_filters(torch.from_numpy(np.stack(wanted))[:, None], bases, 6)
    atoms = torch.einsum("ml,lij->mij", found.coefficients, bases)
    made = torch.einsum("om,mij->oij", found.mixing[:, 0], atoms)
    figure = new_figure(9, 3.6)
    grid = figure.subplots(3, 8)
    rows: dict[str, list[Any]] = {"filters": wanted, "atoms": list(atoms.numpy()), "from atoms": list(made.numpy())}
    for row, (label, kernels) in zip(grid, rows.items(), strict=True):
        for axes, values in zip(row, kernels, strict=False):
            shown = kernel(axes, values)
        for axes in row[len(kernels) :]:
            axes.set_axis_off()
        row[0].set_ylabel(label)
    figure.suptitle(f"relative error {found.relative_error:.2f}", fontsize=9)
    colour_bar(figure, shown, grid, "relative to the largest")
    save(figure, path)


def draw_positions(subject: Trained, photo: Path, path: Path) -> None:
    """The first atom at places along the photo's diagonal, which are marked on it."""
    seen = look_inside(subject, read_photo(photo).pixels)
    view = next(iter(seen.captured.layers.values()))
    height, width = seen.photo.shape[2:]
    points = [(width * share, height * share) for share in (0.1, 0.25, 0.4, 0.55, 0.7, 0.85)]
    figure = new_figure(10, 1.9)
    row = figure.subplots(1, 7, width_ratios=[1.5, *[1] * 6])
    row[0].imshow(seen.photo[0].permute(1, 2, 0).numpy(), extent=(0, width, height, 0))
    row[0].set_axis_off()
    for number, (axes, (x, y)) in enumerate(zip(row[1:], points, strict=True), start=1):
        shown = kernel(axes, view.atoms_at(*map_place(view, (height, width), x, y))[0].numpy())
        axes.set_title(f"at {number}", fontsize=8)
        row[0].plot(x, y, "o", markersize=9, markerfacecolor=MARK, markeredgecolor="black")
        row[0].text(x, y, str(number), ha="center", va="center_baseline", fontsize=6.5)
    colour_bar(figure, shown, row[1:], "relative to the largest")
    save(figure, path)


def draw_scales(subject: Trained, photos: list[Path], path: Path) -> None:
    """The weight of each scale over photos, as the paper draws it: in the last layer of those that have most scales."""
    looks = [look_inside(subject, read_photo(photo).pixels) for photo in photos]
    layers = looks[0].captured.layers
    most = max(len(view.scales) for view in layers.values())
    name = [name for name, view in layers.items() if len(view.scales) == most][-1]
    maps = [seen.captured.layers[name].scale_weights()[0].numpy() for seen in looks]
    low, high = np.quantile(np.concatenate([weights.ravel() for weights in maps]), (0.01, 0.99))
    width = 2.7
    heights = [width * seen.photo.shape[2] / seen.photo.shape[3] for seen in looks]
    figure = new_figure(width * (1 + most) + 1.2, sum(heights) + 0.4)
    grid = figure.subplots(len(photos), 1 + most, squeeze=False, height_ratios=heights)
    for row, seen, weights in zip(grid, looks, maps, strict=True):
        row[0].imshow(seen.photo[0].permute(1, 2, 0).numpy())
        for axes, weight in zip(row[1:], weights, strict=True):
            shown = axes.imshow(weight, cmap="viridis", vmin=low, vmax=high)
        for axes in row:
            axes.set_axis_off()
    colour_bar(figure, shown, grid, "part of the energy", extend="both")
    for axes, scale in zip(grid[0, 1:], layers[name].scales, strict=True):
        axes.set_title(f"weight of {scale}×{scale}", fontsize=9)
    grid[0, 0].set_title(name, fontsize=9)
    save(figure, path)


def colour_bar(figure: Any, shown: Any, axes: Any, label: str, extend: str = "neither") -> None:
    bar = figure.colorbar(shown, ax=axes, fraction=0.03, pad=0.02, aspect=30, extend=extend)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)


def kernel(axes: Any, values: Any) -> Any:
    axes.set(xticks=[], yticks=[])
    return axes.imshow(values / max(np.abs(values).max(), 1e-9), cmap="PuOr", vmin=-1, vmax=1)


def diversity(name: str, dataset: str, photos: list[Path]) -> list[Row]:
    """Mean and standard deviation over photos and layers, as in the paper: of a trained network, and untrained."""
    photos = photos[:: -(-len(photos) // PHOTOS)]
    trained = load(name)
    rows = []
    for kind, subject in (("trained", trained), ("fresh", settled(trained, photos))):
        found = [float(view.diversity()[0]) for photo in photos for view in views_of(subject, photo)]
        facts: dict[str, Any] = {"deviation": round(float(np.nanstd(found)), 2), "photos": len(photos)}
        facts["each"] = [round(each, 4) for each in found]
        value = round(float(np.nanmean(found)), 2)
        rows.append(result("diversity", dataset, f"{name}_{kind}", "cosine_distance", value, **facts))
    return rows


def settled(subject: Trained, photos: list[Path]) -> Trained:
    """The same network fresh, its normalisations with the statistics of these photos: without any they do nothing."""
    torch.manual_seed(0)
    model = fresh(subject.facts).train()
    for part in model.modules():
        if isinstance(part, torch.nn.BatchNorm2d):
            part.momentum = None  # the mean over all photos
    with torch.no_grad():
        for photo in photos:
            model(subject.normalised(fitted(subject, read_photo(photo).pixels)))
    return ready(model, subject.statistics, subject.facts)


def views_of(subject: Trained, photo: Path) -> list[LayerView]:
    return list(look_inside(subject, read_photo(photo).pixels).captured.layers.values())


if __name__ == "__main__":
    main()
