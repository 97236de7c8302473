"""Files of photos, restored one by one: what `acda restore`, `denoise` and `upscale` do."""

import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from acda.photos.batch import Places, are_several, each_photo, find_photos, output_path, real
from acda.photos.files import format_for, read_photo, without_room, write_photo
from acda.photos.restore import PhotoRestorer, check_settings, size_after
from acda.photos.tiles import Progress, Tile
from acda.photos.weights import find_weights, load
from acda.support.devices import device_named
from acda.support.extras import need
from acda.support.files import check_room
from acda.support.lines import complain, printable

# Names for people of the metadata of a photo.
ABOUT = {"exif": "EXIF", "icc_profile": "colour profile"}


def load_restorer(weights: str | Path, own: str | None = None, device: str = "cpu") -> PhotoRestorer:
    """Weights that turn a photo into a photo. own: as in find_weights    device: as in device_named"""
    where = device_named(device)
    trained = load(find_weights(weights, own))
    if not isinstance(trained, PhotoRestorer):
        raise ValueError(f"{weights} has a {trained.facts['model']}, which does not restore photos.")
    return trained.to(where)


def restore_files(
    verb: str,
    names: Iterable[str],
    restorer: PhotoRestorer,
    out: Path | None,
    mark: str,
    overwrite: bool,
    done: Callable[[Path], None],
    *,
    strength: float,
    tile: int | None,
    scale: float = 1.0,
) -> int:
    """Read, restore and write photo by photo; one that fails is reported and skipped.

    names, out, mark, overwrite: as in find_photos, output_path and Places    done: is called with each file written
    strength, scale, tile: as in PhotoRestorer    returns: the exit status
    """
    check_settings(strength, scale, tile)
    names = list(names)
    paths = find_photos(names, mark)
    places = Places(paths, overwrite)
    several = are_several(names, paths)

    def one(path: Path) -> None:
        to = output_path(path, out, mark, several)
        photo = read_photo(path)
        places.take(to, path)
        # Report what cannot be done before hours of work.
        if photo.lost and real(to) == real(path):
            raise ValueError(f"{path} has {photo.lost}: that would be lost. Give an --out.")
        if photo.lost:
            complain(verb, f"{path} has {photo.lost}.")
        kind = format_for(to, *size_after(scale, photo.pixels))
        check_room(to)
        if missing := without_room(photo, kind):
            what = " and ".join(ABOUT[name] for name in sorted(missing))
            complain(verb, f"{kind} has no room for the {what} of {path}; {to} is without.")
        write_photo(restorer.restored(photo, strength, scale, tile, bar(path.name)), to)
        done(to)

    return each_photo(verb, paths, one)


def bar(name: str) -> Progress:
    """A progress bar over tiles, where a person is looking."""

    def shown(tiles: list[Tile]) -> Iterable[Tile]:
        progress: Iterable[Tile] = need("tqdm", "photos").tqdm(
            tiles, desc=printable(name), unit="tile", disable=not sys.stderr.isatty(), leave=False
        )
        return progress

    return shown
