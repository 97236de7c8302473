"""acda upscale: larger photos, sharpened by a network that has seen real lenses."""

from dataclasses import replace

from acda.cli.restore import Out, check_strength, load_restorer, restored, size_after, write_each
from acda.photos import Photo, resized_photo

LARGEST = 8.0


def upscale(
    photos: tuple[str, ...],
    /,
    out: Out = None,
    scale: float | None = None,
    strength: float = 1.0,
    weights: str = "super_resolver",
    tile: int = 1024,
    overwrite: bool = False,
) -> int:
    """Enlarge photos, and write them beside the originals, marked with the scale: bicubic first, then the network.

    Args:
        photos: files, folders or patterns.
        out: file for the result, or folder where there are several.
        scale: how many times as wide and as high; what the network was trained at unless given, or 2.
        strength: from 0, only enlarged, to 1, all that the network does; less suits pictures that are sharp already.
        weights: a packaged network, a run's folder, or its weights.safetensors.
        tile: side of the parts in which a photo is looked at, in pixels; the result does not depend on it.
        overwrite: write over the photo itself, where that is where the result goes.
    """
    check_strength(strength)
    trained = load_restorer(weights)
    times = float(trained.facts.get("scale", 2)) if scale is None else scale
    if not 1 <= times <= LARGEST:
        raise ValueError(f"--scale needs to be from 1 to {LARGEST:g}; got {times:g}.")

    def work(photo: Photo, name: str) -> Photo:
        larger = resized_photo(photo, *size_after(times, photo.pixels))
        return replace(larger, pixels=restored(trained, larger.pixels, tile, name, strength))

    return write_each("upscale", photos, work, out, f"x{times:g}", overwrite, times)
