"""Photos of 16 bits a channel: read whole and written whole, in PNG and TIFF.

Pillow has colours of 8 bits only. Of a file with 16 it decodes the high byte of each value, or the low byte if it is
told that the bytes are in the other order. Two decodings give the whole value. It does not write such files, so they
are written here.
"""

import struct
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from acda.support.extras import need

Array = np.ndarray[Any, np.dtype[np.uint16]]
# How Pillow's decoders name the order of bytes; N is the machine's own.
OTHER = {"L": "B", "B": "L", "N": "B" if sys.byteorder == "little" else "L"}
COLOURS = ("RGB;16", "RGBA;16")
KINDS = ("PNG", "TIFF")
# TIFF's tags: size, bits, compression, photometric, strips, channels, rows per strip, bytes, extra channel, profile.
WIDTH, HEIGHT, BITS, COMPRESSION, PHOTOMETRIC, OFFSETS, CHANNELS, ROWS, BYTES = (
    *(256, 257, 258, 259, 262, 273, 277, 278, 279),
)
EXTRA, PROFILE = 338, 34675


def low_bytes_of(file: Any) -> Any:
    """Have an opened Pillow image of 16-bit colours decode the low bytes; False where it has no such colours."""
    swapped = [_other_order(tile) for tile in file.tile]
    if file.format not in KINDS or not swapped or None in swapped:
        return False
    file.tile = swapped
    return True


def _other_order(tile: Any) -> Any:
    """A tile of Pillow's with the bytes in the other order, or None where that has no meaning."""
    codec, extents, offset, arguments = tile
    first, *rest = arguments if isinstance(arguments, tuple) else (arguments,)
    if not isinstance(first, str) or first[:-1] not in COLOURS or first[-1] not in OTHER:
        return None
    raw = first[:-1] + OTHER[first[-1]]
    return type(tile)(codec, extents, offset, (raw, *rest) if isinstance(arguments, tuple) else raw)


def joined(high: Any, low: Any) -> Array:
    """The whole values of two decodings: (H, W, C)."""
    return np.asarray(high).astype(np.uint16) << 8 | np.asarray(low)


def write(path: Path, pixels: Array, kind: str, about: dict[str, bytes]) -> None:
    """A file of PNG or TIFF. pixels: (H, W, 1) grey, (H, W, 3) RGB, or (H, W, 4) with transparency."""
    if kind not in KINDS:
        raise ValueError(f"16 bits are written as {' or '.join(KINDS)}; got {kind}.")
    content = (_png if kind == "PNG" else _tiff)(np.ascontiguousarray(pixels), about)
    path.write_bytes(content)


def _png(pixels: Array, about: dict[str, bytes]) -> bytes:
    height, width, channels = pixels.shape
    rows = pixels.astype(">u2").view(np.uint8).reshape(height, -1)
    # Filter 2, the difference to the row above, makes files of photos smaller.
    above = np.vstack([np.zeros_like(rows[:1]), rows[:-1]])
    filtered = np.hstack([np.full((height, 1), 2, np.uint8), rows - above])
    colour_type = {1: 0, 3: 2, 4: 6}[channels]
    parts = [(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, colour_type, 0, 0, 0))]
    if "icc_profile" in about:
        parts.append((b"iCCP", b"ICC Profile\0\0" + zlib.compress(about["icc_profile"])))
    if "exif" in about:
        parts.append((b"eXIf", about["exif"].removeprefix(b"Exif\0\0")))
    parts += [(b"IDAT", zlib.compress(filtered.tobytes(), 6)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts
    )


def _tiff(pixels: Array, about: dict[str, bytes]) -> bytes:
    """One strip, compressed with deflate, behind tags that Pillow writes: those of EXIF are among them."""
    height, width, channels = pixels.shape
    strip = zlib.compress(pixels.astype("<u2").tobytes(), 6)
    tags = need("PIL.Image", "photos").Exif()
    if "exif" in about:
        tags.load(about["exif"])
    tags.endian = "<"
    tags.update(
        {
            WIDTH: width,
            HEIGHT: height,
            BITS: (16,) * channels,
            COMPRESSION: 8,
            PHOTOMETRIC: 2 if channels > 2 else 1,
            OFFSETS: 0,  # Pillow counts from where the tags end
            CHANNELS: channels,
            ROWS: height,
            BYTES: len(strip),
        }
    )
    if channels == 4:
        tags[EXTRA] = 2
    if "icc_profile" in about:
        tags[PROFILE] = about["icc_profile"]
    return tags.tobytes().removeprefix(b"Exif\0\0") + strip
