"""Swap the Conv2d layers of any model for adaptive ones."""

import copy
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import Any

from torch import Tensor, nn

from acda.layers import KernelPrediction2d
from acda.layers.adaptive_conv import EXACT, AdaptiveConv2d, ConversionWarning
from acda.layers.conv_like import ConvLike
from acda.layers.generator import AtomGenerator

Names = str | Iterable[str] | Callable[[str], bool]


def convert(
    model: nn.Module,
    *,
    inplace: bool = False,
    names: Names = "*",
    keep_weights: bool = True,
    num_atoms: int = 6,
    num_bases: int = 6,
    bases: str | Tensor | None = "fourier_bessel",
) -> nn.Module:
    """The model with its Conv2d layers (exactly that type) swapped for AdaptiveConv2d.

    names: which ones, by their dotted names: a pattern ("layer4.*"), several, or a function of the name.
    keep_weights: start from the trained filters, as nearly as the atoms allow; False starts from scratch.
    A module used in several places stays shared. What cannot be swapped stays, and one ConversionWarning says which,
    why, and how near the swapped layers start.

    >>> model = nn.Sequential(nn.Conv2d(3, 16, 5), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1))
    >>> convert(model, names="2", bases=None, num_atoms=9)[2].__class__.__name__
    'AdaptiveConv2d'
    """
    chosen = _choose(model, names)
    if inplace and "" in chosen:
        raise ValueError("the model itself is a Conv2d, which cannot be swapped in place; use inplace=False.")
    options = {"num_atoms": num_atoms, "num_bases": num_bases, "bases": bases}
    model = model if inplace else copy.deepcopy(model)
    report = _Report()
    swapped: dict[int, nn.Module] = {}
    places: dict[int, list[str]] = {}
    for name, conv in _convolutions(model):
        places.setdefault(id(conv), []).append(name)
    owners = Counter(id(p) for part in model.modules() for p in part.parameters(recurse=False))
    for name, conv in list(_convolutions(model)):
        if name not in chosen:
            continue
        if id(conv) not in swapped:
            tied = any(owners[id(p)] > 1 for p in conv.parameters())
            others = [other for other in places[id(conv)] if other not in chosen]
            swapped[id(conv)] = _swap(name, conv, tied, others, keep_weights, options, report)
        if not name:
            model = swapped[id(conv)]
        else:
            model.set_submodule(name, swapped[id(conv)])
    report.tell(len(swapped))
    return model


def _convolutions(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Conv2d]]:
    """Every place that holds a Conv2d, shared ones each time; what predicts filters is part of its layer."""
    if type(module) is nn.Conv2d:
        yield name, module
    elif not isinstance(module, ConvLike | AtomGenerator | KernelPrediction2d):
        for key, child in module._modules.items():
            if child is not None:
                yield from _convolutions(child, f"{name}.{key}" if name else key)


def _choose(model: nn.Module, names: Names) -> list[str]:
    present = [name for name, _ in _convolutions(model)]
    if callable(names):
        chosen = [name for name in present if names(name)]
    else:
        patterns = [names] if isinstance(names, str) else list(names)
        chosen = [name for name in present if any(fnmatchcase(name, pattern) for pattern in patterns)]
    if not chosen:
        listed = ", ".join(name or "the model itself" for name in present) or "none"
        raise ValueError(f"names={names!r} chose no Conv2d layer; the model's are: {listed}.")
    return chosen


def _swap(
    name: str,
    conv: nn.Conv2d,
    tied: bool,
    others: list[str],
    keep_weights: bool,
    options: dict[str, Any],
    report: "_Report",
) -> nn.Module:
    if others:
        report.left[name] = f"it is also {', '.join(others)}, which was not chosen, and would no longer be the same"
        return conv
    if tied:
        report.left[name] = "its weight or bias is another layer's too, and would no longer be"
        return conv
    if conv._forward_hooks or conv._forward_pre_hooks or conv._backward_hooks or conv._backward_pre_hooks:
        report.left[name] = "it carries hooks, which would be lost"
        return conv
    if "forward" in vars(conv):
        report.left[name] = "its forward was replaced by another, which would be lost"
        return conv
    try:
        layer = AdaptiveConv2d.like(conv, **options)
        if keep_weights and not conv.weight.is_meta:
            report.errors[name] = layer.imitate(conv.weight, conv.bias)
    except (ValueError, TypeError, RuntimeError) as reason:  # the last where its weights are not all numbers
        report.left[name] = str(reason)
        return conv
    return layer


class _Report:
    """What became of each chosen layer."""

    def __init__(self) -> None:
        self.left: dict[str, str] = {}
        self.errors: dict[str, float] = {}

    def tell(self, chosen: int) -> None:
        """Warn of what is not exact; refuse when nothing at all was swapped."""
        lines = []
        inexact = {name: error for name, error in self.errors.items() if error > EXACT}
        if inexact:
            listed = ", ".join(f"{name} {error:.2g}" for name, error in inexact.items())
            lines.append(f"relative error of the filters that the new layers start with: {listed}.")
        if self.left:
            listed = "".join(f"\n  {name}: {reason}" for name, reason in self.left.items())
            lines.append(f"{len(self.left)} of {chosen} layers stay as they were:{listed}")
        if len(self.left) == chosen:
            raise ValueError("acda.convert: " + lines[0])
        if lines:
            warnings.warn("acda.convert: " + "\n".join(lines), ConversionWarning, stacklevel=3)
