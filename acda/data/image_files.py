"""Reading pictures: whatever mode and depth, to three channels of eight bits; what cannot be read is named."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np

from acda.extras import need

SUFFIXES = {".png", ".jpg", ".jpeg", ".bmp", ".webp", ".tif", ".tiff", ".ppm"}


def read_rgb(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """(H, W, 3) of eight bits: greyscale, palette, CMYK, alpha and 16-bit files too."""
    image_module = need("PIL.Image", "train")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # palettes with transparency, odd EXIF: none of it matters here
            with image_module.open(path) as image:
                image.load()
                if image.mode.startswith("I;16") or image.mode == "I":
                    grey = np.asarray(image, dtype=np.float64) * (255 / 65535)
                    return np.repeat(np.clip(np.round(grey), 0, 255).astype(np.uint8)[:, :, None], 3, axis=2)
                return np.asarray(image.convert("RGB"))
    except (OSError, ValueError, SyntaxError, image_module.DecompressionBombError) as error:
        raise ValueError(f"{path} cannot be read as an image ({error}). Repair or remove it.") from error


def images_in(folder: Path) -> list[Path]:
    """The image files of a folder, in order; other files are not looked at.

    Case of the suffix does not matter: Tiny-ImageNet's are .JPEG.
    """
    return sorted(p for p in folder.iterdir() if p.suffix.lower() in SUFFIXES and not p.name.startswith("."))
