"""Neighborhood attention in two steps, as NATTEN had it up to version 0.17 (Hassani et al., CVPR 2023).

The k×k window of a pixel is centred on it, and is moved inward where it would leave the map. With a dilation, every
d-th pixel forms a map of its own, and the same holds within that map.
"""

from itertools import product

import torch
from torch import Tensor

from acda.functional import per_pixel_conv2d
from acda.window import Pair, Window, kernel_side


def na2d_av(
    attn: Tensor,
    value: Tensor,
    kernel_size: Pair,
    dilation: Pair = 1,
    additional_values: Tensor | None = None,
    is_causal: bool | tuple[bool, bool] = False,
) -> Tensor:
    """The values of a pixel's neighbourhood, summed with that pixel's attention, as `natten.functional.na2d_av`.

    attn: (B, heads, H, W, k²), tap by tap, rows first    value: (B, heads, H, W, D)    returns: (B, heads, H, W, D)

    kernel_size: k or (k, k), odd; the map needs at least k·dilation pixels along each axis.
    dilation: as in `F.conv2d`.
    additional_values, is_causal: not supported, and refused.

    >>> na2d_av(torch.randn(1, 2, 5, 6, 9).softmax(-1), torch.randn(1, 2, 5, 6, 4), 3).shape
    torch.Size([1, 2, 5, 6, 4])
    """
    _refuse(additional_values, is_causal)
    window = _window(value, "value", kernel_size, dilation)
    k, (dy, dx) = window.side, window.dilation
    expected = (*value.shape[:4], k * k)
    if tuple(attn.shape) != expected:
        raise ValueError(f"attn needs (B, heads, H, W, k²) = {expected}; got {tuple(attn.shape)}.")
    heads = value.shape[:2]
    x = value.flatten(0, 1).movedim(3, 1)
    filters = attn.flatten(0, 1).unflatten(3, (k, k)).movedim((3, 4), (1, 2))
    residues = list(product(range(dy), range(dx)))
    parts = [_attend(x[..., a::dy, b::dx], filters[..., a::dy, b::dx]) for a, b in residues]
    if len(parts) == 1:
        return parts[0].movedim(1, 3).unflatten(0, heads)
    y = parts[0].new_empty(x.shape)
    for (a, b), part in zip(residues, parts, strict=True):
        y[..., a::dy, b::dx] = part
    return y.movedim(1, 3).unflatten(0, heads)


def na2d_qk(
    query: Tensor,
    key: Tensor,
    kernel_size: Pair,
    dilation: Pair = 1,
    additional_keys: Tensor | None = None,
    is_causal: bool | tuple[bool, bool] = False,
    rpb: Tensor | None = None,
) -> Tensor:
    """The products of a pixel's query with the keys of its neighbourhood, as `natten.functional.na2d_qk`.

    query, key: (B, heads, H, W, D)    returns: (B, heads, H, W, k²), tap by tap, rows first
    rpb: (heads, 2k-1, 2k-1), a bias for each relative position of key and query

    kernel_size, dilation: as in na2d_av.
    additional_keys, is_causal: not supported, and refused.
    The products are not scaled: divide the query by √D first. This one is plain torch, a tap at a time.

    >>> na2d_qk(torch.randn(1, 2, 5, 6, 4), torch.randn(1, 2, 5, 6, 4), 3).shape
    torch.Size([1, 2, 5, 6, 9])
    """
    _refuse(additional_keys, is_causal)
    window = _window(query, "query", kernel_size, dilation)
    if query.shape != key.shape:
        raise ValueError(f"key needs the query's shape, {tuple(query.shape)}; got {tuple(key.shape)}.")
    k = window.side
    rows, columns = (_seen(n, k, d, query.device) for n, d in zip(query.shape[2:4], window.dilation, strict=True))
    of_rows = [key.index_select(2, rows[:, i]) for i in range(k)]
    attn = torch.stack(
        [(query * of_row.index_select(3, columns[:, j])).sum(4) for of_row in of_rows for j in range(k)], dim=4
    )
    return attn if rpb is None else attn + _biases(rpb, rows, columns, window, query).to(attn.dtype)


def _attend(x: Tensor, filters: Tensor) -> Tensor:
    """Without dilation. x: (N, D, H, W)    filters: (N, k, k, H, W)    returns: (N, D, H, W)"""
    k = filters.shape[1]
    return torch.cat(
        [
            torch.cat([_part(x, filters, rows, columns) for columns in _parts(x.shape[3], k)], dim=3)
            for rows in _parts(x.shape[2], k)
        ],
        dim=2,
    )


def _parts(size: int, k: int) -> list[tuple[slice, slice, int]]:
    """An axis in three: the pixels, what their windows see, and how many of these pixels share a window.

    The k//2 pixels at an end all have its last window, with filters of their own; between them each has its own.
    """
    half = k // 2
    middle = (slice(half, size - half), slice(None), 1)
    if half == 0:
        return [middle]
    return [(slice(half), slice(k), half), middle, (slice(size - half, size), slice(size - k, size), half)]


def _part(x: Tensor, filters: Tensor, rows: tuple[slice, slice, int], columns: tuple[slice, slice, int]) -> Tensor:
    """The output of a part of the rows and a part of the columns; pixels that share a window are its M filters."""
    (y_out, y_seen, many_y), (x_out, x_seen, many_x) = rows, columns
    seen, own = x[:, :, y_seen, x_seen], filters[:, :, :, y_out, x_out]
    P, Q = own.shape[3] // many_y, own.shape[4] // many_x
    own = own.unflatten(4, (many_x, Q)).unflatten(3, (many_y, P)).movedim((3, 5), (1, 2)).flatten(1, 2)
    y = per_pixel_conv2d(seen, own).unflatten(1, (x.shape[1], many_y, many_x))
    return y.movedim(3, 4).flatten(4, 5).flatten(2, 3)


def _seen(size: int, k: int, dilation: int, device: torch.device) -> Tensor:
    """Which pixels of an axis each of its pixels sees: (size, k).

    >>> _seen(5, 3, 1, torch.device("cpu")).tolist()
    [[0, 1, 2], [0, 1, 2], [1, 2, 3], [2, 3, 4], [2, 3, 4]]
    """
    here = torch.arange(size, device=device)
    residue = here % dilation
    last = (size - 1 - residue) // dilation  # of the pixels with this residue
    first = (here // dilation - k // 2).clamp_min(0).minimum(last - k + 1)
    return (first[:, None] + torch.arange(k, device=device)) * dilation + residue[:, None]


def _biases(rpb: Tensor, rows: Tensor, columns: Tensor, window: Window, query: Tensor) -> Tensor:
    k = window.side
    expected = (query.shape[1], 2 * k - 1, 2 * k - 1)
    if tuple(rpb.shape) != expected:
        raise ValueError(f"rpb needs (heads, 2k-1, 2k-1) = {expected}; got {tuple(rpb.shape)}.")
    relative = [
        (seen - torch.arange(len(seen), device=seen.device)[:, None]) // d + k - 1
        for seen, d in zip((rows, columns), window.dilation, strict=True)
    ]
    return rpb[:, relative[0][:, None, :, None], relative[1][None, :, None, :]].flatten(3)


def _refuse(additional: Tensor | None, is_causal: bool | tuple[bool, bool]) -> None:
    if additional is not None or (any(is_causal) if isinstance(is_causal, tuple) else is_causal):
        raise ValueError(
            "additional keys or values and causal masks are not supported here; got one of them. Leave them out, or "
            "use NATTEN's own functions."
        )


def _window(x: Tensor, name: str, kernel_size: Pair, dilation: Pair) -> Window:
    if x.ndim != 5:
        raise ValueError(f"{name} needs 5 dimensions, (B, heads, H, W, D); got {tuple(x.shape)}.")
    window = Window.of(kernel_side(kernel_size), dilation=dilation)
    least = window.side * window.dilation[0], window.side * window.dilation[1]
    if x.shape[2] < least[0] or x.shape[3] < least[1]:
        raise ValueError(
            f"the map needs at least kernel_size·dilation = {least} pixels; got {tuple(x.shape[2:4])}. Use a smaller "
            "kernel or dilation."
        )
    return window
