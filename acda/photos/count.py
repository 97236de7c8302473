"""People on photos, counted by a trained network: their number, and a map of where they are."""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.photos.files import Photo, revealed
from acda.photos.given import photos_of
from acda.photos.memory import side_of_tiles
from acda.photos.restore import check_tile
from acda.photos.tiles import apply_in_tiles
from acda.photos.trained import Trained, in_unit_range


@dataclass(frozen=True)
class Counted:
    """People on a photo. `float(counted)` is their number.

    count: a float, or a tensor (B,) where a tensor was given
    density: people per cell, of `counter.model.cell` pixels a side where the photo is not made smaller: an array
        (H/cell, W/cell), or a tensor with the batch before; sizes are rounded up. Small negative values may occur; the
        count is its sum, and at least 0
    """

    count: Any
    density: Any

    def __float__(self) -> float:
        return float(self.count)


class PeopleCounter(Trained):
    """A network that counts the people on a photo, such as `acda.load("lite_counter")`.

    Call it with what PhotoRestorer takes: a PIL image, an array or a tensor, of any size.

    side: largest width or height that is processed, in pixels; larger photos are made smaller, because networks
        recognise heads of the sizes that they were trained on. What the weights say unless given, or no limit
    tile: side of the tiles in which a photo is processed, in pixels; by the free memory unless given. It changes the
        memory and not the result

    >>> from acda import create_model
    >>> counter = PeopleCounter(create_model("crowd_counter_s"), torch.tensor([[120.0] * 3, [60.0] * 3]), {})
    >>> counted = counter(torch.rand(2, 3, 50, 70))
    >>> counted.count.shape, counted.density.shape
    (torch.Size([2]), torch.Size([2, 13, 18]))
    """

    def forward(self, photo: Any, *, side: int | None = None, tile: int | None = None) -> Counted:
        check_tile(tile)
        densities = [self.density_of(each, tile, side) for each in photos_of(photo)]
        counts = [people_in(each) for each in densities]
        if isinstance(photo, Tensor):
            return Counted(torch.tensor(counts, device=photo.device), torch.stack(densities).float().to(photo.device))
        return Counted(counts[0], densities[0].float().numpy())

    def density_of(self, photo: Photo, tile: int | None = None, side: int | None = None) -> Tensor:
        """The density map of what is seen of a photo, in cells, in float64 so that its sum is exact in any order."""
        seen = at_most(revealed(photo), self.side if side is None else side)
        tile = side_of_tiles(self.model, seen) if tile is None else tile
        return apply_in_tiles(self.model, seen, tile, prepare=self.normalised)[0, 0].cpu().double()

    @property
    def side(self) -> int | None:
        """The longest side of a photo that the weights are for, in pixels; None where they do not say."""
        said = self.facts.get("side", "")
        return int(said) if said.isdecimal() and int(said) > 0 else None


def at_most(pixels: Tensor, side: int | None) -> Tensor:
    """A photo made smaller where its longer side is larger. pixels: (1, 3, H, W)

    >>> at_most(torch.zeros(1, 3, 300, 400), 100).shape
    torch.Size([1, 3, 75, 100])
    """
    if side is not None and side < 1:
        raise ValueError(f"side needs to be positive; got {side}.")
    height, width = pixels.shape[2:]
    longer = max(height, width)
    if side is None or longer <= side:
        return pixels
    size = [max(1, round(each * side / longer)) for each in (height, width)]
    return F.interpolate(in_unit_range(pixels), size, mode="bilinear", antialias=True)


def people_in(density: Tensor) -> float:
    """The sum of a density map, at least 0; that of an empty scene may be slightly negative."""
    return max(0.0, float(density.sum()))
