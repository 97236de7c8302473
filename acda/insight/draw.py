"""Pictures of what a layer does: the photo, the weight of each scale, receptive fields, filters at chosen places."""

from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from acda.insight.geometry import map_box, photo_place
from acda.insight.view import LayerView
from acda.support.drawing import MARK, new_figure, save


def draw_look(photo: Tensor, view: LayerView, places: list[tuple[int, int]], path: Path) -> None:
    """photo: (1, 3, H, W) of uint8, of the size that the model saw    places: (y, x) on the layer's map"""
    pixels = photo[0].permute(1, 2, 0).numpy()
    height, width = pixels.shape[:2]
    scales, atoms = view.scales, view.layer.num_atoms
    shape = max(0.4, min(2.0, height / width))
    maps = 2 + len(scales)
    above, below = 2.6 * shape + 1.1, 0.95 * len(places) + 0.3
    figure = new_figure(2.6 * maps, above + below)
    upper, lower = figure.subfigures(2, 1, height_ratios=[above, below])
    upper.suptitle(f"{view.name or 'the layer'}: {_describe(view)}", fontsize=10)
    axes = upper.subplots(1, maps)
    for panel in axes:
        panel.set_anchor("N")
    # An invisible bar, so that the photo is as high as the maps.
    _bar(upper, _photo(axes[0], pixels, view, places), axes[0], " ", aspect=20).ax.set_visible(False)
    weights = view.scale_weights()[0].numpy()
    for panel, scale, weight in zip(axes[1:-1], scales, weights, strict=True):
        shown = _map(panel, weight, view, (height, width), "viridis", float(weights.min()), float(weights.max()))
        panel.set_title(f"weight of {scale}×{scale}", fontsize=9)
    _bar(upper, shown, list(axes[1:-1]), "part of the atoms' energy", aspect=60)
    field = view.receptive_field()[0].numpy()
    shown = _map(axes[-1], field, view, (height, width), "magma", float(field.min()), float(field.max()))
    axes[-1].set_title("receptive field", fontsize=9)
    _bar(upper, shown, axes[-1], "r.m.s. distance, the layer's pixels", aspect=20)
    _filters(lower, view, places, atoms)
    save(figure, path)


def _describe(view: LayerView) -> str:
    layer, side, diversity = view.layer, view.layer.window.side, float(view.diversity()[0])
    return (
        f"{layer.in_channels} → {layer.out_channels} channels, {side}×{side}, a filter at each of {view.size[0]}×"
        f"{view.size[1]} places{'' if isnan(diversity) else f'; diversity {diversity:.2f}'}"
    )


def _photo(axes: Any, pixels: Any, view: LayerView, places: list[tuple[int, int]]) -> Any:
    shown = axes.imshow(pixels, extent=(0, pixels.shape[1], pixels.shape[0], 0))
    axes.set_title("photo", fontsize=9)
    axes.set_axis_off()
    for number, place in enumerate(places, start=1):
        x, y = photo_place(view, pixels.shape[:2], place)
        axes.plot(x, y, "o", markersize=11, markerfacecolor=MARK, markeredgecolor="black")
        axes.text(x, y, str(number), ha="center", va="center_baseline", fontsize=7.5, color="black")
    return shown


def _map(axes: Any, values: Any, view: LayerView, size: tuple[int, int], colours: str, low: float, high: float) -> Any:
    left, top, right, bottom = map_box(view, size)
    axes.set_axis_off()
    shown = axes.imshow(values, cmap=colours, vmin=low, vmax=high, extent=(left, right, bottom, top))
    axes.set(xlim=(0, size[1]), ylim=(size[0], 0))
    return shown


def _filters(figure: Any, view: LayerView, places: list[tuple[int, int]], atoms: int) -> None:
    """For each place its atoms, then the full filter between the first channels."""
    grid = figure.subplots(len(places), atoms + 1, squeeze=False)
    for number, (place, row) in enumerate(zip(places, grid, strict=True), start=1):
        own = view.atoms_at(*place).numpy()
        for m, axes in enumerate(row[:-1]):
            _kernel(axes, own[m] / max(float(np.abs(own).max()), 1e-9))
            if number == 1:
                axes.set_title(f"atom {m + 1}", fontsize=8)
        full = view.filter_at(*place, 0, 0).numpy()
        shown = _kernel(row[-1], full / max(float(np.abs(full).max()), 1e-9))
        if number == 1:
            row[-1].set_title("filter, channel 0 → 0", fontsize=8)
        row[0].set_ylabel(str(number), rotation=0, va="center", labelpad=12, fontsize=10)
    bar = figure.colorbar(shown, ax=grid, fraction=0.02, pad=0.01)
    bar.set_label("relative weight", fontsize=8)
    bar.ax.tick_params(labelsize=8)


def _kernel(axes: Any, values: Any) -> Any:
    axes.set(xticks=[], yticks=[])
    return axes.imshow(values, cmap="PuOr", vmin=-1, vmax=1)


def _bar(figure: Any, shown: Any, axes: Any, label: str, aspect: int) -> Any:
    bar = figure.colorbar(shown, ax=axes, location="bottom", fraction=0.04, pad=0.02, aspect=aspect)
    bar.set_label(label, fontsize=8)
    bar.ax.tick_params(labelsize=8)
    return bar
