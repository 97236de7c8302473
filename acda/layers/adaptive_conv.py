"""AdaptiveConv2d: Conv2d with a filter of its own at every pixel."""

import warnings
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from acda.backends import Backend, choose
from acda.backends.calling import call, like_input
from acda.backends.reference import compose_atoms
from acda.bases import multiscale_fourier_bessel
from acda.checks import check_operands
from acda.layers.conv_like import ConvLike, check_counts
from acda.layers.fused import predict, whole_layer
from acda.layers.generator import AtomGenerator, ConstantAtoms
from acda.layers.imitation import EXACT, ConversionWarning, imitate, make_like, start_from
from acda.layers.shared_filters import convolve_images
from acda.layers.start import check_learnable, draw_mixing, energy_of_atoms, make_bases
from acda.window import Pair

# Defaults of the built-in Φ.
HIDDEN, FIRST_KERNEL, ADAPTIVITY = 64, 1, 0.2
ADAPT = ("pixel", "image", "none")
FROM_CONV2D = (
    "The state dict holds the weight of an nn.Conv2d where the model has an AdaptiveConv2d. Load it into the model "
    "with nn.Conv2d, then call acda.convert(model), or AdaptiveConv2d.from_conv2d(conv) for one layer."
)


class AdaptiveConv2d(ConvLike):
    """A convolution whose filter is different at every pixel. Arguments and output size are those of nn.Conv2d.

    A small network Φ (`generator`) reads the neighbourhood of each pixel and predicts coefficients α, which blend
    fixed `bases` into `num_atoms` small filters; `mixing`, shared by the whole image, combines their outputs.

    bases: "fourier_bessel", num_bases of them at each of the scales 3, 5, … k; None, and Φ predicts the atoms
        themselves; or your own tensor (L, k, k), which stays learnable if it is an nn.Parameter.
    generator: your own Φ, any module x → (B, M·L, P, Q), channel m·L + l, at the layer's output size.
    hidden: channels between the two convolutions of the built-in Φ.
    first_kernel: side of the first of them. The paper's text has 1, the authors' layer 3, which
        sees more where the input has few channels.
    adaptivity: how much of a fresh layer's filters depends on the position, from 0, an ordinary convolution, to 1, the
        paper's initialisation. "How a fresh layer starts" in the documentation says why the default is small.
    adapt: what has its own filters. "pixel": every pixel. "image": every image, by Φ's predictions averaged over it.
        "none": nothing; the coefficients are learned, and there is no Φ. "image" and "none" are for comparisons and are
        computed as ordinary convolutions; an exported program with "image" takes one batch size.

    >>> layer = AdaptiveConv2d(64, 128, 7, stride=2, padding=3)
    >>> layer(torch.randn(1, 64, 33, 50)).shape
    torch.Size([1, 128, 17, 25])
    """

    bases: Tensor | None
    backend: str = "auto"
    """The backend that computes the layer, as in acda.functional: "auto", or the name of one to require it.

    torch.export records plain torch operations, which run anywhere, unless this is "native": then the program keeps the
    operators of the CPU kernel (acda::…). Then `import acda` before loading it, and pass inputs in the memory format
    that it was exported with.
    """

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
        hidden: int = HIDDEN,
        first_kernel: int = FIRST_KERNEL,
        adaptivity: float = ADAPTIVITY,
        adapt: str = "pixel",
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        check_counts(num_atoms=num_atoms)
        self.num_atoms, self.num_bases, self.adapt = num_atoms, num_bases, adapt
        if adapt not in ADAPT or (adapt != "pixel" and generator is not None):
            raise ValueError(
                f'adapt needs to be "pixel", "image" or "none", and "pixel" beside your own generator; got {adapt!r}.'
            )

        self._uses_fourier_bessel = isinstance(bases, str)
        # What reset_parameters puts back; learnable bases are the caller's.
        self._given_bases = None
        if isinstance(bases, Tensor) and not isinstance(bases, nn.Parameter) and not bases.is_meta:
            self._given_bases = bases.detach().cpu().clone()
        own = make_bases(bases, self.window.side, num_bases, device or torch.get_default_device(), dtype)
        if isinstance(own, nn.Parameter):
            self.bases = own
        else:
            self.register_buffer("bases", own)
        self.mixing = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, num_atoms, device=device, dtype=dtype)
        )
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        check_learnable(self.bases, self.mixing)
        self._made_generator = generator is None
        if generator is None:
            self.generator: nn.Module = self._default_generator(hidden, first_kernel, adaptivity, device, dtype)
        else:
            _check_generator(generator, hidden, first_kernel, adaptivity)
            self.generator = generator
        self._reset_mixing(gain=1.0)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.mixing)
        kernels = choose(self.backend, x, self.bases)
        if self.adapt != "pixel":
            return like_input(convolve_images(self, x, self._shared_coefficients(x, kernels)), x)
        operands = (self.bases, self.mixing, self.bias)
        whole = whole_layer(self.generator, x, *operands, self.window, self.groups, kernels)
        if whole is not None:
            return like_input(whole, x)
        # Φ and the operator both take this format: change it once, not twice.
        inner = x.contiguous(memory_format=torch.channels_last) if kernels.WANTS_CHANNELS_LAST else x
        alpha = self._coefficients(inner, kernels)
        check_operands(x, alpha, self.bases, self.mixing, self.bias, self.groups)
        if not torch.is_grad_enabled():
            inner = x  # the kernel reads either format: nothing has to keep the copy
        inner, window = self.extended(inner)
        tensors = (inner, alpha, *operands)
        y = call(kernels.adaptive_conv2d, tensors, window, self.groups, keeps_half=kernels.KEEPS_HALF)
        return like_input(y, x)

    def _shared_coefficients(self, x: Tensor, kernels: Backend) -> Tensor:
        """The coefficients that all pixels share: (B, M·L) for each image, or (1, M·L) for all images."""
        if isinstance(self.generator, ConstantAtoms):
            return self.generator.constants[None]
        return self._coefficients(x, kernels)[..., 0, 0].flatten(1)

    def coefficients(self, x: Tensor) -> Tensor:
        """α, what Φ predicts for every output pixel: (B, M, L, P, Q)."""
        self.check(x, self.mixing)
        return self._coefficients(x, choose(self.backend, x, self.bases))

    def _coefficients(self, x: Tensor, kernels: Backend) -> Tensor:
        """coefficients, of an input that was checked."""
        P, Q = self.window.output_size(x.shape[2], x.shape[3])
        M, L = self.num_atoms, self.num_elements
        alpha = predict(self.generator, x, kernels)
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

        Φ starts as `adaptivity` says: the layer is nearly an ordinary convolution, and learns where to adapt. Loops
        that set all batch normalisations to scale 1 and shift 0 change that to the paper's start; call this after them.

        gain: factor on the output's standard deviation. √6 gives Kaiming's normal initialisation for ReLU networks.
        A generator of your own is left as it is.

        Loops over isinstance(m, nn.Conv2d) leave `mixing` as it is, so the layer keeps this initialisation. They do
        reach the convolutions of Φ, without effect in train mode: a normalisation follows each of them. Loops by class
        name set `mixing` through its alias `weight`; a given standard deviation then makes an output variance near
        Conv2d's.
        """
        if self._made_generator and isinstance(self.generator, AtomGenerator | ConstantAtoms):
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
        """A fresh layer with the arguments, device, dtype and mode of this convolution, frozen where it is frozen.

        conv: needs to be exactly an nn.Conv2d.
        options: further arguments of the layer.
        """
        return make_like(cls, conv, **options)

    @classmethod
    def from_conv2d(
        cls,
        conv: nn.Conv2d,
        *,
        exact: bool = False,
        num_atoms: int | None = None,
        num_bases: int = 6,
        bases: str | Tensor | None = "fourier_bessel",
        generator: nn.Module | None = None,
        hidden: int = HIDDEN,
        first_kernel: int = FIRST_KERNEL,
        adapt: str = "pixel",
    ) -> Self:
        """A layer that starts as this trained convolution: its filters over the bases, the same at every pixel.

        conv: needs to be exactly an nn.Conv2d.

        The start is exact if the bases span the filters and num_atoms (6 unless given) reaches their rank. Otherwise
        it is the nearest approximation, and a ConversionWarning gives the relative error.
        exact: choose num_atoms so that the start is exact, and the pixel basis where `bases` do not span the filters.
            This costs more atoms: up to k².
        num_bases, bases, hidden, first_kernel, adapt: as in the layer.
        generator: needs to be an AtomGenerator; no other can carry the convolution's filters.

        >>> conv = nn.Conv2d(8, 16, 3, padding=1)
        >>> layer = AdaptiveConv2d.from_conv2d(conv, exact=True)
        >>> x = torch.randn(1, 8, 10, 10)
        >>> torch.allclose(layer(x), conv(x), atol=1e-5)
        True
        """
        phi: dict[str, Any] = {"generator": generator, "hidden": hidden, "first_kernel": first_kernel, "adapt": adapt}
        layer, error = start_from(cls, conv, exact, num_atoms, num_bases=num_bases, bases=bases, **phi)
        if error > EXACT:
            warnings.warn(
                f"the layer starts as the convolution to a relative error of {error:.2g} in its filters: "
                f"{layer.num_atoms} atoms over {layer.num_elements} basis elements in {conv.weight.dtype} do not give "
                "them exactly. exact=True does, but for rounding.",
                ConversionWarning,
                stacklevel=2,
            )
        return layer

    def imitate(self, weight: Tensor, bias: Tensor | None) -> float:
        """Become the convolution with these filters, as nearly as atoms and dtype allow; returns the relative error.

        weight: (O, C/groups, k, k)    bias: (O,)

        Φ is made constant, not removed: the scale of its last normalisation becomes zero, and the shift carries the
        coefficients. Training can change both.
        """
        return imitate(self, weight, bias)

    @property
    def weight(self) -> nn.Parameter:
        """`mixing` by the name that convolutions have for it, for code that initialises or folds any convolution.

        Scaling its first axis scales the output channels, as it does in nn.Conv2d. State dicts and named_parameters
        have `mixing` only.
        """
        return self.mixing

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        super().register_parameter("mixing" if name == "weight" else name, param)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        # Like a tensor of another shape, this is an error even with strict=False: the layer would stay random.
        errors = rest[-1]
        if f"{prefix}weight" in state_dict and f"{prefix}mixing" not in state_dict and FROM_CONV2D not in errors:
            errors.append(FROM_CONV2D)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @property
    def num_elements(self) -> int:
        """L, how many basis elements an atom blends."""
        return self.window.side**2 if self.bases is None else self.bases.shape[0]

    def extra_repr(self) -> str:
        bases = None if self.bases is None else tuple(self.bases.shape)
        adapt = "" if self.adapt == "pixel" else f", adapt={self.adapt!r}"
        return f"{super().extra_repr()}, num_atoms={self.num_atoms}, bases={bases}{adapt}"

    def _default_generator(
        self,
        hidden: int,
        first_kernel: int,
        adaptivity: float,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> AtomGenerator | ConstantAtoms:
        if self.adapt == "none":
            return ConstantAtoms(self.num_atoms * self.num_elements, self.window, device, dtype)
        return AtomGenerator(
            self.in_channels,
            self.num_atoms * self.num_elements,
            *self.window,
            self.padding_mode,
            hidden=hidden,
            first_kernel=first_kernel,
            adaptivity=adaptivity,
            per_image=self.adapt == "image",
            device=device,
            dtype=dtype,
        )

    def _reset_mixing(self, gain: float) -> None:
        if self.mixing.is_meta or isinstance(self.mixing, FakeTensor):
            return  # there are no values to set
        phi = self.generator if self._made_generator else None
        energy = energy_of_atoms(phi, self.num_atoms, self._elements())
        draw_mixing(self.mixing, self.bias, self.window.side, energy, gain)

    def _elements(self) -> Tensor:
        """The basis elements, (L, k²) in float64; computed again for a layer that was made on the meta device."""
        if self.bases is None:
            return torch.eye(self.num_elements, dtype=torch.float64)
        if self._uses_fourier_bessel:
            return multiscale_fourier_bessel(self.window.side, self.num_bases, dtype=torch.float64).flatten(1)
        return self.bases.detach().cpu().double().flatten(1)


def _check_generator(generator: nn.Module, hidden: int, first_kernel: int, adaptivity: float) -> None:
    if not isinstance(generator, nn.Module):
        raise TypeError(f"generator needs to be an nn.Module; got {type(generator).__name__}.")
    if (hidden, first_kernel, adaptivity) != (HIDDEN, FIRST_KERNEL, ADAPTIVITY):
        raise ValueError(
            f"hidden, first_kernel and adaptivity are for the built-in generator; got {hidden=}, {first_kernel=}, "
            f"{adaptivity=} beside a generator of your own. Leave one of them out."
        )
