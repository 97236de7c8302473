"""acda denoise: photos with less noise."""

from acda.cli.restore import Out, check_strength, load_restorer, restored, write_each
from acda.photos import Photo


def denoise(
    photos: tuple[str, ...],
    /,
    out: Out = None,
    strength: float = 1.0,
    weights: str = "denoiser",
    tile: int = 1024,
    overwrite: bool = False,
) -> int:
    """Take the noise out of photos, and write them beside the originals, marked `denoised`.

    Args:
        photos: files, folders or patterns.
        out: file for the result, or folder where there are several.
        strength: from 0, the photo as it is, to 1, all that the network does.
        weights: a packaged network, a run's folder, or its weights.safetensors.
        tile: side of the parts in which a photo is looked at, in pixels; the result does not depend on it.
        overwrite: write over the photo itself, where that is where the result goes.
    """
    check_strength(strength)
    trained = load_restorer(weights)

    def work(photo: Photo, name: str) -> Photo:
        return Photo(restored(trained, photo.pixels, tile, name, strength), photo.alpha, photo.about)

    return write_each("denoise", photos, work, out, "denoised", overwrite)
