"""Swap the Conv2d layers of any model for adaptive ones."""

import copy
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from acda.layers.adaptive_conv import FIRST_KERNEL, HIDDEN, AdaptiveConv2d
from acda.layers.imitation import start_from
from acda.swapping import Made, Names, select, swap, tell


def convert(
    model: nn.Module,
    *,
    inplace: bool = False,
    names: Names = "*",
    pointwise: bool = False,
    keep_weights: bool = True,
    exact: bool = False,
    num_atoms: int | None = None,
    num_bases: int = 6,
    bases: str | Tensor | None = "fourier_bessel",
    generator: Callable[[nn.Conv2d], nn.Module] | None = None,
    hidden: int = HIDDEN,
    first_kernel: int = FIRST_KERNEL,
    adapt: str = "pixel",
) -> nn.Module:
    """The model with its Conv2d layers (exactly that type) swapped for AdaptiveConv2d.

    inplace: change the model itself; unless given, a copy is changed and returned.
    names: which ones, by their dotted names: a pattern ("layer4.*"), several, or a function of the name, or of the
        name and the module where it requires two arguments.
    pointwise: swap 1×1 convolutions too. They have no window to adapt, and num_atoms multiplies their parameters. Their
        bases are None where the others' are Fourier-Bessel.
    keep_weights: start from the trained filters, as nearly as the atoms allow; False starts from scratch.
    exact: choose num_atoms and bases for each layer so that it starts as its convolution, as in
        AdaptiveConv2d.from_conv2d.
    generator: a function that makes the Φ of the layer that replaces a convolution. Only an AtomGenerator can keep the
        weights.
    num_atoms, num_bases, bases, hidden, first_kernel, adapt: the layers' own; num_atoms is 6 unless given.

    A module used in several places stays shared. What cannot be swapped stays, and one ConversionWarning says which,
    why, and how near the swapped layers start. Its attribute `report` has the figure of every layer.

    >>> model = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
    >>> [type(part).__name__ for part in convert(model, names=lambda name, conv: conv.padding != (0, 0), exact=True)]
    ['Conv2d', 'ReLU', 'AdaptiveConv2d']
    """
    if isinstance(generator, nn.Module):
        raise TypeError(
            f"generator needs a function (conv) → module, since one module cannot serve several layers; got a "
            f"{type(generator).__name__}."
        )
    if exact and not keep_weights:
        raise ValueError("exact=True keeps the weights, but got keep_weights=False too. Leave one of them out.")
    chosen = _wide(select(model, names), pointwise)
    if inplace and "" in chosen:
        raise ValueError("the model itself is a Conv2d, which cannot be swapped in place; use inplace=False.")
    phi = {"generator": generator, "hidden": hidden, "first_kernel": first_kernel, "adapt": adapt}
    options = {"num_atoms": num_atoms, "num_bases": num_bases, "bases": bases, **phi}

    def make(conv: nn.Conv2d) -> Made:
        own = _options_for(conv, options)
        return (
            start_from(AdaptiveConv2d, conv, exact, **own) if keep_weights else (AdaptiveConv2d.like(conv, **own), None)
        )

    model, report, count = swap(model if inplace else copy.deepcopy(model), chosen, make)
    tell(report, count, "acda.convert", "exact=True")
    return model


def _wide(chosen: dict[str, nn.Conv2d], pointwise: bool) -> list[str]:
    """The names without those of 1×1 convolutions, unless these are asked for."""
    wide = [name for name, conv in chosen.items() if pointwise or conv.kernel_size != (1, 1)]
    if not wide:
        raise ValueError(f"all {len(chosen)} Conv2d layers chosen are 1×1. Pass pointwise=True to swap those too.")
    return wide


def _options_for(conv: nn.Conv2d, options: dict[str, Any]) -> dict[str, Any]:
    """The layer's options, with its own Φ, and without Fourier-Bessel elements for a 1×1, which has none."""
    own = {name: option for name, option in options.items() if name != "num_atoms" or option is not None}
    if conv.kernel_size == (1, 1) and isinstance(options["bases"], str):
        own["bases"] = None
    if options["generator"] is not None:
        own["generator"] = options["generator"](conv)
    return own
