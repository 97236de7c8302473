"""The paper's toy problem (its Section 3.3): an ordinary convolution beside an adaptive one, trained on one image."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acda.layers import AdaptiveConv2d
from acda.layers.adaptive_conv import ADAPTIVITY
from acda.support.drawing import new_figure
from acda.support.extras import need
from acda.training.data.patterns import PatternMap, pattern_map

SHIFT = 20
LABELS = {"conv": "Conv2d 7×7", "acda": "ACDA 7×7"}


@dataclass(frozen=True)
class Comparison:
    """Both layers after training. Keys are "" and "_shifted" for scenes; behind the name of a layer for the rest.

    curves: the error of each layer at every hundredth of the steps
    """

    scenes: dict[str, PatternMap]
    outputs: dict[str, Tensor]
    errors: dict[str, float]
    curves: dict[str, list[float]]


def compare(seed: int, steps: int, as_in_paper: bool = False) -> Comparison:
    """Train both layers on an image of this seed, and apply them to the image and to the image shifted.

    as_in_paper: train with SGD, from the paper's start of the layer
    """
    scene = pattern_map(seed)
    torch.manual_seed(seed)
    adaptivity = 1.0 if as_in_paper else ADAPTIVITY
    layers = {"conv": nn.Conv2d(1, 1, 7, padding=3), "acda": AdaptiveConv2d(1, 1, 7, padding=3, adaptivity=adaptivity)}
    curves = {name: train(layer, scene, steps, name, as_in_paper) for name, layer in layers.items()}
    scenes = {"": scene, "_shifted": scene.shifted(SHIFT)}
    outputs = {name + where: _predict(layer, s) for where, s in scenes.items() for name, layer in layers.items()}
    errors = {name: _error(y, scenes["_shifted" if "shifted" in name else ""]) for name, y in outputs.items()}
    return Comparison(scenes, outputs, errors, curves)


def train(layer: nn.Module, scene: PatternMap, steps: int, name: str, as_in_paper: bool) -> list[float]:
    """Adam, or SGD as the paper states it, with momentum; returns the error at every hundredth of the way."""
    tqdm = need("tqdm", "cli").tqdm
    optimizer: torch.optim.Optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    if as_in_paper:
        optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    every, curve = max(1, steps // 100), []
    # disable=None: a bar on a terminal, silence in a file.
    for step in (bar := tqdm(range(steps), desc=f"{name:>4}", unit="step", disable=None)):
        loss = (layer(scene.image) - scene.target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % every == 0:
            curve.append(loss.item())
            bar.set_postfix_str(f"error {loss.item():.2e}")
    return curve


def _predict(layer: nn.Module, scene: PatternMap) -> Tensor:
    with torch.no_grad():
        return layer.eval()(scene.image)


def _error(y: Tensor, scene: PatternMap) -> float:
    return float((y - scene.target).square().mean())


def draw(compared: Comparison) -> Any:
    """A figure with two rows, the image and the shifted image: input, target, and the outputs of both layers."""
    figure = new_figure(12, 6.0)
    axes = figure.subplots(2, 4)
    detection: Any = None
    for row, (where, scene) in enumerate(compared.scenes.items()):
        axes[row, 0].imshow(scene.image[0, 0].numpy(), cmap="gray")
        axes[row, 0].set_title("input" if not where else f"shifted by {SHIFT} pixels")
        panels = [("target", scene.target)]
        panels += [
            (f"{label}, error {compared.errors[name + where]:.1e}", compared.outputs[name + where])
            for name, label in LABELS.items()
        ]
        for axis, (title, map_) in zip(axes[row, 1:], panels, strict=True):
            detection = axis.imshow(map_[0, 0].numpy(), cmap="viridis", vmin=0, vmax=1)
            axis.set_title(title)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(detection, ax=axes[:, 1:], label="centre of a pattern", shrink=0.6)
    return figure
