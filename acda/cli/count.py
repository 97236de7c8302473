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
        out: folder for pictures NAME_count.png, each photo with its density map and number; or a file for one picture.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        side: photos whose longer side has more pixels than this are made smaller; chosen by the weights unless given.
        tile: side of the tiles in pixels, which does not change the count; chosen by the free memory unless given.
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
