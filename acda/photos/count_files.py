"""Count the people on files of photos, one by one: what `acda count` does."""

from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from acda.photos.batch import Places, are_several, each_photo, find_photos
from acda.photos.count import PeopleCounter, people_in
from acda.photos.files import FORMATS, Photo, read_photo, revealed
from acda.photos.restore import check_tile
from acda.photos.weights import find_weights, load
from acda.support.devices import device_named
from acda.support.drawing import new_figure, save


def load_counter(weights: str | Path, own: str | None = None, device: str = "cpu") -> PeopleCounter:
    """Weights that count people. own: as in find_weights    device: as in device_named"""
    where = device_named(device)
    trained = load(find_weights(weights, own))
    if not isinstance(trained, PeopleCounter):
        raise ValueError(f"{weights} has a {trained.facts['model']}, which does not count people.")
    return trained.to(where)


def count_files(
    names: Iterable[str],
    counter: PeopleCounter,
    out: Path | None,
    done: Callable[[Path, float], None],
    tile: int | None,
    side: int | None = None,
) -> int:
    """Count photo by photo; one that fails is reported and skipped.

    out: folder for pictures of the densities, or the file of one    done: is called with each photo and its count
    tile, side: as in PeopleCounter
    returns: the exit status
    """
    check_tile(tile)
    names = list(names)
    paths = find_photos(names, "_count")
    places, one_file = Places(paths), out is not None and is_file(out, are_several(names, paths))

    def count_one(path: Path) -> None:
        photo = read_photo(path)
        density = counter.density_of(photo, tile, side)
        done(path, people_in(density))
        if out is not None:
            to = out if one_file else out / f"{path.stem}_count.png"
            places.take(to, path)
            draw_count(photo, density, to)

    return each_photo("count", paths, count_one)


def is_file(out: Path, several: bool) -> bool:
    """Whether pictures go to out itself, which is named as one, or into it, a folder."""
    named_so = out.suffix.lower() in FORMATS and not out.is_dir()
    if several and named_so:
        raise ValueError(f"pictures of several photos, or of a folder, need a folder; {out} would be a file.")
    if out.is_file() and not named_so:
        raise ValueError(f"{out} is a file, and not a folder for pictures. Give another place.")
    return named_so


def draw_count(photo: Photo, density: Tensor, to: Path) -> None:
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
    axes.set_title(f"{people_in(density):,.0f} people")
    axes.set_axis_off()
    figure.colorbar(shown, ax=axes, shrink=0.6, label="people per cell")
    save(figure, to)
