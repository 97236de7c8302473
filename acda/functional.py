"""The operator as functions: check the arguments, choose a backend, call it.

>>> import torch
>>> from acda import multiscale_fourier_bessel
>>> x = torch.randn(1, 8, 20, 30)
>>> coefficients = torch.randn(1, 6, 18, 20, 30)             # 6 atoms over 18 basis elements at every pixel
>>> mixing = torch.randn(16, 8, 6)
>>> adaptive_conv2d(x, coefficients, multiscale_fourier_bessel(7), mixing, padding=3).shape
torch.Size([1, 16, 20, 30])
"""

from torch import Tensor

from acda.backends import choose
from acda.backends.calling import call, like_input
from acda.checks import check_alike, check_filter_groups, check_input, check_operands, check_per_pixel, side_of
from acda.window import Pair, Window, kernel_side

__all__ = ["adaptive_conv2d", "per_pixel_conv2d"]


def adaptive_conv2d(
    x: Tensor,
    coefficients: Tensor,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    backend: str = "auto",
) -> Tensor:
    """Convolve every pixel with a filter of its own, K = mixing · coefficients · bases.

    x: (B, C, H, W)    coefficients: (B, M, L, P, Q)    bases: (L, k, k)    mixing: (O, C/groups, M)    bias: (O,)
    returns: (B, O, P, Q), the shape that `F.conv2d` gives with the same arguments; channels_last where x is

    bases=None is the pixel basis: L = k², row by row, and the coefficients are the atoms themselves.
    stride, padding, dilation, groups: as in `F.conv2d`.
    backend: "triton" are the GPU kernels, "native" is the fused CPU kernel, "reference" plain torch, "auto" the first
        of them that can run.
    Half precision is computed and accumulated in float32 and cast back. The GPU kernels multiply it as it is, and
    accumulate in float32.
    """
    check_input(x)
    window = Window.of(side_of(coefficients, bases), stride, padding, dilation)
    check_operands(x, coefficients, bases, mixing, bias, groups)
    check_per_pixel("coefficients", coefficients, (x.shape[0], *coefficients.shape[1:3]), x, window)
    kernels = choose(backend, x, bases)
    operands = (x, coefficients, bases, mixing, bias)
    return like_input(call(kernels.adaptive_conv2d, operands, window, groups, keeps_half=kernels.KEEPS_HALF), x)


def per_pixel_conv2d(
    x: Tensor,
    filters: Tensor,
    stride: Pair = 1,
    padding: Pair | str = 0,
    dilation: Pair = 1,
    groups: int = 1,
    backend: str = "auto",
) -> Tensor:
    """Filter every channel of a pixel with each of that pixel's own M filters.

    x: (B, C, H, W)    filters: (B, groups·M, k, k, P, Q)    returns: (B, C·M, P, Q), channel c·M + m

    stride, padding, dilation: as in `F.conv2d`.
    groups: how many groups of adjacent channels have filters of their own; filter g·M + m belongs to group g.
    backend: as in adaptive_conv2d.

    >>> import torch
    >>> blur = torch.full((1, 1, 3, 3, 4, 4), 1 / 9)
    >>> per_pixel_conv2d(torch.ones(1, 3, 6, 6), blur).shape
    torch.Size([1, 3, 4, 4])
    """
    check_input(x)
    if filters.ndim != 6:
        raise ValueError(f"filters needs 6 dimensions, (B, M, k, k, P, Q); got {tuple(filters.shape)}.")
    # Shapes are tensors while torch.jit traces.
    window = Window.of(kernel_side((int(filters.shape[2]), int(filters.shape[3]))), stride, padding, dilation)
    check_alike(x, filters=filters)
    check_per_pixel("filters", filters, (x.shape[0], *filters.shape[1:4]), x, window)
    check_filter_groups(x.shape[1], filters.shape[1], groups)
    if groups > 1:
        # The groups as images of their own: all channels of one of them share its filters.
        apart = [t.unflatten(1, (groups, t.shape[1] // groups)).flatten(0, 1) for t in (x, filters)]
        y = per_pixel_conv2d(apart[0], apart[1], *window[1:], backend=backend)
        return like_input(y.unflatten(0, (x.shape[0], groups)).flatten(1, 2), x)
    kernels = choose(backend, x)
    return like_input(call(kernels.per_pixel_conv2d, (x, filters), window, keeps_half=kernels.KEEPS_HALF), x)
