"""acda upscale: larger photos, sharpened by a network that has seen real lenses."""

from typing import Annotated

from acda.cli.arguments import Number, Out, Photos, Pixels, Weights, arg
from acda.cli.restore import check_settings, load_restorer, restored_photo, size_after, write_each
from acda.photos.files import Photo, resized_photo

LARGEST = 8.0


def upscale(
    photos: Photos,
    /,
    out: Out = None,
    scale: Annotated[float | None, arg(metavar="X", help_behavior_hint="(optional)")] = None,
    strength: Number = 1.0,
    weights: Weights = "super_resolver",
    tile: Pixels = 1024,
    overwrite: bool = False,
) -> int:
    """Enlarge photos, and write them beside the originals, marked with the scale: bicubic first, then the network.

    Args:
        photos: files, folders or patterns.
        out: file for the result (.jpg, .png, .webp, .tif, .bmp), or a folder; earlier results there are replaced.
        scale: how many times as wide and as high; what the weights tell unless given, or 2 where they do not.
        strength: from 0, only enlarged, to 1, all that the network does; less suits pictures that are sharp already.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        tile: side of the parts in which a photo is looked at, in pixels; the result does not depend on it.
        overwrite: let --out lead to the photo itself.
    """
    check_settings(strength, tile)
    trained = load_restorer(weights, "super_resolver")
    times = float(trained.facts.get("scale", 2)) if scale is None else scale
    if not 1 <= times <= LARGEST:
        raise ValueError(f"--scale needs to be from 1 to {LARGEST:g}; got {times:g}.")

    def work(photo: Photo, name: str) -> Photo:
        larger = resized_photo(photo, *size_after(times, photo.pixels))
        return restored_photo(trained, larger, tile, name, strength)

    return write_each("upscale", photos, work, out, f"x{times:g}", overwrite, times)
