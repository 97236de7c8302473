"""The paper's toy problem (its Section 3.3): find the centres of small patterns of three sizes in noise.

The paper does not print its patterns. Ours are one per size, bright lines (1) on dark (-1): a plus of 3×3, a square of
5×5 and a diagonal cross of 7×7.
"""

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

PLUS = ["·#·", "###", "·#·"]
SQUARE = ["#####", "#···#", "#···#", "#···#", "#####"]
CROSS = ["#·····#", "·#···#·", "··#·#··", "···#···", "··#·#··", "·#···#·", "#·····#"]
PATTERNS = [np.where(np.array([list(row) for row in drawing]) == "#", 1.0, -1.0) for drawing in (PLUS, SQUARE, CROSS)]


class PatternMap(NamedTuple):
    """One noisy image with patterns, and where their centres are: both (1, 1, size, size)."""

    image: Tensor
    target: Tensor

    def shifted(self, pixels: int) -> "PatternMap":
        """Everything moved towards the bottom right; what leaves there comes back at the top left."""
        return PatternMap(*(t.roll((pixels, pixels), dims=(2, 3)) for t in self))


def pattern_map(seed: int = 0, *, size: int = 100, count: int = 25, margin: int = 20, noise: float = 0.1) -> PatternMap:
    """`count` patterns at random places in Gaussian noise; none overlap, none lie within `margin` of the far sides.

    >>> image, target = pattern_map(seed=0)
    >>> image.shape, int(target.sum())
    (torch.Size([1, 1, 100, 100]), 25)
    """
    random = np.random.default_rng(seed)
    image = noise * random.standard_normal((size, size))
    target = np.zeros((size, size))
    taken = np.zeros((size, size), dtype=bool)
    # The largest first, because they are the hardest to place.
    for index in reversed(range(count)):
        pattern = PATTERNS[index * len(PATTERNS) // count]
        side = len(pattern)
        top, left = _free_place(random, taken[: size - margin, : size - margin], side)
        place = (slice(top, top + side), slice(left, left + side))
        image[place] += pattern
        taken[place] = True
        target[top + side // 2, left + side // 2] = 1.0
    return PatternMap(*(torch.as_tensor(m, dtype=torch.float32)[None, None] for m in (image, target)))


def _free_place(random: np.random.Generator, taken: np.ndarray, side: int) -> tuple[int, int]:
    """A corner, uniform among all where a square of this side covers nothing taken."""
    if min(taken.shape) < side:
        raise ValueError(f"a {side}×{side} pattern needs a larger map than {taken.shape} beside the margin.")
    windows = np.lib.stride_tricks.sliding_window_view(taken, (side, side))
    free = np.argwhere(~windows.any(axis=(2, 3)))
    if not len(free):
        raise ValueError(f"no room is left for a {side}×{side} pattern; use fewer patterns or a larger map.")
    top, left = free[random.integers(len(free))]
    return int(top), int(left)
