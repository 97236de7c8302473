"""One style for all pictures: figures, colours that survive print and colour blindness, files written whole."""

from pathlib import Path
from typing import Any

from acda.support.extras import need
from acda.support.files import written_whole

# Colours of viridis, dark to light; grey for what is only shown for comparison.
INDIGO, TEAL, GREEN, GREY = "#414487", "#2a788e", "#7ad151", "#9a9a9a"
# For marks on photos: a light colour for dark parts, with dark edges for light parts.
MARK = "#fde725"


def new_figure(width: float, height: float) -> Any:
    """A matplotlib figure of so many inches, whose parts do not overlap."""
    return need("matplotlib.figure", "cli").Figure(figsize=(width, height), layout="constrained")


def save(figure: Any, path: Path, dpi: int = 110) -> None:
    """Write a figure in the format of the suffix, or as a PNG where there is none."""
    with written_whole(path) as file:
        figure.savefig(file, dpi=dpi, format=path.suffix[1:] or "png")
