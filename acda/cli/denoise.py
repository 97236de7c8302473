"""acda denoise: photos with less noise."""

from acda.cli.arguments import Count, Format, Number, Out, Photos, Suffix, Tile, Weights
from acda.photos.restore_files import load_restorer, restore_files
from acda.support.devices import Device
from acda.support.lines import print_line


def denoise(
    photos: Photos,
    /,
    out: Out = None,
    strength: Number = 1.0,
    weights: Weights = "denoiser",
    tile: Tile = None,
    device: Device = "auto",
    overwrite: bool = False,
    format: Format = None,
    suffix: Suffix = None,
    jobs: Count = 1,
    dry_run: bool = False,
) -> int:
    """Remove noise from photos and write the results beside them, as NAME_denoised.

    Args:
        photos: files, folders or patterns.
        out: file for the result (.jpg, .png, .webp, .tif, .bmp), or a folder; earlier results there are replaced.
        strength: from 0, the photo unchanged, to 1, the full effect of the network.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        tile: side of the tiles in pixels, which does not change the result; chosen by the free memory unless given.
        device: what to compute on; auto is the first of cuda, mps and cpu that is available.
        overwrite: allow --out to replace the photo itself.
        format: jpg, png, webp, tif or bmp; that of each photo unless given. png and tif keep 16 bits.
        suffix: end of the results' names, such as _clean.
        jobs: number of photos at a time. Each needs its own memory.
        dry_run: read the photos, print what would be written where, and write nothing.
    """
    restorer = load_restorer(weights, "denoiser", device)
    return restore_files(
        "denoise",
        photos,
        restorer,
        out,
        "_denoised",
        overwrite,
        print_line,
        strength=strength,
        tile=tile,
        suffix=suffix,
        form=format,
        jobs=jobs,
        dry_run=dry_run,
    )
