"""Swap the Conv2d layers of any model for adaptive ones."""

import copy
import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

from torch import Tensor, nn

from acda.layers import fx_leaf_modules
from acda.layers.adaptive_conv import FIRST_KERNEL, HIDDEN, AdaptiveConv2d
from acda.layers.imitation import EXACT, ConversionWarning, start_from, why_not_conv2d

Names = str | Iterable[str] | Callable[[str], bool] | Callable[[str, nn.Conv2d], bool]
# How many layers, or names of layers, a warning lists; its report has all of them.
LISTED = 5


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
    num_atoms, num_bases, bases, hidden, first_kernel: the layers' own; num_atoms is 6 unless given.

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
    chosen = _choose(model, names, pointwise)
    if inplace and "" in chosen:
        raise ValueError("the model itself is a Conv2d, which cannot be swapped in place; use inplace=False.")
    phi = {"generator": generator, "hidden": hidden, "first_kernel": first_kernel}
    options = {"num_atoms": num_atoms, "num_bases": num_bases, "bases": bases, **phi}
    model = model if inplace else copy.deepcopy(model)
    report = Report()
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
            reason = _why_it_stays(conv, tied, others)
            swapped[id(conv)] = _swap(name, conv, reason, keep_weights, exact, options, report)
        if not name:
            model = swapped[id(conv)]
        else:
            model.set_submodule(name, swapped[id(conv)])
    _tell(report, len(swapped))
    return model


@dataclass
class Report:
    """The result for each chosen layer, by name.

    errors: relative error of the filters that a new layer starts with    left: why a layer stays as it was
    """

    errors: dict[str, float] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def _convolutions(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Conv2d]]:
    """Every place that holds a Conv2d, shared ones each time; what predicts filters is part of its layer."""
    if isinstance(module, nn.Conv2d):
        yield name, module
    elif not isinstance(module, fx_leaf_modules):
        for key, child in module._modules.items():
            if child is not None:
                yield from _convolutions(child, f"{name}.{key}" if name else key)


def _choose(model: nn.Module, names: Names, pointwise: bool) -> list[str]:
    present = dict(_convolutions(model))
    names = [names] if isinstance(names, str) else names if callable(names) else list(names)
    chosen = [name for name, conv in present.items() if _is_named(name, conv, names)]
    if not chosen:
        listed = ", ".join(name or "the model itself" for name in present) or "none"
        raise ValueError(f"names={names!r} chose no Conv2d layer; the model's are: {listed}.")
    wide = [name for name in chosen if pointwise or present[name].kernel_size != (1, 1)]
    if not wide:
        raise ValueError(f"all {len(chosen)} Conv2d layers chosen are 1×1. Pass pointwise=True to swap those too.")
    return wide


def _is_named(name: str, conv: nn.Conv2d, names: Names) -> bool:
    if not callable(names):
        return any(fnmatchcase(name, pattern) for pattern in names)
    return bool(names(name, conv) if _needs_two(names) else names(name))  # type: ignore[call-arg]


def _needs_two(function: Callable[..., Any]) -> bool:
    """Whether a function requires two positional arguments; optional ones do not count."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some of C have no signature
        return False
    return sum(p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters) == 2


def _why_it_stays(conv: nn.Conv2d, tied: bool, others: list[str]) -> str | None:
    if others:
        return f"it is also {', '.join(others)}, which was not chosen, and would no longer be the same"
    return why_not_conv2d(conv) or (
        "its weight or bias is another layer's too, and would no longer be" if tied else None
    )


def _swap(
    name: str,
    conv: nn.Conv2d,
    reason: str | None,
    keep_weights: bool,
    exact: bool,
    options: dict[str, Any],
    report: Report,
) -> nn.Module:
    if reason is not None:
        report.left[name] = reason
        return conv
    try:
        options = _options_for(conv, options)
        if not keep_weights:
            return AdaptiveConv2d.like(
                conv, **{key: o for key, o in options.items() if (key, o) != ("num_atoms", None)}
            )
        layer, report.errors[name] = start_from(AdaptiveConv2d, conv, exact, **options)
    except (ValueError, TypeError, RuntimeError) as error:  # the last where its weights are not all numbers
        report.left[name] = str(error)
        return conv
    return layer


def _options_for(conv: nn.Conv2d, options: dict[str, Any]) -> dict[str, Any]:
    """The layer's options, with its own Φ, and without Fourier-Bessel elements for a 1×1, which has none."""
    own = {name: option for name, option in options.items() if name != "num_atoms" or option is not None}
    if conv.kernel_size == (1, 1) and isinstance(options["bases"], str):
        own["bases"] = None
    if options["generator"] is not None:
        own["generator"] = options["generator"](conv)
    return own


def _tell(report: Report, chosen: int) -> None:
    """Warn of what is not exact; refuse when nothing at all was swapped."""
    lines = _lines_of_errors({name: error for name, error in report.errors.items() if error > EXACT})
    if report.left:
        lines += [f"{len(report.left)} of {chosen} layers stay as they were:", *_lines_of_reasons(report.left)]
    if len(report.left) == chosen:
        raise ValueError("acda.convert: " + "\n".join(lines))
    if lines:
        warnings.warn(ConversionWarning("acda.convert: " + "\n".join(lines), report), stacklevel=3)


def _lines_of_errors(inexact: dict[str, float]) -> list[str]:
    """The worst few, and how many more there are."""
    if not inexact:
        return []
    worst = sorted(inexact, key=lambda name: -inexact[name])[:LISTED]
    head = (
        f"{len(inexact)} layers start near their convolutions and not exactly as them (exact=True would). Relative "
        f"error of the filters, median {median(inexact.values()):.2g}, the largest:"
    )
    more = [f"  … and {len(inexact) - LISTED} more, in this warning's report.errors"] if len(inexact) > LISTED else []
    return [head, *(f"  {inexact[name]:.2g}  {name or 'the model itself'}" for name in worst), *more]


def _lines_of_reasons(left: dict[str, str]) -> list[str]:
    """Each reason once, with the layers that it holds for."""
    layers: dict[str, list[str]] = {}
    for name, reason in left.items():
        layers.setdefault(reason, []).append(name or "the model itself")
    return [f"  {_some(names)}: {reason}" for reason, names in layers.items()]


def _some(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(names[:LISTED]) + more
