"""acda count: how many people are on a photo."""

import json as json_format
from pathlib import Path
from typing import Any

from acda.cli.arguments import Out, Photos, Tile, Weights
from acda.photos.count_files import count_files, load_counter
from acda.support.devices import Device
from acda.support.lines import print_line


def count(
    photos: Photos,
    /,
    json: bool = False,
    out: Out = None,
    weights: Weights = "lite_counter",
    side: Tile = None,
    tile: Tile = None,
    device: Device = "auto",
) -> int:
    """Count the people on photos, one line each.

    Args:
        photos: files, folders or patterns.
        json: print a list of {"file": …, "count": …} instead.
        out: folder for pictures of each photo with its density map and number, as NAME_count.png; for one photo also a
            file.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        side: largest width or height that is processed, in pixels; larger photos are made smaller first. Chosen by the
            weights unless given. Give more for tiny heads on a large photo.
        tile: side of the tiles in which a photo is processed, in pixels; the count does not depend on it. Chosen by the
            free memory unless given.
        device: what to compute on; auto is the first of cuda, mps and cpu that is available.
    """
    results: list[dict[str, Any]] = []

    def done(path: Path, number: float) -> None:
        results.append({"file": str(path), "count": round(number, 1)})
        if not json:
            print_line(f"{number:8.0f}  {path}")

    status = count_files(photos, load_counter(weights, "lite_counter", device), out, done, tile, side)
    if json:
        print(json_format.dumps(results, indent=1))  # in ASCII: names may be no text
    return status
