"""Random layer arguments and inputs that hold at least one window."""

from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor


@dataclass
class Case:
    side: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    batch: int
    channels: tuple[int, int]
    size: tuple[int, int]
    atoms: int
    elements: int
    seed: int

    @property
    def window(self) -> dict[str, tuple[int, int]]:
        return {"stride": self.stride, "padding": self.padding, "dilation": self.dilation}

    def input(self) -> Tensor:
        return self.randn(self.batch, self.channels[0], *self.size)

    def randn(self, *shape: int) -> Tensor:
        """Float64 numbers that depend on the case and the shape only."""
        generator = torch.Generator().manual_seed(self.seed + sum(shape))
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def rand(self, *shape: int) -> Tensor:
        """The same between 0 and 1."""
        return torch.special.ndtr(self.randn(*shape))

    def conv2d_size(self) -> tuple[int, int]:
        """The output size, taken from nn.Conv2d itself."""
        conv = torch.nn.Conv2d(1, 1, self.side, self.stride, self.padding, self.dilation, device="meta")
        return tuple(conv(torch.empty(1, 1, *self.size, device="meta")).shape[2:])


@st.composite
def cases(draw: st.DrawFn, largest_side: int = 15, smallest_side: int = 1) -> Case:
    side = draw(st.integers(smallest_side // 2, largest_side // 2).map(lambda half: 2 * half + 1))
    stride, dilation = (draw(st.tuples(st.integers(1, 3), st.integers(1, 3))) for _ in range(2))
    padding = draw(st.tuples(st.integers(0, side), st.integers(0, side)))
    least = [max(1, d * (side - 1) + 1 - 2 * p) for d, p in zip(dilation, padding, strict=True)]
    size = draw(st.tuples(*(st.integers(n, n + 5) for n in least)))
    groups = draw(st.integers(1, 3))
    channels = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    return Case(
        side,
        stride,
        padding,
        dilation,
        groups,
        draw(st.integers(0, 2)),
        (channels[0] * groups, channels[1] * groups),
        (size[0], size[1]),
        draw(st.integers(1, 7)),
        draw(st.integers(1, 8)),
        draw(st.integers(0, 10_000)),
    )
