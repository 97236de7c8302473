"""acda demo: the paper's toy pattern detection, an ordinary convolution beside an adaptive one."""

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acda.cli.arguments import Count, Folder
from acda.layers import AdaptiveConv2d
from acda.layers.adaptive_conv import ADAPTIVITY
from acda.support.drawing import new_figure, save
from acda.support.environment import describe
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.data.patterns import PatternMap, pattern_map

SHIFT = 20
LABELS = {"conv": "Conv2d 7×7", "acda": "ACDA 7×7"}


def demo(seed: Count = 0, out: Folder = Path("demo"), steps: Count = 1500, as_in_paper: bool = False) -> None:
    """Train one 7×7 convolution and one adaptive 7×7 convolution to find 25 patterns in one noisy image.

    Both are trained on the same image with Adam (learning rate 0.01, mean square error), and then tested on the image
    shifted by 20 pixels. Writes the figure demo.png and the numbers demo.json.

    Args:
        seed: of the image and of both layers.
        out: folder for the figure and the numbers.
        steps: of training; the error of the adaptive layer is still falling at the default.
        as_in_paper: SGD (learning rate 0.01, momentum 0.9) and the paper's start of the layer. It learns more slowly.
    """
    if steps < 1:
        raise ValueError(f"--steps needs at least 1; got {steps}.")
    # Find out before the training, not after it, whether the result can be written.
    need("matplotlib", "cli")
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    scene = pattern_map(seed)
    torch.manual_seed(seed)
    adaptivity = 1.0 if as_in_paper else ADAPTIVITY
    layers = {"conv": nn.Conv2d(1, 1, 7, padding=3), "acda": AdaptiveConv2d(1, 1, 7, padding=3, adaptivity=adaptivity)}
    curves = {name: train(layer, scene, steps, name, as_in_paper) for name, layer in layers.items()}
    scenes = {"": scene, "_shifted": scene.shifted(SHIFT)}
    outputs = {name + where: _predict(layer, s) for where, s in scenes.items() for name, layer in layers.items()}
    errors = {name: _error(y, scenes["_shifted" if "shifted" in name else ""]) for name, y in outputs.items()}
    numbers = {
        **errors,
        "steps": steps,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "curves": curves,
        "circumstances": describe(),
    }
    print(_summary(numbers))
    with written_whole(out / "demo.json") as file:
        file.write_text(json.dumps(numbers, indent=1) + "\n")
    save(_draw(scenes, outputs, errors), out / "demo.png")
    print(f"Written: {out / 'demo.png'}, {out / 'demo.json'}")


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


def _summary(numbers: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"mean square error after {numbers['steps']} steps, seed {numbers['seed']}, {numbers['seconds']:.0f} s",
            f"             {'input':>9}  shifted by {SHIFT} pixels",
            *(
                f"  {label:<10} {numbers[name]:9.2e}  {numbers[name + '_shifted']:9.2e}"
                for name, label in LABELS.items()
            ),
            f"ACDA's error is {numbers['conv'] / numbers['acda']:.1f} times lower.",
        ]
    )


def _draw(scenes: dict[str, PatternMap], outputs: dict[str, Tensor], errors: dict[str, float]) -> Any:
    """Two rows, as it was and shifted: input, target, Conv, ACDA."""
    figure = new_figure(12, 6.0)
    axes = figure.subplots(2, 4)
    detection: Any = None
    for row, (where, scene) in enumerate(scenes.items()):
        axes[row, 0].imshow(scene.image[0, 0].numpy(), cmap="gray")
        axes[row, 0].set_title("input" if not where else f"shifted by {SHIFT} pixels")
        panels = [("target", scene.target)]
        panels += [
            (f"{label}, error {errors[name + where]:.1e}", outputs[name + where]) for name, label in LABELS.items()
        ]
        for axis, (title, map_) in zip(axes[row, 1:], panels, strict=True):
            detection = axis.imshow(map_[0, 0].numpy(), cmap="viridis", vmin=0, vmax=1)
            axis.set_title(title)
    for axis in axes.flat:
        axis.set_xticks([])
        axis.set_yticks([])
    figure.colorbar(detection, ax=axes[:, 1:], label="centre of a pattern", shrink=0.6)
    return figure
