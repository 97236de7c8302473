"""How the work is cut into tiles: the geometry of the banded product, and block sizes for each kind of GPU.

One output pixel with M atoms is a product of M rows, too few for a tensor core. Neighbouring pixels of a row see
almost the same input, so several of them share one product: its rows are (pixel, atom), its columns (tap row, input
column), and each pixel's atoms lie on a band of it. Elsewhere there are zeros.
"""

from math import gcd
from typing import NamedTuple

from acda.window import Window

# Rows of a banded product: what four warps multiply at a time.
ROWS = 64
# The smallest size that tensor cores multiply, in any dimension.
LEAST = 16


class Band(NamedTuple):
    """One banded product: `pixels` output pixels × `atoms` atoms over `columns` columns of the input.

    Output pixels that are `spacing` apart begin `step` columns apart, when columns are counted in units of the
    dilation. One geometry thus serves every stride and dilation.
    """

    pixels: int
    atoms: int
    rows: int
    columns: int
    spacing: int
    step: int

    @classmethod
    def of(cls, window: Window, atoms: int) -> "Band":
        """The band with the highest density.

        >>> Band.of(Window.of(7), atoms=6)
        Band(pixels=10, atoms=6, rows=64, columns=16, spacing=1, step=1)
        """
        k, stride, dilation = window.side, window.stride[1], window.dilation[1]
        spacing = dilation // gcd(stride, dilation)
        step = stride * spacing // dilation
        together = min(atoms, ROWS)
        narrowest = power_of_two(k)

        def with_columns(columns: int) -> Band:
            pixels = min(ROWS // together, (columns - k) // step + 1)
            return cls(pixels, together, power_of_two(pixels * together), columns, spacing, step)

        # Among equals max returns the first, which has fewer columns and so a smaller tile.
        return max(map(with_columns, (narrowest, 2 * narrowest)), key=lambda band: band.density(k))

    def density(self, side: int) -> float:
        """The part of the product that lies on the band; the rest is zeros."""
        return self.pixels * self.atoms * side / (self.rows * self.columns)

    def tap_rows(self, side: int, most_taps: int) -> int:
        """How many rows of taps one tile holds: all of them, or as many as make `most_taps` columns."""
        return min(power_of_two(side, least=1), max(1, most_taps // self.columns))

    def groups(self, width: int) -> int:
        """Groups of pixels in an output row."""
        return self.spacing * ceil_div(ceil_div(width, self.spacing), self.pixels)


class Tile(NamedTuple):
    """Block sizes of one kernel: channels, the length of the inner product or of the tap axis, warps, stages."""

    channels: int
    inner: int
    warps: int = 4
    stages: int = 2


class Tiles(NamedTuple):
    """Block sizes of the three kernels."""

    z: Tile
    dD: Tile
    dx: Tile


# The input pixels of one tile of dx, (height, width): sixteen rows of a product.
INPUT_TILE = (2, 8)

# By precision. Chosen because they compile without spilled registers and within 96 KB of shared memory, which every
# GPU from compute capability 8.0 on has; never timed. TODO: tune once someone has run benchmarks/gpu.py.
_TENSOR_CORES = {
    "half": Tiles(z=Tile(64, 128), dD=Tile(32, 128), dx=Tile(128, 32)),
    "tf32": Tiles(z=Tile(32, 128), dD=Tile(32, 128), dx=Tile(128, 32)),
    "tf32x3": Tiles(z=Tile(32, 32, warps=8), dD=Tile(32, 128, warps=8), dx=Tile(64, 32)),
    "ieee": Tiles(z=Tile(32, 32), dD=Tile(32, 128, warps=8), dx=Tile(64, 32)),
}
# By architecture: the major compute capability of NVIDIA GPUs, "hip" for AMD GPUs, "interpreter" without a GPU.
_TABLE = {
    8: _TENSOR_CORES,
    # Every operation of the interpreter takes long, however large its operands are.
    "interpreter": dict.fromkeys(_TENSOR_CORES, Tiles(z=Tile(64, 128), dD=Tile(32, 128), dx=Tile(128, 128))),
}


def tiles_for(architecture: int | str, precision: str) -> Tiles:
    """The entry of the table, or that of compute capability 8 for an architecture that is not in it."""
    return _TABLE.get(architecture, _TENSOR_CORES)[precision]


def power_of_two(n: int, least: int = LEAST) -> int:
    """The next power of two.

    >>> power_of_two(60), power_of_two(3), power_of_two(3, least=1)
    (64, 16, 4)
    """
    return max(least, 1 << (n - 1).bit_length())


def ceil_div(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)
