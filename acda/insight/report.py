"""What layers do on a photo, in a few numbers that can be written as JSON."""

from math import isnan
from typing import Any

from acda.insight.geometry import photo_place
from acda.insight.view import LayerView


def summary(view: LayerView) -> dict[str, Any]:
    """A layer in a few numbers, averaged over the photo."""
    weights, field = view.scale_weights()[0], view.receptive_field()[0]
    return {
        "size": list(view.size),
        "scale weights": {
            f"{s}x{s}": round(float(w), 4) for s, w in zip(view.scales, weights.mean((1, 2)), strict=True)
        },
        "receptive field, pixels of the layer": {key: round(float(v), 3) for key, v in _spread(field).items()},
        "diversity": _rounded(float(view.diversity()[0]), 4),
    }


def _rounded(value: float, digits: int) -> float | None:
    """For JSON, which has no NaN."""
    return None if isnan(value) else round(value, digits)


def _spread(field: Any) -> dict[str, Any]:
    return {"mean": field.mean(), "least": field.min(), "most": field.max()}


def at_places(view: LayerView, photo_size: tuple[int, int], places: list[tuple[int, int]]) -> list[dict[str, Any]]:
    """Each place: where on the photo, the weights of its scales, its receptive field."""
    weights, field = view.scale_weights()[0], view.receptive_field()[0]
    found = []
    for row, column in places:
        x, y = photo_place(view, photo_size, (row, column))
        own = zip(view.scales, weights[:, row, column], strict=True)
        found.append(
            {
                "x": round(x, 1),
                "y": round(y, 1),
                "scale weights": {f"{s}x{s}": round(float(w), 4) for s, w in own},
                "receptive field, pixels of the layer": round(float(field[row, column]), 3),
            }
        )
    return found
