"""acda look: what the filters of a network do on a photo."""

import json as json_format
from math import isnan
from typing import Annotated, Any

from acda.cli.arguments import OnePhoto, Out, Weights, arg
from acda.insight.draw import draw_look
from acda.insight.geometry import map_place, photo_place
from acda.insight.subject import find_subject, look_inside
from acda.insight.view import LayerView
from acda.photos.batch import output_path
from acda.photos.files import read_photo, revealed
from acda.support.lines import printable
from acda.support.names import unknown


def look(
    photo: OnePhoto,
    /,
    out: Out = None,
    model: Weights = "denoiser",
    layer: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(optional)")] = None,
    at: Annotated[tuple[str, ...], arg(metavar="X,Y [X,Y ...]", help_behavior_hint="(optional)")] = (),
    json: bool = False,
) -> None:
    """Draw the weight of each scale, the receptive fields, and the filters at chosen places, in one PNG.

    Args:
        photo: any image file.
        out: the picture; beside the photo, marked `look`, unless given.
        model: the name of weights or of a fresh network, a run, or a file of weights.
        layer: name of the layer; the first adaptive one unless given.
        at: places on the photo, x,y in pixels; the most different ones unless given.
        json: print the numbers instead of drawing.
    """
    subject = find_subject(model)
    pixels = revealed(read_photo(photo))
    seen = look_inside(subject, pixels)
    views = seen.captured.layers
    chosen = next(iter(views)) if layer is None else layer
    if chosen not in views:
        raise unknown("adaptive layer", chosen, views)
    view, given = views[chosen], pixels.shape[2:]
    places = [map_place(view, (given[0], given[1]), *_point(text, given)) for text in at] or view.most_different(3)
    if json:
        numbers: dict[str, Any] = {
            "photo": str(photo),
            "model": model,
            "layers": {key: summary(v) for key, v in views.items()},
        }
        numbers["places"] = at_places(view, (given[0], given[1]), places)
        print(json_format.dumps(numbers, indent=1, ensure_ascii=False))
        return
    to = output_path(photo, None, "look", False).with_suffix(".png")
    if out is not None:
        to = out / to.name if out.is_dir() else out if out.suffix else out.with_name(f"{out.name}.png")
    if to.exists() and to.samefile(photo):
        raise ValueError(f"{to} is the photo itself. Give another -o.")
    draw_look(seen.photo, view, places, to)
    print(printable(to))


def _point(text: str, size: Any) -> tuple[float, float]:
    """x,y within the photo."""
    try:
        x, y = (float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"--at needs x,y in pixels, for instance 120,80; got {text!r}.") from error
    height, width = size
    if not (0 <= x < width and 0 <= y < height):
        raise ValueError(f"--at {text} is outside the photo of {width}×{height} pixels.")
    return x, y


def summary(view: LayerView) -> dict[str, Any]:
    """A layer in a few numbers, averaged over the photo."""
    weights, field = view.scale_weights()[0], view.receptive_field()[0]
    return {
        "size": list(view.size),
        "scale weights": {
            f"{s}x{s}": round(float(w), 4) for s, w in zip(view.scales, weights.mean((1, 2)), strict=True)
        },
        "receptive field, pixels of the layer": {key: round(float(v), 3) for key, v in _spread(field).items()},
        "diversity": rounded(float(view.diversity()[0]), 4),
    }


def rounded(value: float, digits: int) -> float | None:
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
