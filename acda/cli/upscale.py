"""acda upscale: enlarge photos, sharper than interpolation."""

from typing import Annotated

from acda.cli.arguments import Count, Format, Number, Out, Photos, Suffix, Tile, Weights, arg
from acda.photos.restore_files import load_restorer, restore_files
from acda.support.devices import Device
from acda.support.lines import print_line


def upscale(
    photos: Photos,
    /,
    out: Out = None,
    scale: Annotated[float | None, arg(metavar="X", help_behavior_hint="(optional)")] = None,
    strength: Number = 1.0,
    weights: Weights = "upscaler",
    tile: Tile = None,
    device: Device = "auto",
    overwrite: bool = False,
    format: Format = None,
    suffix: Suffix = None,
    jobs: Count = 1,
    dry_run: bool = False,
) -> int:
    """Enlarge photos by bicubic interpolation and then a network; write the results beside them, such as NAME_x2.

    A network for one scale is used several times for a larger one.

    Args:
        photos: files, folders or patterns.
        out: file for the result (.jpg, .png, .webp, .tif, .bmp), or a folder; earlier results there are replaced.
        scale: how many times as wide and as high; the scale of the weights unless given, or 2 if they have none.
        strength: from 0, bicubic interpolation alone, to 1, the full effect of the network.
        weights: a name, a file of weights, the folder of a run, or a folder of several weights.
        tile: side of the tiles in pixels, which does not change the result; chosen by the free memory unless given.
        device: what to compute on; auto is the first of cuda, mps and cpu that is available.
        overwrite: allow --out to replace the photo itself.
        format: jpg, png, webp, tif or bmp; that of each photo unless given. png and tif keep 16 bits.
        suffix: end of the results' names, such as _clean.
        jobs: number of photos at a time. Each needs its own memory.
        dry_run: read the photos, print what would be written where, and write nothing.
    """
    restorer = load_restorer(weights, "upscaler", device)
    times = scale if scale is not None else restorer.own_scale or 2.0
    mark = f"_x{times:g}"
    return restore_files(
        "upscale",
        photos,
        restorer,
        out,
        mark,
        overwrite,
        print_line,
        strength=strength,
        scale=times,
        tile=tile,
        suffix=suffix,
        form=format,
        jobs=jobs,
        dry_run=dry_run,
    )
