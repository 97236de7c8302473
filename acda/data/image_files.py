"""Reading pictures: whatever mode and depth, to three channels of eight bits; what cannot be read is named."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from acda.extras import need

SUFFIXES = {
    *(".png", ".jpg", ".jpeg", ".jfif", ".bmp", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pnm", ".gif", ".avif", ".jp2", ".tga"),
}
# EXIF's number for how a camera was held.
ORIENTATION = 0x0112
# What a complete file has near its end.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}


def read_rgb(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(H, W, 3) of eight bits: greyscale, palette, CMYK, alpha and 16-bit files too."""
    return np.asarray(open_rgb(path))


def open_rgb(path: Path | BinaryIO, name: str | None = None, formats: tuple[str, ...] | None = None) -> Any:
    """The same as a Pillow image, decoded. name: how errors call it, where that is not its path; formats: Pillow's"""
    image_module = need("PIL.Image", "photos")
    with named(name or path), image_module.open(path, formats=formats) as image:
        image.load()
        if image.mode.startswith("I;16") or image.mode == "I":
            grey = np.asarray(image, dtype=np.float64) * (255 / 65535)
            image = image_module.fromarray(np.clip(np.round(grey), 0, 255).astype(np.uint8))
        if image.mode == "F":
            raise ValueError("its pixels are floating point numbers of no known range")
        return image.convert("RGB")


def open_upright(
    path: Path | BinaryIO, name: str | None = None, formats: tuple[str, ...] | None = None
) -> tuple[Any, Any]:
    """open_rgb, turned as the EXIF of a camera's file says; and its transparency, or None; pages are in its info."""
    image_module = need("PIL.Image", "photos")
    with named(name or path), image_module.open(path, formats=formats) as file:
        file.load()
        orientation, info = file.getexif().get(ORIENTATION, 1), dict(file.info)
        # A phone's MPO is a photo with its previews, not several.
        info["pages"] = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
        transparent = "A" in file.getbands() or "transparency" in info
        alpha = file.convert("RGBA").getchannel("A") if transparent else None
    turn = image_module.Transpose
    turns = {
        2: turn.FLIP_LEFT_RIGHT,
        3: turn.ROTATE_180,
        4: turn.FLIP_TOP_BOTTOM,
        5: turn.TRANSPOSE,
        6: turn.ROTATE_270,
        7: turn.TRANSVERSE,
        8: turn.ROTATE_90,
    }
    image = open_rgb(path, name, formats)
    if orientation in turns:
        image, alpha = (None if part is None else part.transpose(turns[orientation]) for part in (image, alpha))
    image.info = {**info, **image.info}
    return image, alpha


def image_size(path: Path) -> tuple[int, int]:
    """Width and height, from the beginning of a file that has been checked for its end too."""
    check_whole(path)
    with named(path), need("PIL.Image", "photos").open(path) as image:
        width, height = image.size
    return width, height


def orientation_of(path: Path) -> int:
    """How a camera says that it was held, from 1 to 8; 1 is upright, and what a file means that does not say."""
    with named(path), need("PIL.Image", "photos").open(path) as image:
        found = image.getexif().get(ORIENTATION)
    return found if found in range(1, 9) else 1


def check_whole(path: Path) -> None:
    """Refuse a file that is no image or that ends too early.

    From its two ends where that is enough: decoding all files of a large set would take too long.
    """
    with named(path), need("PIL.Image", "photos").open(path) as image:
        end = ENDS.get(image.format or "")
        if end is not None:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                if end in file.read():
                    return
        image.load()


@contextmanager
def named(path: Any) -> Iterator[None]:
    """Whatever Pillow finds wrong becomes one error with the file's name."""
    image_module = need("PIL.Image", "photos")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # palettes with transparency, odd EXIF: none of it matters here
            yield
    except (OSError, ValueError, SyntaxError, EOFError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image ({error}). Repair or remove it.") from error


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, in order; other files are not looked at.

    Case of the suffix does not matter: Tiny-ImageNet's are .JPEG.
    """
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
