"""Which convolutions an adaptive layer can take the place of, and what it needs to start as one of them exactly."""

from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from acda.bases import multiscale_fourier_bessel
from acda.decompose import decompose_filters
from acda.layers.conv_like import has_hooks
from acda.layers.generator import AtomGenerator, ConstantAtoms
from acda.layers.shared_filters import filters_from

if TYPE_CHECKING:
    from acda.layers.adaptive_conv import AdaptiveConv2d

Layer = TypeVar("Layer", bound="AdaptiveConv2d")
# A relative error in the filters up to here is rounding.
EXACT = 1e-5


class ConversionWarning(UserWarning):
    """A convolution was converted only approximately, or not at all.

    message: the text of the warning
    report: from acda.convert, the result for every layer
    """

    def __init__(self, message: str, report: Any = None) -> None:
        super().__init__(message)
        self.report = report


def why_not_conv2d(module: nn.Module) -> str | None:
    """The reason why a module may compute something else than nn.Conv2d with its weight and bias, or None.

    >>> why_not_conv2d(nn.Conv2d(3, 8, 3))
    >>> why_not_conv2d(nn.Linear(3, 8))
    'it is a Linear, not a Conv2d'
    """
    if parametrize.is_parametrized(module):
        names = " and ".join(module.parametrizations)  # type: ignore[arg-type]
        return (
            f"its {names} is computed by a parametrization, which would be lost; call "
            "torch.nn.utils.parametrize.remove_parametrizations first"
        )
    if type(module) is not nn.Conv2d:
        kind = type(module).__name__
        if isinstance(module, nn.Conv2d):
            return f"it is a {kind}, a subclass that may compute something else than nn.Conv2d"
        return f"it is a {kind}, not a Conv2d"
    if extra := {*module._parameters, *module._buffers, *module._modules} - {"weight", "bias"}:
        return (
            f"it also has {', '.join(sorted(extra))}, as pruning and weight normalization add, which would be lost; "
            "make those permanent first, for example with torch.nn.utils.prune.remove"
        )
    if has_hooks(module):
        return "it carries hooks, which would be lost"
    if "forward" in vars(module):
        return "its forward was replaced by another, which would be lost"
    return None


def exact_options(conv: nn.Conv2d, num_bases: int, bases: str | Tensor | None) -> dict[str, Any]:
    """The fewest atoms with which a layer starts as this convolution.

    They are over the bases given where those span its filters, and elsewhere over the pixels, which span all filters.
    """
    if isinstance(bases, str) and bases != "fourier_bessel":
        return {}  # the layer refuses it, and says why
    side = conv.kernel_size[0]
    given = multiscale_fourier_bessel(side, num_bases) if isinstance(bases, str) and side > 1 else bases
    if isinstance(given, Tensor) and given.shape[1:] == conv.weight.shape[2:]:
        found = decompose_filters(conv.weight, given, None)
        if found.relative_error <= EXACT:
            return {"num_atoms": len(found.coefficients), "num_bases": num_bases, "bases": bases}
    atoms = len(decompose_filters(conv.weight, None, None).coefficients)
    return {"num_atoms": atoms, "bases": None}


def make_like(kind: type[Layer], conv: nn.Conv2d, **options: Any) -> Layer:
    """AdaptiveConv2d.like."""
    if reason := why_not_conv2d(conv):
        raise TypeError(f"an adaptive layer cannot take the place of this module: {reason}.")
    layer = kind(
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


def _as_pair(pair: tuple[int, ...]) -> tuple[int, int]:
    """Conv2d's attributes are pairs, but their type does not say so."""
    return pair[0], pair[1]


def start_from(
    kind: type[Layer], conv: nn.Conv2d, exact: bool, num_atoms: int | None = None, **options: Any
) -> tuple[Layer, float]:
    """The layer of this kind that starts nearest to the convolution, and the relative error of its filters.

    options: the layer's own
    """
    if exact and num_atoms is not None:
        raise ValueError(f"exact=True chooses num_atoms itself; got {num_atoms=} beside it. Leave one of them out.")
    if num_atoms is not None:
        options["num_atoms"] = num_atoms
    if exact and why_not_conv2d(conv) is None and not conv.weight.is_meta:
        options |= exact_options(conv, options["num_bases"], options["bases"])
    layer = kind.like(conv, **options)
    return layer, 0.0 if conv.weight.is_meta else layer.imitate(conv.weight, conv.bias)


@torch.no_grad()
def imitate(layer: "AdaptiveConv2d", weight: Tensor, bias: Tensor | None) -> float:
    """AdaptiveConv2d.imitate."""
    phi = layer.generator
    if not isinstance(phi, AtomGenerator | ConstantAtoms):
        raise TypeError(
            f"imitating a convolution needs the layer's own AtomGenerator, whose last normalisation carries the "
            f"coefficients; got {type(phi).__name__}."
        )
    wanted = layer.num_atoms * layer.num_elements
    if (made := len(phi.constants)) != wanted:
        raise ValueError(f"the generator needs {wanted} channels, M·L; got {made}.")
    mixing, coefficients, _ = decompose_filters(weight, layer.bases, layer.num_atoms)
    found = len(coefficients)
    # Into Tanh's range, at half its height, where it still has a slope; the mixing makes up for it.
    scale = 0.5 / coefficients.abs().amax(dim=1).clamp_min(1e-12)
    halved = torch.zeros(layer.num_atoms, layer.num_elements, dtype=torch.float64)
    halved[:found] = coefficients * scale[:, None]
    # Atoms beyond the filters' rank have zero coefficients; their mixing stays random, so that they can learn.
    layer.mixing[..., :found] = (mixing / scale).to(layer.mixing)
    if layer.bias is not None:
        layer.bias.copy_(torch.zeros_like(layer.bias) if bias is None else bias)
    phi.become(halved.flatten())
    own, given = filters_from(layer, phi.constants[None])[0], weight.detach().cpu().double()
    return float(torch.linalg.norm(own.cpu() - given) / torch.linalg.norm(given).clamp_min(1e-300))
