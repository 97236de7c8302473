"""Apply a network to an image of any size in tiles that meet exactly: the result does not depend on their size."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from acda.backends.native import exact_shifts

# A network whose output depends on pixels farther away than this counts as one that sees the whole image.
FARTHEST = 4096


class LooksAtEverything(ValueError):
    """Every part of a network's result depends on the whole image, so it cannot be computed in tiles."""


@dataclass(frozen=True)
class Tile:
    """A part of the image, (top, bottom, left, right): what the network sees, and what of it is kept."""

    seen: tuple[int, int, int, int]
    kept: tuple[int, int, int, int]


_REACHES: WeakKeyDictionary[nn.Module, int | None] = WeakKeyDictionary()
Progress = Callable[[list[Tile]], Iterable[Tile]]


def apply_in_tiles(
    network: nn.Module,
    image: Tensor,
    side: int,
    progress: Progress | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:
    """network(image) without gradients, about side×side pixels at a time plus the margins that the tiles need.

    network: has `stride`, its period in pixels, and `cell`, pixels per output pixel.
    image: (1, C, H, W)    returns: (1, O, H/cell, W/cell), rounded up
    progress: takes the list of tiles and yields them one by one, as tqdm does.
    prepare: turns a part of the image into the network's input, so that a large image is never copied as a whole.
    """
    _, cell = steps_of(network)
    height, width = image.shape[2:]
    result: Tensor | None = None
    for rows, columns, part in in_tiles(network, image, side, progress, prepare):
        if result is None:
            result = part.new_empty(1, part.shape[1], -(-height // cell), -(-width // cell))
        result[:, :, rows, columns] = part
    assert result is not None
    return result


def in_tiles(
    network: nn.Module,
    image: Tensor,
    side: int,
    progress: Progress | None = None,
    prepare: Callable[[Tensor], Tensor] | None = None,
) -> Iterator[tuple[slice, slice, Tensor]]:
    """The parts of apply_in_tiles one by one, each with the rows and columns of the result where it belongs."""
    stride, cell = steps_of(network)
    _check_eval(network)
    height, width = image.shape[2:]
    side = -(-side // stride) * stride
    margin = 0 if max(height, width) <= side else farthest_seen(network, image.shape[1])
    tiles = list(tiles_of(height, width, side, margin))
    for tile in progress(tiles) if progress else tiles:
        top, bottom, left, right = tile.seen
        seen = image[:, :, top:bottom, left:right]
        with torch.no_grad():
            part = network(prepare(seen) if prepare else seen)
        first, last, begin, end = (-(-at // cell) for at in tile.kept)
        rows, columns = slice(first - top // cell, last - top // cell), slice(begin - left // cell, end - left // cell)
        yield slice(first, last), slice(begin, end), part[:, :, rows, columns]


def steps_of(network: nn.Module) -> tuple[int, int]:
    """The stride and the cell of a network."""
    stride, cell = getattr(network, "stride", None), getattr(network, "cell", None)
    if not isinstance(stride, int) or not isinstance(cell, int):
        raise TypeError(f"{type(network).__name__} has no attributes stride and cell: it cannot be applied in tiles.")
    return stride, cell


def _check_eval(network: nn.Module) -> None:
    """Refuse a network in training: batch normalisation would depend on the tile, and keep a NaN in its statistics."""
    if any(module.training for module in network.modules()):
        raise ValueError(f"{type(network).__name__} is in training mode, in which tiles do not meet. Call its eval().")


def tiles_of(height: int, width: int, side: int, margin: int) -> Iterator[Tile]:
    """Parts of side×side that cover the image once, each seen with a margin as far as the image goes.

    >>> [tile.seen for tile in tiles_of(32, 80, 32, 16)]
    [(0, 32, 0, 48), (0, 32, 16, 80), (0, 32, 48, 80)]
    """
    for top in range(0, height, side):
        for left in range(0, width, side):
            bottom, right = min(top + side, height), min(left + side, width)
            seen = max(0, top - margin), min(height, bottom + margin), max(0, left - margin), min(width, right + margin)
            yield Tile(seen, (top, bottom, left, right))


def farthest_seen(network: nn.Module, channels: int = 3) -> int:
    """How far an output pixel sees, in pixels, rounded up to whole strides: found by following a NaN.

    NaN in one stretch of a narrow image spreads to everything that depends on it, and to nothing else. It is computed
    once: it does not depend on the weights.
    """
    _check_eval(network)
    if network not in _REACHES:
        _REACHES[network] = _follow_a_nan(network, channels)
    found = _REACHES[network]
    if found is None:
        raise LooksAtEverything(
            f"{type(network).__name__} looks at the whole image at once: it cannot be applied in tiles. "
            "Make the tiles as large as the image."
        )
    return found


def _follow_a_nan(network: nn.Module, channels: int) -> int | None:
    """The reach, or None where it has no end."""
    stride, cell = steps_of(network)
    like = next(network.parameters())
    length = 8 * stride
    while length <= 2 * FARTHEST:
        first = length // 2 // stride * stride
        strip = torch.zeros(1, channels, stride, length, device=like.device, dtype=like.dtype)
        strip[:, :, :, first : first + stride] = torch.nan
        farthest = 0
        with torch.no_grad(), exact_shifts():  # Winograd's form would spread the NaN farther
            for image, across in ((strip, 3), (strip.transpose(2, 3).contiguous(), 2)):
                touched = network(image).isnan().any(1).any(4 - across)[0].nonzero().flatten() * cell
                low, high = int(touched.min()), int(touched.max()) + cell
                farthest = max(farthest, first + stride - low, high - first)
                if low == 0 or high >= length:
                    farthest = length
        if farthest < length:
            return -(-farthest // stride) * stride
        length *= 2
    return None
