"""Learning curves of a run, as a picture."""

from pathlib import Path
from typing import Any

from acda.support.drawing import GREEN, INDIGO, new_figure, save


def draw_curves(epochs: list[dict[str, Any]], monitored: str, path: Path) -> None:
    """The monitored metric and the losses over the epochs."""
    figure = new_figure(9, 3.2)
    left, right = figure.subplots(1, 2)
    numbers = [e["epoch"] for e in epochs]
    left.plot(numbers, [e.get(monitored) for e in epochs], color=INDIGO, marker=".")
    left.set(xlabel="epoch", ylabel=f"{monitored}, test", title=f"{monitored}: {epochs[-1][monitored]:.4g} at the end")
    for key, colour in (("train loss", GREEN), ("loss", INDIGO)):
        if key in epochs[-1]:
            right.plot(
                numbers,
                [e.get(key) for e in epochs],
                color=colour,
                marker=".",
                label="test loss" if key == "loss" else key,
            )
    right.set(xlabel="epoch", ylabel="loss")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if right.lines:
        right.legend()
    save(figure, path)
