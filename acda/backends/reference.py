"""The paper's equations in plain torch: the truth that every kernel is compared with, on every device.

A loop over the k² taps of the window reads shifted views of the input, so the unfolded input, k² times the image,
never exists. The loop's length is fixed by the kernel, not by the image, so it exports with dynamic sizes.
"""

from collections.abc import Callable, Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.window import Window

# What one strip of rows may allocate for atoms and z. Larger strips are no faster: they do not fit into the cache.
STRIP_BYTES = 16 * 2**20

WANTS_CHANNELS_LAST = False
KEEPS_HALF = False
adaptive_layer = None
train_layer = None


def why_not(x: Tensor, bases: Tensor | None = None, insisted: bool = False) -> None:
    """It can always run."""


def adaptive_conv2d(
    x: Tensor,
    alpha: Tensor,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
) -> Tensor:
    """Filter every pixel with its own K = A·α·ψ, as two small steps: the atoms of the pixel, then A.

    x: (B, C, H, W)    alpha: (B, M, L, P, Q)    bases: (L, k, k) or None    mixing: (O, C/groups, M)
    returns: (B, O, P, Q)
    """
    C, k2 = x.shape[1], window.side**2
    M, L = alpha.shape[1:3]
    weight = mixing.flatten(1)[:, :, None, None]

    if bases is not None and torch.compiler.is_exporting():
        # A file for other programs: a few nodes for the layer instead of several for each tap.
        responses, numbers_per_pixel = bases_then_products, 2 * C * (L + M)
    elif bases is not None and C * L * (k2 + M) < M * k2 * (L + C):
        # Few channels: filtering them with the fixed elements first takes fewer multiplications.
        responses, numbers_per_pixel = bases_then_coefficients, C * (L + M)
    else:
        responses, numbers_per_pixel = atoms_then_taps, M * (k2 + C)

    def rows(x: Tensor, alpha: Tensor) -> Tensor:
        z = responses(x, alpha, bases, window.unpadded())
        return F.conv2d(z.flatten(1, 2), weight, bias, groups=groups)

    return _in_strips(rows, _pad(x, window), alpha, window, numbers_per_pixel, mixing, bias, bases)


def per_pixel_conv2d(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """Filter all channels of a pixel with each of its M filters.

    x: (B, C, H, W)    filters: (B, M, k, k, P, Q)    returns: (B, C·M, P, Q), channel c·M + m
    """

    def rows(x: Tensor, filters: Tensor) -> Tensor:
        return sum_over_taps(x, filters, window.unpadded()).flatten(1, 2)

    return _in_strips(rows, _pad(x, window), filters, window, x.shape[1] * filters.shape[1])


def conv2d(x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """F.conv2d, in which negative padding crops the map: the first part of a step of Φ."""
    return F.conv2d(_cropped(x, padding), weight, None, stride, _not_negative(padding))


def conv2d_tanh(x: Tensor, weight: Tensor, shift: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """tanh(F.conv2d(…)) without gradients, in which negative padding crops the map: a step of Φ in inference."""
    return F.conv2d(_cropped(x, padding), weight, shift, stride, _not_negative(padding)).tanh_()


def batch_norm_tanh(
    u: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """tanh(F.batch_norm(…)), which has the same arguments: the last part of a step of Φ."""
    return F.batch_norm(u, running_mean, running_var, weight, bias, training, momentum, eps).tanh_()


def compose_atoms(alpha: Tensor, bases: Tensor | None, side: int) -> Tensor:
    """D = αψ: blend the bases into the M small filters of every pixel. bases=None is the pixel basis.

    alpha: (B, M, L, P, Q)    bases: (L, k, k)    returns: (B, M, k, k, P, Q)

    >>> compose_atoms(torch.ones(1, 2, 3, 4, 4), torch.ones(3, 5, 5), 5).shape
    torch.Size([1, 2, 5, 5, 4, 4])
    """
    if bases is None:
        return alpha.unflatten(2, (side, side))
    D = bases.flatten(1).t() @ alpha.flatten(3)
    return D.unflatten(2, (side, side)).unflatten(4, alpha.shape[3:])


def atoms_then_taps(x: Tensor, alpha: Tensor, bases: Tensor | None, window: Window) -> Tensor:
    """z[c, m] = Σ_t D[m, t]·x[c, t]: compose the atoms of every pixel, then apply them. (B, C, M, P, Q)"""
    return sum_over_taps(x, compose_atoms(alpha, bases, window.side), window)


def bases_then_coefficients(x: Tensor, alpha: Tensor, bases: Tensor | None, window: Window) -> Tensor:
    """The same z in the other order, Σ_l α[m, l]·(ψ_l ∗ x[c]): one ordinary convolution, then a blend per pixel."""
    return _sum_of_products(_filtered(x, bases, window).unbind(2), alpha.unbind(2))


def bases_then_products(x: Tensor, alpha: Tensor, bases: Tensor | None, window: Window) -> Tensor:
    """The same, with the blend of a pixel as one product of matrices, (C, L) by (L, M)."""
    u = _filtered(x, bases, window)
    return (u.permute(0, 3, 4, 1, 2) @ alpha.permute(0, 3, 4, 2, 1)).permute(0, 3, 4, 1, 2)


def _filtered(x: Tensor, bases: Tensor | None, window: Window) -> Tensor:
    """Every channel filtered with every fixed element: (B, C, L, P, Q)"""
    assert bases is not None
    B, C, H, W = x.shape
    u = F.conv2d(x.reshape(B * C, 1, H, W), bases[:, None], None, window.stride, 0, window.dilation)
    return u.unflatten(0, (B, C))


def sum_over_taps(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """z[c, m] at a pixel = Σ over the taps of the pixel's own filter. (B, C, M, P, Q)"""
    P, Q = filters.shape[-2:]
    views = (_tap(x, window, i, j, P, Q) for i in range(window.side) for j in range(window.side))
    return _sum_of_products(views, filters.flatten(2, 3).unbind(2))


def _tap(x: Tensor, window: Window, i: int, j: int, P: int, Q: int) -> Tensor:
    """What tap (i, j) sees at P×Q output pixels: a view of the padded input."""
    if window.stride == (1, 1) or not torch.compiler.is_exporting():
        return x[:, :, *window.tap(i, j, P, Q)]
    # torch.export has to prove that a slice ends within the map, which it cannot where earlier layers have a stride
    # too. An index needs no proof.
    for dim, size, part in zip((2, 3), (P, Q), window.tap(i, j, P, Q), strict=True):
        x = x.index_select(dim, part.start + part.step * torch.arange(size, device=x.device))
    return x


def _sum_of_products(per_channel: Iterable[Tensor], per_atom: Iterable[Tensor]) -> Tensor:
    """Σ over pairs of (B, C, P, Q) and (B, M, P, Q), every channel with every atom: (B, C, M, P, Q)"""
    # One pair at a time: each view is made just before its product, so backward, which runs in the reverse order, adds
    # a view's gradient to the input's as soon as it exists. If all views were made first, all k² would be kept.
    pairs = zip(per_channel, per_atom, strict=True)
    first, weight = next(pairs)
    z = first[:, :, None] * weight[:, None]
    for values, weight in pairs:
        # In place: no gradient needs the sum so far, and autograd keeps only views of the two factors.
        z.addcmul_(values[:, :, None], weight[:, None])
    return z


def _pad(x: Tensor, window: Window) -> Tensor:
    (py, px) = window.padding
    return F.pad(x, (px, px, py, py)) if py or px else x


def _cropped(x: Tensor, padding: tuple[int, int]) -> Tensor:
    cy, cx = (min(p, 0) for p in padding)
    # Not a slice: its gradient would be contiguous whatever the map is, and BatchNorm is ten times slower then.
    return F.pad(x, (cx, cx, cy, cy)) if cx or cy else x


def _not_negative(padding: tuple[int, int]) -> tuple[int, int]:
    return max(padding[0], 0), max(padding[1], 0)


def _in_strips(
    rows: Callable[[Tensor, Tensor], Tensor],
    x: Tensor,
    per_pixel: Tensor,
    window: Window,
    numbers_per_pixel: int,
    *others: Tensor | None,
) -> Tensor:
    """Compute a few output rows at a time where nothing has to be kept for backward, so that memory stays bounded."""
    B, P, Q = x.shape[0], *per_pixel.shape[-2:]
    if _is_traced(P) or needs_grad(x, per_pixel, *others):
        return rows(x, per_pixel)
    height = max(1, STRIP_BYTES // max(1, B * Q * numbers_per_pixel * x.element_size()))
    if height >= P:
        return rows(x, per_pixel)
    stride, span = window.stride[0], 2 * window.reach[0] + 1
    return torch.cat(
        [
            rows(x[:, :, first * stride : (last - 1) * stride + span], per_pixel[..., first:last, :])
            for first in range(0, P, height)
            for last in [min(first + height, P)]
        ],
        dim=2,
    )


def needs_grad(*tensors: Tensor | None) -> bool:
    """Whether autograd records an operation on these tensors."""
    return torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)


def _is_traced(size: int) -> bool:
    """True while torch records a graph: the number of strips would become a constant of it."""
    return torch.compiler.is_compiling() or not isinstance(size, int)
