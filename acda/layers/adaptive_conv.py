"""AdaptiveConv2d: Conv2d with a filter of its own at every pixel."""

import math
import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn

from acda.backends.reference import compose_atoms
from acda.bases import multiscale_fourier_bessel
from acda.decompose import decompose_filters
from acda.functional import adaptive_conv2d, like_input, takes_native
from acda.layers.conv_like import ConvLike, check_counts
from acda.layers.generator import TANH_POWER, AtomGenerator
from acda.window import Pair

# A relative error in the filters up to here is rounding.
EXACT = 1e-5


class AdaptiveConv2d(ConvLike):
    """A convolution whose filter is different at every pixel. Arguments and output size are those of nn.Conv2d.

    A small network Φ (`generator`) reads the neighbourhood of each pixel and predicts coefficients α, which blend
    fixed `bases` into `num_atoms` small filters; `mixing`, shared by the whole image, combines what they see.

    bases: "fourier_bessel", num_bases of them at each of the scales 3, 5, … k; None, and Φ predicts the atoms
        themselves; or your own tensor (L, k, k), which stays learnable if it is an nn.Parameter.
    generator: your own Φ, any module x → (B, M·L, P, Q), channel m·L + l, at the layer's output size.
    first_kernel: side of the first convolution of the built-in Φ. The paper's text has 1, the authors' layer 3, which
        sees more where the input has few channels.

    >>> layer = AdaptiveConv2d(64, 128, 7, stride=2, padding=3)
    >>> layer(torch.randn(1, 64, 33, 50)).shape
    torch.Size([1, 128, 17, 25])
    """

    bases: Tensor | None
    _backend: str = "auto"

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        num_atoms: int = 6,
        num_bases: int = 6,
        bases: str | Tensor | None = "fourier_bessel",
        generator: nn.Module | None = None,
        first_kernel: int = 1,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        check_counts(num_atoms=num_atoms)
        self.num_atoms, self.num_bases = num_atoms, num_bases

        self._uses_fourier_bessel = isinstance(bases, str)
        # What reset_parameters puts back; learnable bases are the caller's.
        self._given_bases = None
        if isinstance(bases, Tensor) and not isinstance(bases, nn.Parameter) and not bases.is_meta:
            self._given_bases = bases.detach().cpu().clone()
        self._register_bases(bases, device or torch.get_default_device(), dtype)
        self.mixing = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, num_atoms, device=device, dtype=dtype)
        )
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self._check_learnable_bases()
        if generator is not None and not isinstance(generator, nn.Module):
            raise TypeError(f"generator needs to be an nn.Module; got {type(generator).__name__}.")
        self._made_generator = generator is None
        self.generator = generator if generator is not None else self._default_generator(first_kernel, device, dtype)
        self._reset_mixing(gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.mixing)
        # Φ and the kernel both work fastest in channels_last: change the format once, not twice.
        inner = x.contiguous(memory_format=torch.channels_last) if takes_native(self.backend, x, self.bases) else x
        alpha = self.coefficients(inner)
        if not torch.is_grad_enabled():
            inner = x  # the kernel reads either format: nothing has to keep the copy
        inner, window = self.extended(inner)
        arguments = (inner, alpha, self.bases, self.mixing, self.bias, *window[1:], self.groups, self.backend)
        return like_input(adaptive_conv2d(*arguments), x)

    def coefficients(self, x: Tensor) -> Tensor:
        """α, what Φ predicts for every output pixel: (B, M, L, P, Q)."""
        self.check(x, self.mixing)
        P, Q = self.window.output_size(x.shape[2], x.shape[3])
        M, L = self.num_atoms, self.num_elements
        alpha = self.generator(x)
        if not isinstance(alpha, Tensor) or tuple(alpha.shape) != (x.shape[0], M * L, P, Q):
            came = tuple(alpha.shape) if isinstance(alpha, Tensor) else type(alpha).__name__
            raise ValueError(
                f"the generator needs to return one map per atom and basis element, (B, M·L, P, Q) = "
                f"{(x.shape[0], M * L, P, Q)}; got {came}. Does it use the layer's stride and padding?"
            )
        # Not unflatten(1, …) at once: for a batch of one its backward would hand Φ's last normalisation a gradient with
        # unusual strides, which torch 2.15 gets wrong (see acda.backends.native).
        return alpha.permute(0, 2, 3, 1).unflatten(3, (M, L)).permute(0, 3, 4, 1, 2)

    def atoms(self, x: Tensor) -> Tensor:
        """D = αψ, the M small filters of every output pixel: (B, M, k, k, P, Q)."""
        alpha = self.coefficients(x)
        bases = None if self.bases is None else self.bases.to(alpha.dtype)
        return compose_atoms(alpha, bases, self.window.side)

    def filters(self, x: Tensor) -> Tensor:
        """K = A·D, the full filter of every output pixel: (B, O, C/groups, k, k, P, Q). For small inputs only."""
        D = self.atoms(x)
        return torch.einsum("ocm,bmijpq->bocijpq", self.mixing.to(D.dtype), D)

    def reset_parameters(self, gain: float = 1.0) -> None:
        """Start afresh. With gain 1 and Φ in train mode, white input gives the output variance of a fresh nn.Conv2d.

        gain: factor on the output's standard deviation. √6 gives Kaiming's normal initialisation for ReLU networks.
        A generator of your own is left as it is.
        """
        if self._made_generator and isinstance(self.generator, AtomGenerator):
            self.generator.reset_parameters()
        given = self._given_bases
        if self._uses_fourier_bessel:
            given = multiscale_fourier_bessel(self.window.side, self.num_bases, device="cpu", dtype=torch.float64)
        if given is not None and self.bases is not None:
            # A layer made on the meta device has no bases until it is reset.
            with torch.no_grad():
                self.bases.copy_(given)
        self._reset_mixing(gain)

    @classmethod
    def like(cls, conv: nn.Conv2d, **options: Any) -> Self:
        """A fresh layer with the arguments, device, dtype and mode of this convolution, frozen where that is.

        options: the layer's own
        """
        layer = cls(
            conv.in_channels,
            conv.out_channels,
            _as_pair(conv.kernel_size),
            _as_pair(conv.stride),
            conv.padding if isinstance(conv.padding, str) else _as_pair(conv.padding),
            _as_pair(conv.dilation),
            conv.groups,
            conv.bias is not None,
            conv.padding_mode,
            conv.weight.device,
            conv.weight.dtype,
            **options,
        )
        # Learnable bases are the caller's, and may serve several layers.
        layer.mixing.requires_grad_(conv.weight.requires_grad)
        layer.generator.requires_grad_(conv.weight.requires_grad)
        if conv.bias is not None and layer.bias is not None:
            layer.bias.requires_grad_(conv.bias.requires_grad)
        return layer.train(conv.training)

    @classmethod
    def from_conv2d(
        cls,
        conv: nn.Conv2d,
        *,
        num_atoms: int = 6,
        num_bases: int = 6,
        bases: str | Tensor | None = "fourier_bessel",
    ) -> Self:
        """A layer that starts as this trained convolution: its filters over the bases, the same at every pixel.

        Exact when the bases span the filters and num_atoms reaches their rank, as bases=None with k² atoms always
        does; otherwise the nearest there is, and a ConversionWarning tells the relative error.

        >>> conv = nn.Conv2d(8, 16, 3, padding=1)
        >>> layer = AdaptiveConv2d.from_conv2d(conv, bases=None, num_atoms=9)
        >>> x = torch.randn(1, 8, 10, 10)
        >>> torch.allclose(layer(x), conv(x), atol=1e-5)
        True
        """
        layer = cls.like(conv, num_atoms=num_atoms, num_bases=num_bases, bases=bases)
        error = 0.0 if conv.weight.is_meta else layer.imitate(conv.weight, conv.bias)
        if error > EXACT:
            warnings.warn(
                f"the layer starts as the convolution to a relative error of {error:.2g} in its filters: {num_atoms} "
                f"atoms over {layer.num_elements} basis elements in {conv.weight.dtype} do not give them exactly. "
                "bases=None with num_atoms=k² does, but for rounding.",
                ConversionWarning,
                stacklevel=2,
            )
        return layer

    @torch.no_grad()
    def imitate(self, weight: Tensor, bias: Tensor | None) -> float:
        """Become the convolution with these filters, as nearly as atoms and dtype allow; returns the relative error.

        Φ is made constant, not removed: its last normalisation carries the coefficients with a scale of zero, from
        which training sets it free.
        """
        if not isinstance(self.generator, AtomGenerator):
            raise TypeError(
                f"imitating a convolution needs the layer's own AtomGenerator, whose last normalisation carries the "
                f"coefficients; got {type(self.generator).__name__}."
            )
        mixing, coefficients, _ = decompose_filters(weight, self.bases, self.num_atoms)
        found = len(coefficients)
        # Into Tanh's range, at half its height, where it still has a slope; the mixing makes up for it.
        scale = 0.5 / coefficients.abs().amax(dim=1).clamp_min(1e-12)
        shift = torch.zeros(self.num_atoms, self.num_elements, dtype=torch.float64)
        shift[:found] = torch.atanh(coefficients * scale[:, None])
        # Atoms beyond the filters' rank are silent, not dead: their mixing stays random, so that they can learn.
        self.mixing[..., :found] = (mixing / scale).to(self.mixing)
        if self.bias is not None:
            self.bias.copy_(torch.zeros_like(self.bias) if bias is None else bias)
        nn.init.zeros_(self.generator.predict_norm.weight)
        self.generator.predict_norm.bias.copy_(shift.flatten())
        own, wanted = self._filters_of(self.generator.predict_norm.bias.tanh()), weight.detach().cpu().double()
        return float(torch.linalg.norm(own.cpu() - wanted) / torch.linalg.norm(wanted).clamp_min(1e-300))

    def _filters_of(self, coefficients: Tensor) -> Tensor:
        """The filters that these M·L coefficients make, (O, C/groups, k, k), with the layer's rounding."""
        alpha = coefficients.view(1, self.num_atoms, -1, 1, 1)
        atoms = compose_atoms(alpha, self.bases, self.window.side)[0, ..., 0, 0]
        return torch.einsum("ocm,mij->ocij", self.mixing, atoms)

    @property
    def num_elements(self) -> int:
        """L, how many basis elements an atom blends."""
        return self.window.side**2 if self.bases is None else self.bases.shape[0]

    @property
    def backend(self) -> str:
        """Which of acda.functional's backends computes the layer; set it to insist on one."""
        return self._backend

    @backend.setter
    def backend(self, backend: str) -> None:
        self._backend = backend
        if isinstance(self.generator, AtomGenerator):
            self.generator.backend = backend

    def extra_repr(self) -> str:
        bases = None if self.bases is None else tuple(self.bases.shape)
        return f"{super().extra_repr()}, num_atoms={self.num_atoms}, bases={bases}"

    def _default_generator(
        self, first_kernel: int, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> AtomGenerator:
        return AtomGenerator(
            self.in_channels,
            self.num_atoms * self.num_elements,
            *self.window,
            self.padding_mode,
            first_kernel=first_kernel,
            device=device,
            dtype=dtype,
        )

    def _reset_mixing(self, gain: float) -> None:
        if self.mixing.is_meta:
            return
        # Conv2d draws weights and bias from ±1/√fan_in, and white input comes out with a third of its variance. Ours
        # sums M·C/groups responses, each with a variance of E[α²]·Σ‖ψ_l‖².
        fan_in = self.mixing.shape[1] * self.window.side**2
        energy = self._energy_of_bases()
        bound = gain / math.sqrt(self.mixing.shape[1] * self.num_atoms * TANH_POWER * energy)
        nn.init.uniform_(self.mixing, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -1 / math.sqrt(fan_in), 1 / math.sqrt(fan_in))

    def _energy_of_bases(self) -> float:
        """Σ‖ψ_l‖²; Fourier-Bessel elements and pixels have a norm of one each."""
        if self._uses_fourier_bessel or self.bases is None:
            return self.num_elements
        return float(self.bases.detach().cpu().double().square().sum())

    def _check_learnable_bases(self) -> None:
        """A parameter stays what it is, and so has to be what the layer is."""
        bases, mixing = self.bases, self.mixing
        if not isinstance(bases, nn.Parameter):
            return
        elsewhere = bases.device != mixing.device and not (bases.is_meta or mixing.is_meta)
        if bases.dtype != mixing.dtype or elsewhere:
            raise TypeError(
                f"learnable bases need the layer's own dtype and device, {mixing.dtype} on {mixing.device}; got "
                f"{bases.dtype} on {bases.device}. Make the parameter with them."
            )

    def _register_bases(
        self, bases: str | Tensor | None, device: torch.device | str | None, dtype: torch.dtype | None
    ) -> None:
        side = self.window.side
        if isinstance(bases, str):
            if bases != "fourier_bessel":
                raise ValueError(f'bases needs "fourier_bessel", None or a tensor (L, k, k); got {bases!r}.')
            if side == 1:
                raise ValueError(
                    "Fourier-Bessel bases need a kernel of at least 3×3; got 1×1. Pass bases=None, and Φ predicts "
                    "the single weight of each atom."
                )
            bases = multiscale_fourier_bessel(side, self.num_bases, device=device, dtype=dtype)
        if bases is None:
            self.register_buffer("bases", None)
            return
        if not isinstance(bases, Tensor) or not bases.is_floating_point():
            came = bases.dtype if isinstance(bases, Tensor) else type(bases).__name__
            raise TypeError(f'bases needs "fourier_bessel", None or a floating-point tensor (L, k, k); got {came}.')
        if bases.ndim != 3 or bases.shape[0] < 1 or tuple(bases.shape[1:]) != (side, side):
            raise ValueError(
                f"bases needs elements of the kernel's own size, (L, {side}, {side}); got {tuple(bases.shape)}. "
                "Zero-pad smaller elements."
            )
        if not self._uses_fourier_bessel and not bases.is_meta and not bases.detach().any():
            raise ValueError("bases needs elements that are not all zero: no filter can be made of them.")
        if isinstance(bases, nn.Parameter):
            self.bases = bases
        else:
            own = bases.detach().clone().to(device=device, dtype=dtype or torch.get_default_dtype())
            self.register_buffer("bases", own)


class ConversionWarning(UserWarning):
    """A convolution was converted only approximately, or not at all."""


def _as_pair(pair: tuple[int, ...]) -> tuple[int, int]:
    """Conv2d's own attributes are pairs that their type does not tell."""
    return pair[0], pair[1]
