"""One adaptive layer on one batch: figures of its coefficients, from sums, without all pairs or all filters."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from acda.bases import multiscale_fourier_bessel
from acda.layers import AdaptiveConv2d

# Places at a time, so that they stay in the cache.
PLACES = 16384


@dataclass(frozen=True)
class LayerView:
    """What one adaptive layer did with one input.

    name: of the layer in its model
    layer: the layer itself
    alpha: (B, M, L, P, Q), as the layer used it, on the CPU    input_size: (H, W) of the layer's own input
    seen_share: what part of that, vertically and horizontally, is the photo's; the rest is how a network extends it
    """

    name: str
    layer: AdaptiveConv2d
    alpha: Tensor
    input_size: tuple[int, ...]
    seen_share: tuple[float, ...] = (1.0, 1.0)

    @property
    def size(self) -> tuple[int, int]:
        """(P, Q), the places that have filters of their own."""
        return self.alpha.shape[3], self.alpha.shape[4]

    @property
    def scales(self) -> list[int]:
        """Sides of the bases, in the order of scale_weights; one where they are not Fourier-Bessel's."""
        side = self.layer.window.side
        return list(range(3, side + 1, 2)) if self._is_multiscale else [side]

    @cached_property
    def _is_multiscale(self) -> bool:
        bases, side = self.layer.bases, self.layer.window.side
        if bases is None or self.layer.num_elements != (side - 1) // 2 * self.layer.num_bases:
            return False
        own = multiscale_fourier_bessel(side, self.layer.num_bases)
        return torch.allclose(bases.detach().to(own), own, atol=2e-3)  # they may have been kept in half precision

    @cached_property
    def _bases(self) -> Tensor:
        """(L, k²), in double precision; without bases the pixels themselves."""
        if self.layer.bases is None:
            return torch.eye(self.layer.num_elements, dtype=torch.float64)
        return self.layer.bases.detach().cpu().double().flatten(1)

    @cached_property
    def _distances(self) -> Tensor:
        """(k²,): squared distance of each tap from the middle, in pixels of the layer's input."""
        (dy, dx), side = self.layer.window.dilation, self.layer.window.side
        at = torch.arange(side, dtype=torch.float64) - side // 2
        return ((dy * at[:, None]) ** 2 + (dx * at[None, :]) ** 2).flatten()

    def scale_weights(self) -> Tensor:
        """How much each scale's bases contribute to the atoms of a place, as parts of their energy: (B, S, P, Q)."""
        count = len(self.scales)
        grams = [(basis @ basis.T).to(self.alpha.dtype) for basis in self._bases.chunk(count)]

        def weights(alpha: Tensor) -> Tensor:
            groups = zip(alpha.chunk(count, 2), grams, strict=True)
            energy = torch.stack([_form(group, gram).sum((1, 2)) for group, gram in groups], 1)
            return energy / energy.sum(1, keepdim=True).clamp_min(1e-12)

        return self._at_all_places(weights)

    def receptive_field(self) -> Tensor:
        """Root mean square distance from the middle, weighted with the energy of the full filters: (B, P, Q).

        In pixels of the layer's input. The energy of a tap is summed over all pairs of channels, K = A·D.
        """
        mixing = self.layer.mixing.detach().cpu().double().flatten(0, 1)
        # Σ over channel pairs of K(u)² = Σ D_m(u) D_n(u) (A'A)_mn, and D = αψ: two quadratic forms in α.
        of_atoms = (mixing.T @ mixing).to(self.alpha.dtype)
        spread = (self._bases * self._distances @ self._bases.T).to(self.alpha.dtype)
        gram = (self._bases @ self._bases.T).to(self.alpha.dtype)

        def field(alpha: Tensor) -> Tensor:
            mixed = torch.einsum("mn,bnlp->bmlp", of_atoms, alpha)
            moment, energy = (_form(alpha, form, mixed).sum((1, 2)) for form in (spread, gram))
            return (moment / energy.clamp_min(1e-12)).clamp_min(0).sqrt()

        return self._at_all_places(field)

    def _at_all_places(self, function: Callable[[Tensor], Tensor]) -> Tensor:
        """function of α as (B, M, L, places), some places at a time: a large map leaves room for little else."""
        parts = [function(part) for part in self.alpha.flatten(3).split(PLACES, 3)]
        return torch.cat(parts, -1).unflatten(-1, self.size)

    def atoms_at(self, y: int, x: int, image: int = 0) -> Tensor:
        """The M small filters of the place in row y and column x of an image of the batch: (M, k, k)."""
        side = self.layer.window.side
        atoms = self.alpha[image, :, :, y, x].double() @ self._bases
        return atoms.unflatten(1, (side, side))

    def filter_at(self, y: int, x: int, out_channel: int, in_channel: int, image: int = 0) -> Tensor:
        """The full filter of a place, as in atoms_at, from in_channel to out_channel: (k, k).

        y, x: row and column    image: its number in the batch
        """
        weights = self.layer.mixing[out_channel, in_channel].detach().cpu().double()
        return torch.einsum("m,mij->ij", weights, self.atoms_at(y, x, image))

    def diversity(self) -> Tensor:
        """Mean pairwise cosine distance of α between places, averaged over the scales: (B,)."""
        return torch.stack([diversity(group.flatten(1, 2)) for group in self._by_scale()]).mean(0)

    def most_different(self, count: int = 3, image: int = 0) -> list[tuple[int, int]]:
        """Places whose coefficients are far from each other: the first far from the mean, then always the farthest.

        count: how many    image: its number in the batch
        """
        vectors = self.alpha[image].flatten(0, 1).flatten(1)
        inverse = 1 / vectors.norm(dim=0).clamp_min(1e-12)
        nearest = (vectors @ inverse) @ vectors * inverse
        places: list[tuple[int, int]] = []
        for _ in range(min(count, vectors.shape[1])):
            index = int(nearest.argmin())
            places.append(divmod(index, self.alpha.shape[4]))
            alike = vectors[:, index] @ vectors * inverse * inverse[index]
            nearest = alike if len(places) == 1 else torch.maximum(nearest, alike)
            nearest[[y * self.alpha.shape[4] + x for y, x in places]] = torch.inf
        return places

    def _by_scale(self) -> tuple[Tensor, ...]:
        return self.alpha.chunk(len(self.scales), 2)


def _form(alpha: Tensor, form: Tensor, other: Tensor | None = None) -> Tensor:
    """other · form · α for each atom, summand by summand: (B, M, L, places); other is α itself unless given."""
    return (alpha if other is None else other) * torch.einsum("lk,bmkp->bmlp", form, alpha)


def diversity(vectors: Tensor) -> Tensor:
    """Mean cosine distance over all pairs of different places, exactly, from sums: (B, channels, P, Q) → (B,).

    Σ over pairs of â·b̂ is (‖Σ â‖² − N) / 2 for unit vectors; a place whose vector is zero has no direction and is left
    out. Fewer than two directions have no distance: NaN.

    >>> diversity(torch.tensor([[1.0, -1.0]])[None, :, None])
    tensor([2.])
    """
    total = torch.zeros(vectors.shape[:2], dtype=torch.float64, device=vectors.device)
    count = torch.zeros(vectors.shape[:1], dtype=torch.float64, device=vectors.device)
    for part in (some.double() for some in vectors.flatten(2).split(PLACES, 2)):
        norms = part.square().sum(1).sqrt()
        inverse = torch.where(norms > 0, 1 / norms, 0.0)
        total += torch.bmm(part, inverse[:, :, None])[:, :, 0]
        count += (norms > 0).sum(1)
    pairs = (total.square().sum(1) - count) / (count * (count - 1)).clamp_min(1)
    return torch.where(count > 1, 1 - pairs, torch.nan).to(vectors.dtype)
