"""Fourier-Bessel elements: the fixed patterns over which every filter atom is written.

They are the vibration modes of a drum, sampled on the k×k grid and ordered from low to high frequency, so that a few of
them describe a filter without its high-frequency noise. Stacked at several sizes they let a layer choose how
far it looks at each pixel.
"""

from collections.abc import Sequence

import numpy as np
import torch
from scipy import special
from torch import Tensor


def fourier_bessel(
    kernel_size: int,
    num_bases: int = 6,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """The first `num_bases` Fourier-Bessel elements on a k×k grid, each of unit norm.

    kernel_size: k, odd and at least 3
    returns: (num_bases, k, k), ordered by the root of the Bessel function: angular order and radial index
    (0,1), (1,1) cos, (1,1) sin, (2,1) cos, (2,1) sin, (0,2), … The angle runs from the x axis (columns) to the
    y axis (rows).

    >>> fourier_bessel(5).shape
    torch.Size([6, 5, 5])
    >>> fourier_bessel(3, 9)
    Traceback (most recent call last):
    ...
    ValueError: a 3×3 grid carries at most 8 linearly independent Fourier-Bessel elements; got num_bases=9. Use \
fewer, a larger kernel, or bases=None, which predicts all 9 pixels of a filter freely.
    """
    return _as_tensor(_independent_elements(_check_side(kernel_size), num_bases), device, dtype)


def multiscale_fourier_bessel(
    kernel_size: int,
    num_bases: int = 6,
    scales: Sequence[int] | None = None,
    *,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """Fourier-Bessel elements at several sizes, each set zero-padded to k×k and stacked, small sizes first.

    kernel_size: k, odd and at least 3
    num_bases: elements of each size
    scales: odd sizes, none larger than the kernel; None means 3, 5, … k.
    returns: (S·num_bases, k, k)

    >>> multiscale_fourier_bessel(7).shape
    torch.Size([18, 7, 7])
    """
    side = _check_side(kernel_size)
    sizes = tuple(range(3, side + 1, 2)) if scales is None else tuple(_check_side(s) for s in scales)
    if not sizes:
        raise ValueError("scales needs at least one size, such as (3, 5, 7); got none.")
    if max(sizes) > side or len(set(sizes)) < len(sizes):
        raise ValueError(f"scales needs different sizes, none larger than the {side}×{side} kernel; got {sizes}.")
    stack = np.concatenate([_padded(_independent_elements(s, num_bases), side) for s in sizes])
    if _rank(stack) < len(stack):
        raise ValueError(
            f"the {len(stack)} elements of scales {sizes} with num_bases={num_bases} are linearly dependent on "
            f"a {side}×{side} grid, so their coefficients would not be determined. Use fewer elements or fewer scales."
        )
    return _as_tensor(stack, device, dtype)


def _independent_elements(side: int, num_bases: int) -> np.ndarray:
    _check_count(num_bases)
    elements = _elements(side, num_bases)
    if _rank(elements) < num_bases:
        most = next(n for n in range(num_bases - 1, 0, -1) if _rank(elements[:n]) == n)
        raise ValueError(
            f"a {side}×{side} grid carries at most {most} linearly independent Fourier-Bessel elements; "
            f"got num_bases={num_bases}. Use fewer, a larger kernel, or bases=None, which predicts all "
            f"{side * side} pixels of a filter freely."
        )
    return elements


def _elements(side: int, count: int) -> np.ndarray:
    """(count, side, side): J_n(root·r)·{1, cos nθ, sin nθ} inside the unit disc, scaled to unit norm."""
    half = side // 2
    y, x = np.mgrid[-half : half + 1, -half : half + 1]
    r = np.hypot(x, y) / (half + 0.5)
    theta = np.arctan2(y, x)
    # The count-th smallest root belongs to an order and a radial index that are both at most count.
    modes = sorted((root, n) for n in range(count + 1) for root in special.jn_zeros(n, count))
    waves: list[np.ndarray] = []
    for root, n in modes[:count]:
        radial = np.where(r < 1, special.jv(n, root * r), 0.0)
        waves += [radial] if n == 0 else [radial * np.cos(n * theta), radial * np.sin(n * theta)]
    stack = np.stack(waves[:count])
    norms = np.linalg.norm(stack, axis=(1, 2), keepdims=True)
    # An element that vanishes on the whole grid (to rounding) stays zero: scaled up, its rounding error would
    # count as a direction.
    return np.where(norms > 1e-9, stack / np.maximum(norms, 1e-9), 0.0)


def _rank(elements: np.ndarray) -> int:
    return int(np.linalg.matrix_rank(elements.reshape(len(elements), -1), tol=1e-6))


def _padded(elements: np.ndarray, side: int) -> np.ndarray:
    margin = (side - elements.shape[-1]) // 2
    return np.pad(elements, ((0, 0), (margin, margin), (margin, margin)))


def _as_tensor(elements: np.ndarray, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
    return torch.as_tensor(elements, device=device, dtype=dtype or torch.get_default_dtype())


def _check_side(side: int) -> int:
    if isinstance(side, bool) or not isinstance(side, int):
        raise TypeError(f"Fourier-Bessel elements need a square grid, its side an int; got {side!r}.")
    if side < 3 or side % 2 == 0:
        raise ValueError(
            f"Fourier-Bessel elements need a centre pixel with neighbours: an odd side of 3 or more; got {side}. "
            "For 1×1 layers use bases=None."
        )
    return side


def _check_count(count: int) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"num_bases is a number of elements, an int; got {count!r}.")
    if count < 1:
        raise ValueError(f"num_bases needs at least one element; got {count}.")
