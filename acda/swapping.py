"""Walk over the convolutions of a model, choose some by name, put other layers in their places, and report."""

import inspect
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from statistics import median
from typing import Any

from torch import nn

from acda.layers import fx_leaf_modules
from acda.layers.imitation import EXACT, ConversionWarning, why_not_conv2d

Names = str | Iterable[str] | Callable[[str], bool] | Callable[[str, nn.Conv2d], bool]
# The new layer, and the relative error of the filters that it starts with, or None where it starts afresh.
Made = tuple[nn.Module, float | None]
# How many layers, or names of layers, a warning lists; its report has all of them.
LISTED = 5


@dataclass
class Report:
    """The result for each chosen layer, by name.

    errors: relative error of the filters that a new layer starts with    left: why a layer stays as it was
    """

    errors: dict[str, float] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)


def convolutions(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Conv2d]]:
    """Every place that holds a Conv2d, also of a shared one. Those inside acda's own layers are not listed."""
    if isinstance(module, nn.Conv2d):
        yield name, module
    elif not isinstance(module, fx_leaf_modules):
        for key, child in module._modules.items():
            if child is not None:
                yield from convolutions(child, f"{name}.{key}" if name else key)


def select(model: nn.Module, names: Names) -> dict[str, nn.Conv2d]:
    """The convolutions that these names mean; none at all is an error."""
    present = dict(convolutions(model))
    names = [names] if isinstance(names, str) else names if callable(names) else list(names)
    chosen = {name: conv for name, conv in present.items() if _is_named(name, conv, names)}
    if not chosen:
        listed = ", ".join(name or "the model itself" for name in present) or "none"
        raise ValueError(f"names={names!r} chose no Conv2d layer; the model's are: {listed}.")
    return chosen


def swap(
    model: nn.Module, chosen: Collection[str], make: Callable[[nn.Conv2d], Made | str]
) -> tuple[nn.Module, Report, int]:
    """The same model with other layers in these places, a report of each, and how many layers they are.

    make: what to put in a convolution's place, or the reason why it stays; an error is a reason too
    A convolution that is used in several places is swapped once, and stays shared.
    """
    report = Report()
    swapped: dict[int, nn.Module] = {}
    places: dict[int, list[str]] = {}
    for name, conv in convolutions(model):
        places.setdefault(id(conv), []).append(name)
    owners = Counter(id(p) for part in model.modules() for p in part.parameters(recurse=False))
    for name, conv in list(convolutions(model)):
        if name not in chosen:
            continue
        if id(conv) not in swapped:
            tied = any(owners[id(p)] > 1 for p in conv.parameters())
            others = [other for other in places[id(conv)] if other not in chosen]
            reason = _why_it_stays(conv, tied, others)
            swapped[id(conv)] = _swapped(name, conv, reason, make, report)
        model = put(model, name, swapped[id(conv)])
    return model, report, len(swapped)


def put(model: nn.Module, name: str, layer: nn.Module) -> nn.Module:
    """The model with this layer in the place of that name; the layer itself where the name is that of the model."""
    if not name:
        return layer
    model.set_submodule(name, layer)
    return model


def tell(report: Report, chosen: int, caller: str, instead: str) -> None:
    """Warn of what is not exact; refuse when nothing at all was swapped.

    caller: the function that the user called, which is to call this one    instead: what would be exact
    """
    lines = _lines_of_errors({name: error for name, error in report.errors.items() if error > EXACT}, instead)
    if report.left:
        lines += [f"{len(report.left)} of {chosen} layers stay as they were:", *_lines_of_reasons(report.left)]
    if len(report.left) == chosen:
        raise ValueError(f"{caller}: " + "\n".join(lines))
    if lines:
        warnings.warn(ConversionWarning(f"{caller}: " + "\n".join(lines), report), stacklevel=3)


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


def _swapped(
    name: str, conv: nn.Conv2d, reason: str | None, make: Callable[[nn.Conv2d], Made | str], report: Report
) -> nn.Module:
    try:
        made = make(conv) if reason is None else reason
    except (ValueError, TypeError, RuntimeError) as error:  # the last where its weights are not all numbers
        made = str(error)
    if isinstance(made, str):
        report.left[name] = made
        return conv
    layer, distance = made
    if distance is not None:
        report.errors[name] = distance
    return layer


def _lines_of_errors(inexact: dict[str, float], instead: str) -> list[str]:
    """The worst few, and how many more there are."""
    if not inexact:
        return []
    worst = sorted(inexact, key=lambda name: -inexact[name])[:LISTED]
    head = (
        f"{len(inexact)} layers start near their convolutions and not exactly as them ({instead} would). Relative "
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
