"""Where a convolution's windows lie: kernel side, stride, padding, dilation, and the sizes that follow."""

import operator
from typing import Any, NamedTuple

Pair = int | tuple[int, int]


class Window(NamedTuple):
    """The geometry of a k×k convolution, one value per axis (vertical, horizontal) but for the side.

    >>> Window.of(7, stride=2, padding="valid").output_size(11, 12)
    (3, 3)
    """

    side: int
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]

    @classmethod
    def of(cls, side: int, stride: Pair = 1, padding: Pair | str = 0, dilation: Pair = 1) -> "Window":
        """Check Conv2d's arguments and resolve "same" and "valid" to numbers."""
        strides = _pair("stride", stride, least=1)
        dilations = _pair("dilation", dilation, least=1)
        if not isinstance(padding, str):
            paddings = _pair("padding", padding, least=0)
        elif padding == "valid":
            paddings = (0, 0)
        elif padding == "same":
            if strides != (1, 1):
                raise ValueError(f'padding="same" needs stride 1, as in nn.Conv2d; got stride={strides}.')
            paddings = (dilations[0] * (side // 2), dilations[1] * (side // 2))
        else:
            raise ValueError(f'padding needs an int, a pair, "same" or "valid"; got {padding!r}.')
        return cls(side, strides, paddings, dilations)

    @property
    def reach(self) -> tuple[int, int]:
        """How far a window extends from its centre."""
        return self.dilation[0] * (self.side // 2), self.dilation[1] * (self.side // 2)

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """(P, Q), as Conv2d computes it; an input that is too small for one window is refused."""
        (sy, sx), (py, px), (dy, dx) = self.stride, self.padding, self.dilation
        spans = tuple(2 * r + 1 for r in self.reach)
        if height + 2 * py < spans[0] or width + 2 * px < spans[1]:
            raise ValueError(
                f"the input needs at least {spans} pixels, padding included, for one {self.side}×{self.side} window "
                f"with dilation {self.dilation}; got {(height, width)} with padding {self.padding}. "
                "Use a larger input, more padding or a smaller kernel."
            )
        return output_length(height, self.side, sy, py, dy), output_length(width, self.side, sx, px, dx)

    def tap(self, i: int, j: int, P: int, Q: int) -> tuple[slice, slice]:
        """The rows and columns of the padded input that tap (i, j) sees at P×Q output pixels.

        >>> Window.of(3, stride=2).tap(0, 1, 4, 5)
        (slice(0, 7, 2), slice(1, 10, 2))
        """
        (sy, sx), (dy, dx) = self.stride, self.dilation
        return slice(i * dy, i * dy + (P - 1) * sy + 1, sy), slice(j * dx, j * dx + (Q - 1) * sx + 1, sx)

    def unpadded(self) -> "Window":
        """The same windows on an input that has been padded already."""
        return self._replace(padding=(0, 0))


def output_length(length: int, side: int, stride: int = 1, padding: int = 0, dilation: int = 1) -> int:
    """The number of windows along one axis, as Conv2d computes it. Negative padding crops.

    It checks nothing, so that it also takes the symbolic sizes of torch.compile and torch.export.

    >>> output_length(11, side=7, stride=2)
    3
    """
    return (length + 2 * padding - dilation * (side - 1) - 1) // stride + 1


def kernel_side(kernel_size: Pair, name: str = "kernel_size") -> int:
    """The side k of an odd square kernel given as k or (k, k). name: how errors call it

    >>> kernel_side((5, 5))
    5
    """
    height, width = _pair(name, kernel_size, least=1)
    if height != width:
        raise ValueError(f"{name} needs a square, k or (k, k): atoms are square; got {(height, width)}.")
    if height % 2 == 0:
        raise ValueError(
            f"{name} needs an odd number, so that every window has a centre pixel; got {height}. "
            f"Try {height - 1} or {height + 1}."
        )
    return height


def whole(value: Any) -> Any:
    """Convert integers of NumPy and others to int, as Conv2d does; return anything else unchanged."""
    return value if isinstance(value, int) or not hasattr(value, "__index__") else operator.index(value)


def _pair(name: str, value: Pair, least: int) -> tuple[int, int]:
    both = tuple(map(whole, value)) if isinstance(value, tuple | list) else (whole(value),) * 2
    if len(both) != 2 or any(isinstance(v, bool) or not isinstance(v, int) for v in both):
        raise TypeError(f"{name} needs an int or a pair of ints; got {value!r}.")
    if min(both) < least:
        raise ValueError(f"{name} needs numbers of at least {least}; got {value!r}.")
    return both[0], both[1]
