"""acda look: what the filters of a network do on a photo."""

import json as json_format
from typing import Annotated, Any

from acda.cli.arguments import OnePhoto, Out, Weights, arg
from acda.insight.draw import draw_look
from acda.insight.geometry import map_place
from acda.insight.report import at_places, summary
from acda.insight.subject import find_subject, look_inside
from acda.photos.batch import output_path
from acda.photos.files import read_photo, revealed
from acda.support.devices import Device
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
    device: Device = "auto",
) -> None:
    """Draw the weight of each scale, the receptive fields, and the filters at chosen places, in one PNG.

    Args:
        photo: any image file.
        out: the picture; NAME_look.png beside the photo unless given.
        model: the name of weights or of a fresh network, a run, or a file of weights.
        layer: name of the layer; the first adaptive one unless given.
        at: places on the photo, x,y in pixels; the most different ones unless given.
        json: print the numbers instead of drawing.
        device: what to compute on; auto is the first of cuda, mps and cpu that is available.
    """
    subject = find_subject(model, device)
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
    to = output_path(photo, None, "_look", False).with_suffix(".png")
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
