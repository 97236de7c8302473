"""From tensors to launches: the grid and the arguments of each kernel.

A launch is a value. The driver runs it; the tests compile the same launch for GPUs that are not present.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import triton
from torch import Tensor

from acda.backends.triton import kernels
from acda.backends.triton.tiles import INPUT_TILE, Band, Tile, Tiles, ceil_div, power_of_two
from acda.window import Window

# The most channels of z that one program computes with the same band.
CHANNELS_A_BAND = 128
# A band that does not fit into one tile is gathered piece by piece, which takes registers: smaller pieces do not spill.
TAPS_A_PIECE = 64


class Launch(NamedTuple):
    """A kernel with its grid, its arguments and its options for the compiler."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: dict[str, Any]
    options: dict[str, int]

    def run(self) -> None:
        self.kernel[self.grid](**self.arguments, **self.options)


class Lines(NamedTuple):
    """A chunk: some of the B·P lines of Q output pixels, across the borders of images."""

    first: int
    last: int

    @property
    def number(self) -> int:
        return self.last - self.first


class Layout(NamedTuple):
    """The strides of z and dz, in elements. Without groups there is one, and it has all the channels."""

    pixel: int
    atom: int
    channel: int
    group: int
    group_channels: int

    @classmethod
    def by_group(cls, pixels: int, atoms: int, group_channels: int) -> "Layout":
        """(groups, n, M, C/groups): what torch's batched product reads without a copy."""
        return cls(atoms * group_channels, group_channels, 1, pixels * atoms * group_channels, group_channels)

    @classmethod
    def by_channel(cls, atoms: int, channels: int) -> "Layout":
        """(n, C, M): the result of per_pixel_conv2d, channel c·M + m."""
        return cls(atoms * channels, 1, atoms, 0, channels)


@dataclass(frozen=True)
class Launcher:
    """What all launches of one call of the operator share."""

    window: Window
    images: tuple[int, int, int, int]
    output: tuple[int, int]
    atoms: int
    tiles: Tiles
    precision: str

    def z(self, x: Tensor, D: Tensor, z: Tensor, layout: Layout, lines: Lines) -> Launch:
        """z of these lines, from x and the atoms D of these lines."""
        tile, C = self.tiles.z, self.images[3]
        arguments, groups = self._banded(layout, lines, tile)
        if arguments["TAP_ROWS"] < self.window.side:
            arguments["TAP_ROWS"] = self._band.tap_rows(self.window.side, min(tile.inner, TAPS_A_PIECE))
        # A multiple of the block, so that no block is computed twice.
        block = arguments["BLOCK_C"]
        each = max(block, CHANNELS_A_BAND)
        arguments |= {"x": x, "D": D, "z": z, "channels_each": each}
        return Launch(kernels.z_kernel, (groups, ceil_div(C, each), self._atom_blocks), arguments, _options(tile))

    def dD(self, x: Tensor, dz: Tensor, dD: Tensor, layout: Layout, lines: Lines) -> Launch:
        """dD of these lines, from x and the dz of these lines."""
        tile = self.tiles.dD
        arguments, groups = self._banded(layout, lines, tile)
        arguments |= {"x": x, "dz": dz, "dD": dD}
        parts = ceil_div(self.window.side, arguments["TAP_ROWS"])
        return Launch(kernels.dD_kernel, (groups, parts, self._atom_blocks), arguments, _options(tile))

    def dx(self, D: Tensor, dz: Tensor, grad_x: Tensor, layout: Layout, lines: Lines) -> Launch:
        """Add to grad_x, in float32, what comes from these lines."""
        tile, (_, H, W, C), (height, width) = self.tiles.dx, self.images, INPUT_TILE
        tiles, tile_rows = ceil_div(W, width), ceil_div(H, height)
        first, last = self._tile_rows(lines, tile_rows)
        arguments = self._common(layout, tile) | {
            "D": D,
            "dz": dz,
            "grad_x": grad_x,
            "tiles": tiles,
            "tile_rows": tile_rows,
            "first_tile_row": first,
            "first_line": lines.first,
            "lines": lines.number,
            "HEIGHT": height,
            "WIDTH": width,
            "INNER": tile.inner,
        }
        grid = (tiles * (last - first), ceil_div(C, arguments["BLOCK_C"]))
        return Launch(kernels.dx_kernel, grid, arguments, _options(tile))

    @property
    def _band(self) -> Band:
        return Band.of(self.window, self.atoms)

    @property
    def _atom_blocks(self) -> int:
        return ceil_div(self.atoms, self._band.atoms)

    def _tile_rows(self, lines: Lines, tile_rows: int) -> tuple[int, int]:
        """The rows of input tiles, counted through all images, that the windows of these lines reach."""
        (sy, _), (py, _), (ry, _) = self.window.stride, self.window.padding, self.window.reach
        H, P = self.images[1], self.output[0]
        (first_image, p_first), (last_image, p_last) = divmod(lines.first, P), divmod(lines.last - 1, P)
        top = min(max(p_first * sy - py, 0), H)
        bottom = min(max(p_last * sy - py + 2 * ry + 1, 0), H)
        height = INPUT_TILE[0]
        return first_image * tile_rows + top // height, last_image * tile_rows + ceil_div(bottom, height)

    def _banded(self, layout: Layout, lines: Lines, tile: Tile) -> tuple[dict[str, Any], int]:
        """The arguments of a kernel that works on groups of output pixels, and the number of groups."""
        band, Q = self._band, self.output[1]
        tiles = band.groups(Q)
        return self._common(layout, tile) | {
            "tiles": tiles,
            "first_line": lines.first,
            "spacing": band.spacing,
            "PIXELS": band.pixels,
            "ATOMS": band.atoms,
            "STEP": band.step,
            "ROWS": band.rows,
            "COLUMNS": band.columns,
            "TAP_ROWS": band.tap_rows(self.window.side, tile.inner),
        }, tiles * lines.number

    def _common(self, layout: Layout, tile: Tile) -> dict[str, Any]:
        (_, H, W, C), (P, Q) = self.images, self.output
        (sy, sx), (py, px), (dy, dx) = self.window.stride, self.window.padding, self.window.dilation
        sizes = {"H": H, "W": W, "C": C, "P": P, "Q": Q}
        window = {"sy": sy, "sx": sx, "py": py, "px": px, "dy": dy, "dx": dx}
        strides = {f"{name}_stride": getattr(layout, name) for name in ("pixel", "atom", "channel", "group")}
        constants = {
            "SIDE": self.window.side,
            "M": self.atoms,
            "BLOCK_C": min(tile.channels, power_of_two(C)),
            "GROUPED": layout.group_channels < C,
            "PRECISION": self.precision,
            "INTERPRETED": INTERPRETED,
        }
        return {**sizes, **window, **strides, "group_channels": layout.group_channels, **constants}


def _options(tile: Tile) -> dict[str, int]:
    # Triton 3.9 warns where the option for fused multiply-adds is not given.
    return {"num_warps": tile.warps, "num_stages": tile.stages, "enable_fp_fusion": True}


INTERPRETED: bool = triton.knobs.runtime.interpret


def architecture(device: torch.device) -> int | str:
    """The key of this device in the table of tiles."""
    if INTERPRETED:
        return "interpreter"
    return "hip" if torch.version.hip else torch.cuda.get_device_capability(device)[0]
