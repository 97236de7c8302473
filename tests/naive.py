"""The definition of the operator with loops over pixels, as slow and as plain as it can be."""

import numpy as np
import pytest
import torch
from torch import Tensor

from acda.backends import native

# What is compared with it, each by name: "auto" would meet the first of them only.
BY_NAME = [
    "reference",
    pytest.param("native", marks=pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))),
]


def adaptive_conv2d(x, coefficients, bases, mixing, bias, stride, padding, dilation, groups) -> Tensor:
    """Build the full filter K of each output pixel and apply it to that pixel's window."""
    x, coefficients, mixing = (t.detach().double().numpy() for t in (x, coefficients, mixing))
    (sy, sx), (py, px), (dy, dx) = stride, padding, dilation
    B, C, _, _ = x.shape
    L, P, Q = coefficients.shape[2:]
    O = len(mixing)  # noqa: E741  the paper's letter
    psi = np.eye(L).reshape(L, round(L**0.5), -1) if bases is None else bases.detach().double().numpy()
    k = psi.shape[1]
    padded = np.pad(x, ((0, 0), (0, 0), (py, py), (px, px)))
    y = np.zeros((B, O, P, Q))
    for b in range(B):
        for p in range(P):
            for q in range(Q):
                D = np.tensordot(coefficients[b, :, :, p, q], psi, 1)
                K = np.tensordot(mixing, D, 1)
                window = padded[b, :, p * sy :, q * sx :][:, ::dy, ::dx][:, :k, :k]
                for o in range(O):
                    first = o // (O // groups) * (C // groups)
                    y[b, o, p, q] = (K[o] * window[first : first + C // groups]).sum()
    return torch.as_tensor(y) + (0 if bias is None else bias.detach().double()[:, None, None])


def per_pixel_conv2d(x, filters, stride, padding, dilation) -> Tensor:
    """Each channel with each filter, as a mixing that selects one pair for each output."""
    C, M = x.shape[1], filters.shape[1]
    pick = torch.eye(C * M, dtype=x.dtype).reshape(C * M, C, M)
    return adaptive_conv2d(x, filters.flatten(2, 3), None, pick, None, stride, padding, dilation, 1)
