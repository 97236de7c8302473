"""Write ordinary filters as a mixture of a few atoms over given bases."""

from typing import NamedTuple

import torch
from torch import Tensor


class Decomposition(NamedTuple):
    """weight ≈ Σ_m mixing[…, m]·Σ_l coefficients[m, l]·bases[l], in float64 on the CPU."""

    mixing: Tensor
    coefficients: Tensor
    relative_error: float


def decompose_filters(weight: Tensor, bases: Tensor | None, num_atoms: int | None) -> Decomposition:
    """The nearest filters (least squares) that `num_atoms` atoms over the bases can give.

    weight: (O, C/groups, k, k)    bases: (L, k, k), or None for the pixel basis
    returns: mixing (O, C/groups, M) and coefficients (M, L), atoms of unit norm, the strongest first, with
    M = num_atoms or the number of independent atoms that there are, if that is less. None takes as many as the filters
    need: their rank within the span of the bases, up to rounding.

    >>> mixing, coefficients, error = decompose_filters(torch.randn(8, 4, 3, 3), None, num_atoms=9)
    >>> mixing.shape, coefficients.shape, error < 1e-12
    (torch.Size([8, 4, 9]), torch.Size([9, 9]), True)
    """
    if num_atoms is not None and num_atoms < 1:
        raise ValueError(f"num_atoms needs to be at least 1; got {num_atoms}.")
    if bases is not None and bases.shape[1:] != weight.shape[2:]:
        raise ValueError(
            f"bases needs elements of the filters' own size, (L, {weight.shape[2]}, {weight.shape[3]}); got "
            f"{tuple(bases.shape)}."
        )
    filters = weight.detach().cpu().double().flatten(2)
    psi = torch.eye(filters.shape[2], dtype=torch.float64) if bases is None else _flat(bases)
    # Elements that differ by no more than rounding do not span another direction.
    least = 10 * torch.finfo(torch.float64 if bases is None else bases.dtype).eps
    span = torch.linalg.svd(psi, full_matrices=False)
    rank = int((least * span.S.max() < span.S).sum())
    directions = span.Vh[:rank]
    # Of all rank-M matrices within the span, the truncated SVD of the projection is the nearest (Eckart-Young).
    U, S, Vh = torch.linalg.svd((filters @ directions.T).flatten(0, 1), full_matrices=False)
    M = _rank(S, weight.dtype) if num_atoms is None else min(num_atoms, len(S))
    mixing = (U[:, :M] * S[:M]).unflatten(0, filters.shape[:2])
    atoms = Vh[:M] @ directions
    coefficients = atoms @ torch.linalg.pinv(psi, rtol=least)
    error = torch.linalg.norm(filters - mixing @ atoms) / torch.linalg.norm(filters).clamp_min(1e-300)
    return Decomposition(mixing, coefficients, float(error))


def _flat(bases: Tensor) -> Tensor:
    return bases.detach().cpu().double().flatten(1)


def _rank(singular: Tensor, dtype: torch.dtype) -> int:
    """How many directions are more than the rounding of filters of this dtype, and at least one.

    Half precision counts as float32: its rounding is part of the trained filters.
    """
    least = 10 * min(torch.finfo(dtype).eps, torch.finfo(torch.float32).eps)
    return max(1, int((least * singular.max() < singular).sum()))
