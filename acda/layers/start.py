"""How an adaptive layer starts: its bases, checked, and the size of its mixing."""

import math

import torch
from torch import Tensor, nn

from acda.bases import multiscale_fourier_bessel
from acda.layers.generator import TANH_POWER, AtomGenerator, ConstantAtoms


def make_bases(
    bases: str | Tensor | None,
    side: int,
    num_bases: int,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Tensor | None:
    """The elements that `bases` of a layer asks for, (L, k, k). A parameter stays itself; a tensor is copied."""
    if bases is None:
        return None
    if isinstance(bases, str):
        return _fourier_bessel(bases, side, num_bases, device, dtype)
    if not isinstance(bases, Tensor) or not bases.is_floating_point():
        came = bases.dtype if isinstance(bases, Tensor) else type(bases).__name__
        raise TypeError(f'bases needs "fourier_bessel", None or a floating-point tensor (L, k, k); got {came}.')
    if bases.ndim != 3 or bases.shape[0] < 1 or tuple(bases.shape[1:]) != (side, side):
        raise ValueError(
            f"bases needs elements of the kernel's own size, (L, {side}, {side}); got {tuple(bases.shape)}. "
            "Zero-pad smaller elements."
        )
    if not bases.is_meta and not bases.detach().any():
        raise ValueError("bases needs elements that are not all zero: no filter can be made of them.")
    if isinstance(bases, nn.Parameter):
        return bases
    return bases.detach().clone().to(device=device, dtype=dtype or torch.get_default_dtype())


def _fourier_bessel(
    name: str, side: int, num_bases: int, device: torch.device | str | None, dtype: torch.dtype | None
) -> Tensor:
    if name != "fourier_bessel":
        raise ValueError(f'bases needs "fourier_bessel", None or a tensor (L, k, k); got {name!r}.')
    if side == 1:
        raise ValueError(
            "Fourier-Bessel bases need a kernel of at least 3×3; got 1×1. Pass bases=None, and Φ predicts "
            "the single weight of each atom."
        )
    return multiscale_fourier_bessel(side, num_bases, device=device, dtype=dtype or torch.get_default_dtype())


def check_learnable(bases: Tensor | None, mixing: Tensor) -> None:
    """Learnable bases are not converted: they need the layer's dtype and device."""
    if not isinstance(bases, nn.Parameter):
        return
    elsewhere = bases.device != mixing.device and not (bases.is_meta or mixing.is_meta)
    if bases.dtype != mixing.dtype or elsewhere:
        raise TypeError(
            f"learnable bases need the layer's own dtype and device, {mixing.dtype} on {mixing.device}; got "
            f"{bases.dtype} on {bases.device}. Make the parameter with them."
        )


def draw_mixing(mixing: Tensor, bias: Tensor | None, side: int, energy: float, gain: float) -> None:
    """Draw both so that the output of a fresh layer has the variance of a fresh nn.Conv2d's, times gain².

    side: k    energy: from energy_of_atoms
    """
    # Conv2d draws weights and bias from ±1/√fan_in, and white input comes out with a third of its variance. Ours
    # sums the responses of M atoms to C/groups channels, each with the variance ‖D_m‖².
    bound = gain / math.sqrt(mixing.shape[1] * energy)
    nn.init.uniform_(mixing, -bound, bound)
    if bias is not None:
        fan_in = mixing.shape[1] * side**2
        nn.init.uniform_(bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))


def energy_of_atoms(phi: nn.Module | None, num_atoms: int, elements: Tensor) -> float:
    """E Σ‖D_m‖² of a fresh layer, where Φ's last normalisation sees standard normal numbers.

    phi: the layer's own Φ; another, of which nothing is known, is taken for one with the paper's initialisation
    elements: (L, k²) in float64
    """
    if not isinstance(phi, AtomGenerator | ConstantAtoms):
        return num_atoms * TANH_POWER * float(elements.square().sum())
    mean, variance = phi.fresh_moments()
    fixed = mean.view(num_atoms, -1) @ elements
    return float(fixed.square().sum() + (variance.view(num_atoms, -1) @ elements.square()).sum())
