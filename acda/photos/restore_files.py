"""Files of photos, restored one by one: what `acda restore`, `denoise` and `upscale` do."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from acda.photos.batch import Places, are_several, check_naming, each_photo, find_photos, output_path, real
from acda.photos.files import FORMATS, Photo, format_for, has_sixteen_bits, read_photo, without_room, write_photo
from acda.photos.restore import PhotoRestorer, check_settings, size_after
from acda.photos.sixteen_bits import KINDS
from acda.photos.tiles import Progress, Tile, farthest_seen
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
    done: Callable[[object], None],
    *,
    strength: float,
    tile: int | None,
    scale: float = 1.0,
    suffix: str | None = None,
    form: str | None = None,
    jobs: int = 1,
    dry_run: bool = False,
) -> int:
    """Read, restore and write photo by photo; one that fails is reported and skipped.

    names, out, mark, overwrite: as in find_photos, output_path and Places    done: is called with each file written
    strength, scale, tile: as in PhotoRestorer    suffix, form: as in output_path    jobs: photos at a time
    dry_run: say what would be written, and write nothing    returns: the exit status
    """
    check_settings(strength, scale, tile)
    check_naming(suffix, form)
    names = list(names)
    paths = find_photos(names, mark if suffix is None else suffix)
    places = Places(paths, overwrite)
    several = are_several(names, paths)

    def one(path: Path) -> None:
        to = output_path(path, out, mark, several, suffix, form)
        photo = read_photo(path, deep=True)
        places.take(to, path)
        # Errors are raised before hours of work, not after.
        lost = lost_on_the_way(photo, to)
        if lost and real(to) == real(path):
            raise ValueError(f"{path} has {lost}: that would be lost. Give an --out.")
        if lost:
            complain(verb, f"{path} has {lost}.")
        kind = format_for(to, *size_after(scale, photo.pixels))
        if dry_run:
            return done(f"{path} → {to}")
        check_room(to)
        if missing := without_room(photo, kind):
            what = " and ".join(ABOUT[name] for name in sorted(missing))
            complain(verb, f"{kind} has no room for the {what} of {path}; {to} is without.")
        write_photo(restorer.restored(photo, strength, scale, tile, bar(path.name, jobs)), to)
        return done(to)

    with each_counted(len(paths), one) as counted, threads_for(jobs):
        if jobs > 1 and not dry_run:
            farthest_seen(restorer.model)  # once, not by each thread at the same time
        return each_photo(verb, paths, counted, jobs)


def lost_on_the_way(photo: Photo, to: Path) -> str:
    """What a photo's file has and its result will not have, as text."""
    bits = "more than 8 bits per channel, of which the result has 8"
    fewer = has_sixteen_bits(photo) and FORMATS.get(to.suffix.lower()) not in KINDS
    return " and ".join(what for what in (photo.lost, bits if fewer else "") if what)


@contextmanager
def each_counted(number: int, work: Callable[[Path], None]) -> Iterator[Callable[[Path], None]]:
    """The same work with a progress bar over several photos: how many are left, and for how long."""
    tqdm = need("tqdm", "photos").tqdm
    hidden = number < 2 or not sys.stderr.isatty()
    with tqdm(total=number, unit="photo", disable=hidden, leave=False, mininterval=0) as photos:

        def counted(path: Path) -> None:
            try:
                work(path)
            finally:
                photos.update()

        yield counted


@contextmanager
def threads_for(jobs: int) -> Iterator[None]:
    """Share torch's threads among photos that are done at the same time."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // jobs) if jobs > 0 else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def bar(name: str, jobs: int = 1) -> Progress:
    """A progress bar over tiles, on a terminal and if one photo is processed at a time."""

    def shown(tiles: list[Tile]) -> Iterable[Tile]:
        progress: Iterable[Tile] = need("tqdm", "photos").tqdm(
            tiles, desc=printable(name), unit="tile", disable=jobs > 1 or not sys.stderr.isatty(), leave=False
        )
        return progress

    return shown
