"""Restore photos with a trained network: denoise, sharpen, enlarge. In tiles, so that any size fits in memory."""

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from acda.photos.files import Photo, colourless, eight_bits, has_colours, resized_photo, revealed
from acda.photos.given import as_given, photos_of
from acda.photos.memory import side_of_tiles
from acda.photos.tiles import Progress, in_tiles
from acda.photos.trained import Trained, in_unit_range

LARGEST_SCALE = 8.0


class PhotoRestorer(Trained):
    """A network that turns a photo into a better one, such as `acda.load("denoiser")`.

    Call it with a PIL image (RGB, RGBA, L, LA), an array (H, W, 3) or (H, W) of uint8, or a tensor (B, 3, H, W) of
    uint8 or of floating point from 0 to 1, of any size. The result is of the same kind, dtype and device.
    A greyscale photo stays greyscale; transparency is kept. There are no gradients: to train, use `model`.

    strength: from 0, the photo unchanged, to 1, the full effect of the network
    scale: enlarge by bicubic interpolation first, 1 to 8 times as wide and high. The default is the scale of the
        weights, or 1 if they have none. Weights with a scale are used at that scale, several times for a larger one
    tile: side of the tiles in which a photo is processed, in pixels; chosen by the free memory unless given. It changes
        the memory and not the result

    >>> from acda import create_model
    >>> restorer = PhotoRestorer(create_model("dncnn", depth=3), torch.tensor([[0.0] * 3, [255.0] * 3]), {})
    >>> restorer(torch.rand(2, 3, 20, 31)).shape
    torch.Size([2, 3, 20, 31])
    >>> restorer(torch.zeros(1, 3, 20, 31, dtype=torch.uint8), scale=2, strength=0.5).shape
    torch.Size([1, 3, 40, 62])
    """

    def forward(self, photo: Any, *, strength: float = 1.0, scale: float | None = None, tile: int | None = None) -> Any:
        scale = (self.own_scale or 1.0) if scale is None else scale
        check_settings(strength, scale, tile)
        return as_given(photo, [self.restored(each, strength, scale, tile) for each in photos_of(photo)])

    @property
    def own_scale(self) -> float | None:
        """The scale by which its training photos were enlarged, or None if its weights have none."""
        return float(self.facts["scale"]) if "scale" in self.facts else None

    def restored(
        self,
        photo: Photo,
        strength: float = 1.0,
        scale: float = 1.0,
        tile: int | None = None,
        progress: Progress | None = None,
    ) -> Photo:
        """The same for a Photo, as files have it.

        Only visible pixels are restored: colours that transparency hides stay and do not affect the others. A network
        may treat the channels differently: where a photo has no colours, the result has none either.
        """
        height, width = size_after(scale, photo.pixels)
        for factor in steps_to(scale, self.own_scale):
            if factor != 1:
                photo = resized_photo(photo, *size_after(factor, photo.pixels))
            photo = self._restored(photo, strength, tile, progress)
        same = photo.pixels.shape[2:] == (height, width)
        return photo if same else resized_photo(photo, height, width)

    def _restored(self, photo: Photo, strength: float, tile: int | None, progress: Progress | None) -> Photo:
        seen = revealed(photo)
        pixels = self._restored_pixels(seen, strength, tile, progress)
        if not has_colours(seen):
            pixels = colourless(pixels)
        if photo.alpha is not None:
            pixels = torch.where(photo.alpha > 0, pixels, photo.pixels)
        return replace(photo, pixels=pixels)

    def _restored_pixels(self, pixels: Tensor, strength: float, tile: int | None, progress: Progress | None) -> Tensor:
        """(1, 3, H, W) in the dtype of the pixels. A large uint8 photo never becomes floating point as a whole."""
        result = torch.empty_like(pixels)
        tile = side_of_tiles(self.model, pixels) if tile is None else tile
        for rows, columns, part in in_tiles(self.model, pixels, tile, progress, self.normalised):
            before = in_unit_range(pixels[:, :, rows, columns])
            after = before.lerp(part.to(before), strength)
            result[:, :, rows, columns] = after.clamp(0, 1) if result.is_floating_point() else eight_bits(after)
        return result


def size_after(scale: float, pixels: Tensor) -> tuple[int, int]:
    """Height and width, so many times as large."""
    return round(scale * pixels.shape[2]), round(scale * pixels.shape[3])


def steps_to(scale: float, own: float | None) -> list[float]:
    """Factors to enlarge by, one after the other, with the network after each.

    A network that was trained for one scale is used at that scale as often as needed; a result that is too large is
    reduced, which keeps it sharp.

    >>> steps_to(3, own=2), steps_to(1.5, own=2), steps_to(3, own=None)
    ([2, 2], [2], [3])
    """
    if own is None or own <= 1 or scale == 1:
        return [scale]
    return [own] * max(1, math.ceil(math.log(scale, own) - 1e-9))


def check_settings(strength: float, scale: float, tile: int | None) -> None:
    """Refuse settings that no photo can be restored with."""
    if not 0 <= strength <= 1:
        raise ValueError(f"strength needs to be from 0 to 1; got {strength:g}.")
    if not 1 <= scale <= LARGEST_SCALE:
        raise ValueError(f"scale needs to be from 1 to {LARGEST_SCALE:g}; got {scale:g}.")
    check_tile(tile)


def check_tile(tile: int | None) -> None:
    """Refuse tiles without pixels."""
    if tile is not None and tile < 1:
        raise ValueError(f"tile needs to be positive; got {tile}.")
