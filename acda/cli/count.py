"""acda count: how many people are on a photo."""

import json as json_format
from pathlib import Path
from typing import Any

from acda.cli.arguments import Out, Photos, Pixels, Weights
from acda.models import CrowdCounter
from acda.photos.batch import Places, are_several, each_photo, find_photos
from acda.photos.files import FORMATS, Photo, read_photo, revealed
from acda.photos.tiles import apply_in_tiles
from acda.photos.weights import Trained, find_weights, load
from acda.support.drawing import new_figure, save
from acda.support.lines import printable


def count(
    photos: Photos,
    /,
    json: bool = False,
    out: Out = None,
    weights: Weights = "crowd_counter",
    tile: Pixels = 1024,
) -> int:
    """Count the people on photos, one line each.

    Args:
        photos: files, folders or patterns.
        json: print a list of {"file": …, "count": …} instead.
        out: folder for pictures, marked `count`: the density drawn over each photo, with the number; or one's file.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        tile: side of the parts in which a large photo is looked at, in pixels; the count does not depend on it.
    """
    if tile < 1:
        raise ValueError(f"--tile needs to be positive; got {tile}.")
    trained = load(find_weights(weights, "crowd_counter"))
    if not isinstance(trained.model, CrowdCounter):
        raise ValueError(f"{weights} has a {trained.facts['model']}, which does not count people.")
    results: list[dict[str, Any]] = []
    paths = find_photos(photos, "count")
    places, one_file = Places(paths), out is not None and is_file(out, are_several(list(photos), paths))

    def count_one(path: Path) -> None:
        photo = read_photo(path)
        density = density_of(trained, photo, tile)
        number = max(0.0, float(density.sum()))  # an empty square may sum to a little less
        results.append({"file": str(path), "count": round(number, 1)})
        if not json:
            print(f"{number:8.0f}  {printable(path)}", flush=True)
        if out is not None:
            to = out if one_file else out / f"{path.stem}_count.png"
            places.take(to, path)
            draw(photo, density, number, to)

    status = each_photo("count", paths, count_one)
    if json:
        print(json_format.dumps(results, indent=1))  # in ASCII: names may be no text
    return status


def is_file(out: Path, several: bool) -> bool:
    """Whether pictures go to out itself, which is named as one, or into it, a folder."""
    named_so = out.suffix.lower() in FORMATS and not out.is_dir()
    if several and named_so:
        raise ValueError(f"pictures of several photos, or of a folder, need a folder; {out} would be a file.")
    if out.is_file() and not named_so:
        raise ValueError(f"{out} is a file, and not a folder for pictures. Give another place.")
    return named_so


def density_of(trained: Trained, photo: Photo, tile: int) -> Any:
    """The density map of what is seen of a photo, in float64 so that its sum does not depend on the order."""
    return apply_in_tiles(trained.model, revealed(photo), tile, prepare=trained.normalised)[0, 0].double()


def draw(photo: Photo, density: Any, number: float, to: Path) -> None:
    """The photo, and over it the density where there is any."""
    grey = revealed(photo)[0].float().mean(0).numpy()
    height, width = grey.shape
    figure = new_figure(8, 6.9 * min(max(height / width, 0.2), 3) + 0.5)
    axes = figure.subplots()
    axes.imshow(grey, cmap="gray", vmin=0, vmax=400, extent=(0, width, height, 0))
    values = density.clamp_min(0).numpy()
    top = max(float(values.max()), 1e-6)
    shown = axes.imshow(
        values, cmap="inferno", vmin=0, vmax=top, alpha=(values / top) ** 0.5, extent=(0, width, height, 0)
    )
    axes.set_title(f"{number:,.0f} people")
    axes.set_axis_off()
    figure.colorbar(shown, ax=axes, shrink=0.6, label="people per 4×4 pixels")
    save(figure, to)
