"""acda evaluate: score a run again."""

import sys
from typing import Annotated

import tyro

from acda.photos.weights import find_weights
from acda.support.arguments import Folder
from acda.support.devices import Device


def evaluate(run: Annotated[str, tyro.conf.arg(metavar="RUN")], /, data: Folder, device: Device = "cpu") -> None:
    """Score a network on the test images of a folder, and print the metrics.

    Args:
        run: folder of a run, its weights.safetensors or a checkpoint, or the name of weights.
        data: folder of the dataset.
        device: what to compute on; the last digits of scores depend on it.
    """
    from acda.training.run import evaluate as score

    weights = find_weights(run)
    if str(weights) != run and weights.suffix == ".ckpt":
        print(f"acda evaluate: {run} is not complete; this is its {weights.name}.", file=sys.stderr)
    scores = score(run, data, device)
    for name, value in scores.items():
        print(f"{name:<16} {value:>12,.4f}" if name != "images" else f"{name:<16} {value:>12,.0f}")
