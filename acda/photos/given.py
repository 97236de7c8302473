"""Photos as Python has them: PIL images, NumPy arrays and tensors become Photos, and results the same kind again."""

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acda.photos.files import Photo, picture_of, pixels_of

# Pillow's modes that a result can have too.
MODES = ("RGB", "RGBA", "L", "LA")


def photos_of(given: Any) -> list[Photo]:
    """The photos in a PIL image, an array (H, W, 3) or (H, W) of uint8, or a tensor (B, 3, H, W), on the CPU.

    A tensor is of uint8, or of floating point from 0 to 1.

    >>> [photo.pixels.shape for photo in photos_of(torch.rand(2, 3, 20, 31))]
    [torch.Size([1, 3, 20, 31]), torch.Size([1, 3, 20, 31])]
    """
    if is_picture(given):
        return [_from_picture(given)]
    if isinstance(given, np.ndarray):
        return [_from_array(given)]
    if isinstance(given, Tensor):
        return _from_tensor(given)
    raise TypeError(
        "a photo needs to be a PIL image, an array (H, W, 3) or (H, W) of uint8, or a tensor (B, 3, H, W); got "
        f"{type(given).__name__}. A file is opened with PIL.Image.open(path)."
    )


def as_given(given: Any, results: list[Photo]) -> Any:
    """Results as the kind of thing that was given: its type, dtype and device."""
    if isinstance(given, Tensor):
        return torch.cat([result.pixels for result in results]).to(given)
    (result,) = results
    picture = picture_of(result)
    if isinstance(given, np.ndarray):
        return np.array(picture)
    picture.info = dict(given.info)  # colour profile and EXIF, as Pillow's own functions keep them
    return picture


def is_picture(given: Any) -> bool:
    """Whether this is a PIL image. Where Pillow has not been imported, nothing is."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(given, pillow.Image)


def _from_picture(given: Any) -> Photo:
    if given.mode not in MODES or "transparency" in given.info:
        got = f"the mode {given.mode}{' with one transparent colour' if 'transparency' in given.info else ''}"
        raise ValueError(
            f"an image needs a mode that its result can have, {', '.join(MODES)}; got {got}. Convert it first: "
            'photo.convert("RGB"), or "RGBA" where it is transparent.'
        )
    _check_size(given.height, given.width)
    alpha = pixels_of(np.array(given.getchannel("A"))[:, :, None]) if given.mode in ("RGBA", "LA") else None
    return Photo(pixels_of(np.array(given.convert("RGB"))), alpha, {}, is_grey=given.mode in ("L", "LA"))


def _from_array(given: np.ndarray[Any, Any]) -> Photo:
    is_grey = given.ndim == 2
    if given.dtype != np.uint8 or not (is_grey or (given.ndim == 3 and given.shape[2] == 3)):
        raise ValueError(
            f"an array needs to be (H, W, 3) or (H, W) of uint8; got {given.shape} of {given.dtype}. Several photos, "
            "and values from 0 to 1, are taken as a tensor (B, 3, H, W)."
        )
    _check_size(*given.shape[:2])
    pixels = np.repeat(given[:, :, None], 3, 2) if is_grey else given
    return Photo(pixels_of(pixels), None, {}, is_grey=is_grey)


def _from_tensor(given: Tensor) -> list[Photo]:
    if given.ndim != 4 or given.shape[1] != 3 or not len(given):
        raise ValueError(
            f"a tensor needs to be (B, 3, H, W) with at least one photo; got {tuple(given.shape)}. "
            "One photo (3, H, W) becomes a batch with photo[None]."
        )
    _check_size(*given.shape[2:])
    pixels = given.detach().cpu()
    if given.is_floating_point():
        pixels = pixels.float()
        low, high = float(pixels.min()), float(pixels.max())
        # Also false where one of them is NaN.
        if not (low >= 0 and high <= 1):
            raise ValueError(
                f"a tensor of {given.dtype} needs values from 0 to 1; got {low:g} to {high:g}. Divide values from 0 to "
                "255 by 255, or pass uint8; clamp(0, 1) what is only slightly outside."
            )
    elif given.dtype != torch.uint8:
        raise ValueError(f"a tensor needs to be of uint8, or floating point from 0 to 1; got {given.dtype}.")
    return [Photo(each[None], None, {}) for each in pixels]


def _check_size(height: int, width: int) -> None:
    if not (height and width):
        raise ValueError(f"a photo needs at least one pixel; got {width}×{height}.")
