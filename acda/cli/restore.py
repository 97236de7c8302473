"""acda restore: a network of your own applied to photos."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from acda.cli.arguments import Number, Out, Photos, Pixels, Weights
from acda.photos.batch import Places, are_several, each_photo, find_photos, output_path, real
from acda.photos.files import (
    Photo,
    colourless,
    eight_bits,
    format_for,
    has_colours,
    read_photo,
    revealed,
    without_room,
    write_photo,
)
from acda.photos.tiles import Tile, in_tiles
from acda.photos.weights import Trained, find_weights, load
from acda.support.extras import need
from acda.support.files import check_room
from acda.support.lines import complain, printable

# How people call what a file tells about a photo.
ABOUT = {"exif": "EXIF", "icc_profile": "colour profile"}


def restore(
    photos: Photos,
    /,
    weights: Weights,
    out: Out = None,
    strength: Number = 1.0,
    tile: Pixels = 1024,
    overwrite: bool = False,
) -> int:
    """Apply a trained restorer to photos as they are, and write the results beside them, marked `restored`.

    Args:
        photos: files, folders or patterns.
        weights: a name, a file of weights, or the folder of a run.
        out: file for the result (.jpg, .png, .webp, .tif, .bmp), or a folder; earlier results there are replaced.
        strength: from 0, the photo as it is, to 1, all that the network does.
        tile: side of the parts in which a photo is looked at, in pixels; the result does not depend on it.
        overwrite: let --out lead to the photo itself.
    """
    check_settings(strength, tile)
    trained = load_restorer(weights)

    def work(photo: Photo, name: str) -> Photo:
        return restored_photo(trained, photo, tile, name, strength)

    return write_each("restore", photos, work, out, "restored", overwrite)


def write_each(
    verb: str,
    names: Iterable[str],
    work: Callable[[Photo, str], Photo],
    out: Path | None,
    mark: str,
    overwrite: bool,
    times: float = 1,
) -> int:
    """Read, work, write, photo by photo; a line for each that is done or cannot be.

    times: by how much work makes a photo wider and higher.
    """
    names = list(names)
    paths = find_photos(names, mark)
    places = Places(paths, overwrite)
    several = are_several(names, paths)

    def one(path: Path) -> None:
        to = output_path(path, out, mark, several)
        photo = read_photo(path)
        places.take(to, path)
        # What cannot be done is said before hours of work, not after.
        if photo.lost and real(to) == real(path):
            raise ValueError(f"{path} has {photo.lost}: that would be lost. Give an --out.")
        if photo.lost:
            complain(verb, f"{path} has {photo.lost}.")
        kind = format_for(to, *size_after(times, photo.pixels))
        check_room(to)
        if missing := without_room(photo, kind):
            names = " and ".join(ABOUT[name] for name in sorted(missing))
            complain(verb, f"{kind} has no room for the {names} of {path}; {to} is without.")
        write_photo(work(photo, path.name), to)
        print(printable(to), flush=True)

    return each_photo(verb, paths, one)


def size_after(times: float, pixels: Tensor) -> tuple[int, int]:
    """Height and width, so many times as large."""
    return round(times * pixels.shape[2]), round(times * pixels.shape[3])


def check_settings(strength: float, tile: int) -> None:
    if not 0 <= strength <= 1:
        raise ValueError(f"--strength needs to be from 0 to 1; got {strength:g}.")
    if tile < 1:
        raise ValueError(f"--tile needs to be positive; got {tile}.")


def load_restorer(weights: str, own: str | None = None) -> Trained:
    """Trained weights that turn a photo into a photo."""
    trained = load(find_weights(weights, own))
    if getattr(trained.model, "cell", None) != 1:
        raise ValueError(f"{weights} has a {trained.facts['model']}, which does not restore photos.")
    return trained


def restored_photo(trained: Trained, photo: Photo, tile: int, name: str, strength: float) -> Photo:
    """The photo restored where it can be seen; colours that its transparency hides stay, and have no part in it.

    A network may treat the channels differently: where a photo has no colours, neither has the result.
    """
    seen = revealed(photo)
    pixels = restored(trained, seen, tile, name, strength)
    if not has_colours(seen):
        pixels = colourless(pixels)
    if photo.alpha is not None:
        pixels = torch.where(photo.alpha > 0, pixels, photo.pixels)
    return replace(photo, pixels=pixels)


def restored(trained: Trained, pixels: Tensor, tile: int, name: str = "", strength: float = 1.0) -> Tensor:
    """What the network makes of pixels, (1, 3, H, W) of eight bits, with a bar where a person is looking.

    strength: from 0, the pixels as they are, to 1, all that the network does. A large photo is never there in floating
    point, only its tiles.
    """

    def bar(tiles: list[Tile]) -> Iterable[Tile]:
        progress = need("tqdm", "photos").tqdm
        shown: Iterable[Tile] = progress(
            tiles, desc=printable(name), unit="tile", disable=not sys.stderr.isatty(), leave=False
        )
        return shown

    result = torch.empty_like(pixels)
    for rows, columns, part in in_tiles(trained.model, pixels, tile, bar, trained.normalised):
        before = pixels[:, :, rows, columns].float() / 255
        result[:, :, rows, columns] = eight_bits(before.lerp(part, strength))
    return result
