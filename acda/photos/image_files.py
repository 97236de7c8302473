"""Reading pictures: whatever mode and depth, to three channels of eight bits; what cannot be read is named."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from acda.support.extras import need

# Phones' photos that Pillow does not read by itself: found in folders like others, so that none is left out unsaid.
PHONES = {".heic", ".heif"}
SUFFIXES = PHONES | {
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".bmp", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pnm", ".gif", ".avif", ".jp2", ".tga"),
}
# EXIF's number for how a camera was held.
ORIENTATION = 0x0112
# What of a file's tags is about the photo and not about how the file keeps it, which another file does otherwise:
# description, maker, model, resolution, software, date, artist, rating, copyright, Windows's own, EXIF's own, place.
ABOUT_THE_PHOTO = {
    *(0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x4746, 0x4749, 0x8298),
    *(0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, 0x8769, 0x8825),
}
# Where EXIF's own tags are, and those among them that tell the size.
EXIF, SIZES = 0x8769, (0xA002, 0xA003)
# Modes of Pillow's whose last band is transparency.
TRANSPARENT = {"RGBA", "LA", "PA", "RGBa", "La"}
# What a complete file has near its end.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}


def read_rgb(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(H, W, 3) of eight bits: greyscale, palette, CMYK, alpha and 16-bit files too."""
    return np.asarray(open_rgb(path))


def open_rgb(path: Path) -> Any:
    """The same as a Pillow image, decoded."""
    with named(path), need("PIL.Image", "photos").open(path) as image:
        image.load()
        return _eight_bits(image)


def _eight_bits(image: Any) -> Any:
    """A decoded Pillow image with three channels of eight bits."""
    if image.mode.startswith("I"):
        grey = np.asarray(image, dtype=np.float64)
        if grey.max(initial=0) > 65535:
            raise ValueError("its pixels are whole numbers of more than 16 bits, of no known range")
        scaled = np.clip(np.round(grey * (255 / 65535)), 0, 255).astype(np.uint8)
        image = need("PIL.Image", "photos").fromarray(scaled)
    if image.mode == "F":
        raise ValueError("its pixels are floating point numbers of no known range")
    return image.convert("RGB")


@dataclass(frozen=True)
class Upright:
    """A Pillow image of eight bits, RGB and the right way up; its transparency, or None; what its file tells about it.

    profile: of its colours, b"" where there is none    exif: what is about the photo    pages: of its file
    deeper: whether the file has more than eight bits a channel    mode: Pillow's, before it became RGB
    """

    image: Any
    alpha: Any
    profile: bytes
    exif: Any
    pages: int
    deeper: bool
    mode: str


def open_upright(path: Path | BinaryIO, name: str | None = None, formats: tuple[str, ...] | None = None) -> Upright:
    """A photo turned as the EXIF of a camera's file says.

    name: how errors call it, where that is not its path    formats: Pillow's, of which it may be
    """
    image_module = need("PIL.Image", "photos")
    with named(name or path), image_module.open(path, formats=formats) as file:
        # Pillow decodes more bits into eight, and says so only here.
        deeper = file.mode.startswith("I") or any(";16" in str(part) for part in file.tile)
        # A phone's MPO is a photo with its previews, not several.
        pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
        file.load()
        exif = _exif(file)
        orientation, profile = exif.pop(ORIENTATION, 1), file.info.get("icc_profile") or b""
        mode = file.mode
        image, alpha = _eight_bits(file), _transparency(file)
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
    if orientation in turns:
        image, alpha = (None if part is None else part.transpose(turns[orientation]) for part in (image, alpha))
    return Upright(image, alpha, profile, exif, pages, deeper, mode)


def _exif(image: Any) -> Any:
    """What a photo's file tells about it; nothing where that is damaged: the picture may be sound."""
    with suppress(Exception):
        exif = image.getexif()
        for tag in set(exif) - ABOUT_THE_PHOTO - {ORIENTATION}:
            del exif[tag]
        for tag in SIZES if EXIF in exif else ():
            exif.get_ifd(EXIF).pop(tag, None)
        return exif
    return need("PIL.Image", "photos").Exif()


def _transparency(image: Any) -> Any:
    """A Pillow image of eight bits, or None where a decoded one is not transparent."""
    if image.mode in TRANSPARENT:
        return image.convert("RGBA").getchannel("A")
    clear = image.info.get("transparency")
    if clear is None:
        return None
    if image.mode.startswith("I"):  # one shade of grey, which Pillow does not convert
        opaque = (np.asarray(image) != clear).astype(np.uint8) * 255
        return need("PIL.Image", "photos").fromarray(opaque)
    return image.convert("RGBA").getchannel("A")


def image_size(path: Path) -> tuple[int, int]:
    """Width and height, from the beginning of a file that has been checked for its end too."""
    check_whole(path)
    with named(path), need("PIL.Image", "photos").open(path) as image:
        width, height = image.size
    return width, height


def orientation_of(path: Path) -> int:
    """How a camera says that it was held, from 1 to 8; 1 is upright, and what a file means that does not say."""
    with named(path), need("PIL.Image", "photos").open(path) as image:
        found = _exif(image).get(ORIENTATION)
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
def named(path: Any, known: str = "that Pillow knows") -> Iterator[None]:
    """Whatever Pillow finds wrong, and it raises many things, becomes one error with the file's name.

    known: which formats would have been
    """
    pillow, image_module = need("PIL", "photos"), need("PIL.Image", "photos")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # palettes with transparency, odd EXIF: none of it matters here
            yield
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}.") from error
    except IsADirectoryError as error:
        raise ValueError(f"{path} is a folder{'' if images_in(path) else ' without photos'}, not a photo.") from error
    except image_module.DecompressionBombError as error:
        most = 2 * image_module.MAX_IMAGE_PIXELS / 1e6
        raise ValueError(f"{path} has more than {most:.3g} million pixels, which no photo has. Split it.") from error
    except pillow.UnidentifiedImageError as error:
        empty = isinstance(path, Path) and path.stat().st_size == 0
        what = "it is empty" if empty else f"it has no format {known}"
        if isinstance(path, Path) and path.suffix.lower() in PHONES and not empty:
            what += "; convert it to JPEG first"
        raise ValueError(f"{path} cannot be read as an image: {what}.") from error
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image ({error}).") from error


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, in order; other files are not looked at.

    Case of the suffix does not matter: Tiny-ImageNet's are .JPEG.
    """
    return sorted(
        p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".") and p.is_file()
    )
