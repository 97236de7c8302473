"""Read pictures of any mode and depth as three channels of uint8; what cannot be read is reported by name."""

import errno
import importlib
import logging
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from acda.photos import sixteen_bits
from acda.photos.libtiff import messages_kept
from acda.support.extras import need

# Pillow logs an error before it raises one. Where no logging is set up, Python prints that, without the file's name.
logging.getLogger("PIL").addHandler(logging.NullHandler())

# Photos of phones, which Pillow reads with pillow-heif only. Folders list them too: none is skipped silently.
PHONES = {".heic", ".heif"}
SUFFIXES = PHONES | {
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".mpo", ".bmp", ".webp", ".tif", ".tiff"),
    *(".ppm", ".pgm", ".pnm", ".gif", ".avif", ".jp2", ".tga"),
}
# EXIF's number for how a camera was held.
ORIENTATION = 0x0112
# Tags about the photo, which are copied; tags about how the file stores it are not:
# description, maker, model, resolution, software, date, artist, rating, copyright, Windows's own, EXIF's own, place.
ABOUT_THE_PHOTO = {
    *(0x010E, 0x010F, 0x0110, 0x011A, 0x011B, 0x0128, 0x0131, 0x0132, 0x013B, 0x4746, 0x4749, 0x8298),
    *(0x9C9B, 0x9C9C, 0x9C9D, 0x9C9E, 0x9C9F, 0x8769, 0x8825),
}
# Where EXIF's own tags are, and those among them that tell the size.
EXIF, SIZES = 0x8769, (0xA002, 0xA003)
# Modes of Pillow's whose last band is transparency.
TRANSPARENT = {"RGBA", "LA", "PA", "RGBa", "La"}
# Modes without colour.
GREY = {"1", "L", "LA", "La", "I;16", "I;16L", "I;16B", "I;16N", "I"}
# Formats whose mode I is known to go from 0 to 65535. A TIFF's has 32 bits, or a sign, and any range.
SIXTEEN_BITS = {"PNG", "PPM"}
# TIFF's tag for the bits of a channel.
BITS = 258
# What a path may be in place of a file, and reading would block on.
NO_FILES = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
# Formats that keep every pixel as it is. WebP has both kinds.
LOSSLESS = {"PNG", "TIFF", "BMP", "PPM", "GIF"}
# What a complete file has near its end.
ENDS = {"JPEG": b"\xff\xd9", "PNG": b"IEND"}


def read_rgb(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(H, W, 3) of uint8: greyscale, palette, CMYK, alpha and 16-bit files too."""
    return np.asarray(open_rgb(path))


def open_rgb(path: Path) -> Any:
    """The same as a Pillow image, decoded."""
    with naming(path), need("PIL.Image", "photos").open(path) as image:
        image.load()
        return _eight_bits(image)


def _eight_bits(image: Any) -> Any:
    """A decoded Pillow image with three channels of 8 bits."""
    if image.mode.startswith("I"):
        grey = np.asarray(image, dtype=np.float64)
        scaled = np.clip(np.round(grey * (255 / _largest(image))), 0, 255).astype(np.uint8)
        image = need("PIL.Image", "photos").fromarray(scaled)
    if image.mode == "F":
        raise ValueError("its pixels are floating point numbers of no known range; convert it to 8 or 16 bits")
    return image.convert("RGB")


def _largest(image: Any) -> int:
    """What white is in a decoded Pillow image of whole numbers."""
    if image.mode == "I" and image.format not in SIXTEEN_BITS:
        raise ValueError(
            "its pixels are whole numbers of 32 bits or with a sign, of no known range; convert it to 8 or 16 bits"
        )
    # Pillow does not scale the 12 bits of a TIFF to 16.
    return 4095 if getattr(image, "tag_v2", {}).get(BITS) == (12,) else 65535


@dataclass(frozen=True)
class Upright:
    """A Pillow image of 8 bits, RGB and upright; its transparency, or None; what its file says about it.

    profile: of its colours, b"" where there is none    exif: what is about the photo    pages: of its file
    deeper: whether the file has more than 8 bits per channel    mode: Pillow's, before it became RGB
    damage: problems that the decoder reported and survived, or ""
    lossless: whether its file keeps every pixel    values: where it was read with all of its 16 bits, (H, W, C)
    """

    image: Any
    alpha: Any
    profile: bytes
    exif: Any
    pages: int
    deeper: bool
    mode: str
    damage: str
    lossless: bool
    values: sixteen_bits.Array | None = None

    @property
    def is_grey(self) -> bool:
        """Whether the mode of its file has no colours."""
        return self.mode in GREY


def open_upright(
    path: Path | BinaryIO, name: str | None = None, formats: tuple[str, ...] | None = None, deep: bool = False
) -> Upright:
    """A photo turned as the EXIF of a camera's file says.

    name: its name in errors, instead of its path    formats: of Pillow, those that are accepted
    deep: read all 16 bits of PNG and TIFF too
    """
    image_module = need("PIL.Image", "photos")
    with naming(name or path) as messages, image_module.open(path, formats=formats) as file:
        # Pillow decodes more bits into eight, and says so only here.
        deeper = file.mode.startswith("I") or any(";16" in str(part) for part in file.tile)
        # A phone's MPO is a photo with its previews, not several.
        pages = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
        lossless = _keeps_pixels(file)
        file.load()
        exif = _exif(file)
        orientation, profile = exif.pop(ORIENTATION, 1), file.info.get("icc_profile") or b""
        mode = file.mode
        image, alpha = _eight_bits(file), _transparency(file)
        values = _sixteen_bits(file, path) if deep and deeper and isinstance(path, Path) else None
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
        values = None if values is None else _turned(values, orientation)
    return Upright(image, alpha, profile, exif, pages, deeper, mode, messages[0] if messages else "", lossless, values)


def _sixteen_bits(file: Any, path: Path) -> sixteen_bits.Array | None:
    """All bits of a decoded Pillow image, (H, W, C) from 0 to 65535; None if they are not available."""
    if file.mode.startswith("I"):
        grey = np.asarray(file, dtype=np.float64)[:, :, None] * (65535 / _largest(file))
        return np.clip(np.round(grey), 0, 65535).astype(np.uint16)
    with need("PIL.Image", "photos").open(path) as again:
        if not sixteen_bits.low_bytes_of(again):
            return None
        again.load()
        return sixteen_bits.joined(file, again)


def _turned(values: sixteen_bits.Array, orientation: int) -> sixteen_bits.Array:
    """The same as Pillow's turns, from EXIF's 2 to 8."""
    flipped = values.swapaxes(0, 1) if orientation > 4 else values
    upside_down, mirrored = orientation in (3, 4, 7, 8), orientation in (2, 3, 6, 7)
    return flipped[:: -1 if upside_down else 1, :: -1 if mirrored else 1]


def _keeps_pixels(file: Any) -> bool:
    """Whether the file of an opened Pillow image keeps every pixel as it is; for a WebP its first part says so."""
    if file.format != "WEBP":
        return file.format in LOSSLESS
    file.fp.seek(0)
    return b"VP8L" in file.fp.read(64)


def _exif(image: Any) -> Any:
    """The metadata in the file of a photo; none if it is damaged, because the picture may be intact."""
    with suppress(Exception):
        exif = image.getexif()
        for tag in set(exif) - ABOUT_THE_PHOTO - {ORIENTATION}:
            del exif[tag]
        for tag in SIZES if EXIF in exif else ():
            exif.get_ifd(EXIF).pop(tag, None)
        return exif
    return need("PIL.Image", "photos").Exif()


def _transparency(image: Any) -> Any:
    """A Pillow image of 8 bits, or None where a decoded one is not transparent."""
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
    with naming(path), need("PIL.Image", "photos").open(path) as image:
        width, height = image.size
    return width, height


def orientation_of(path: Path) -> int:
    """The EXIF orientation, from 1 to 8; 1 is upright, and the default."""
    with naming(path), need("PIL.Image", "photos").open(path) as image:
        found = _exif(image).get(ORIENTATION)
    return found if found in range(1, 9) else 1


def check_whole(path: Path) -> None:
    """Refuse a file that is no image or that ends too early.

    From its two ends where that is enough: decoding all files of a large set would take too long.
    """
    with naming(path), need("PIL.Image", "photos").open(path) as image:
        end = ENDS.get(image.format or "")
        if end is not None:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - 4096))
                if end in file.read():
                    return
        image.load()


@contextmanager
def naming(path: Any, known: str = "that Pillow knows") -> Iterator[list[str]]:
    """Turn any of the errors that Pillow raises into one that names the file.

    known: the formats that are accepted    yields: the messages of libtiff, which need not end in an error
    """
    pillow, image_module = need("PIL", "photos"), need("PIL.Image", "photos")
    messages: list[str] = []
    if isinstance(path, Path):
        _check_file(path)
        if path.suffix.lower() in PHONES:
            _learn_heic()
    try:
        with warnings.catch_warnings(), messages_kept() as messages:
            warnings.simplefilter("ignore")  # about palettes with transparency or odd EXIF, which do not matter here
            yield messages
    except IsADirectoryError as error:
        raise ValueError(f"{path} is a folder{'' if images_in(path) else ' without photos'}, not a photo.") from error
    except image_module.DecompressionBombError as error:
        most = 2 * image_module.MAX_IMAGE_PIXELS / 1e6
        raise ValueError(f"{path} has more than {most:.3g} million pixels, which no photo has. Split it.") from error
    except pillow.UnidentifiedImageError as error:
        empty = isinstance(path, Path) and path.stat().st_size == 0
        what = "it is empty" if empty else f"it has no format {known}"
        if isinstance(path, Path) and path.suffix.lower() in PHONES and not empty:
            what += "; install pillow-heif (pip install 'acda[heic]'), or convert it to JPEG first"
        raise ValueError(f"{path} cannot be read as an image: {what}.") from error
    except Exception as error:
        # Pillow's own message for a TIFF is "decoder error -2".
        what = messages[0] if messages else str(error) or type(error).__name__
        raise ValueError(f"{path} cannot be read as an image ({what.rstrip('.')}).") from error


def _learn_heic() -> None:
    """Have Pillow read phones' photos, where pillow-heif is installed."""
    with suppress(ImportError):
        importlib.import_module("pillow_heif").register_heif_opener()


def _check_file(path: Path) -> None:
    """Refuse paths on which reading would block, and links to missing files."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        if path.is_symlink():
            raise ValueError(f"{path} is a link to {path.readlink()}, which does not exist.") from error
        raise ValueError(f"there is no file {path}.") from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise ValueError(f"{path} is a link that leads back to itself.") from error
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from error
    if (kind := NO_FILES.get(stat.S_IFMT(mode))) is not None:
        raise ValueError(f"{path} is {kind}, not a file. Save the photo to a file first.")


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, in order; other files are not looked at.

    Case of the suffix does not matter: Tiny-ImageNet's are .JPEG. Links to missing files are
    included: reading them raises an error.
    """
    return sorted(
        p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith(".") and not p.is_dir()
    )
