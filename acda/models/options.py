"""The options of a network: the arguments that recipes, files of weights and the command line may set, with types."""

import inspect
import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, get_args

from torch import nn

from acda.support.names import unknown

Option = bool | int | float | str
KINDS: dict[Any, str] = {bool: "true or false", int: "a whole number", float: "a finite number", str: "text"}
# Options that take far more memory or time than others as they grow.
MOST = {"kernel_size": 63, "first_kernel": 63, "depth": 1024, "num_bases": 4096}


@lru_cache
def option_types(make: Callable[..., nn.Module]) -> dict[str, type]:
    """Names and types of a network's options: its arguments that are numbers, switches or text.

    make: what creates the network. Where it passes further arguments to the layers that its `conv` makes, the keyword
    arguments of such a layer are options too.

    >>> from acda.models import MODELS
    >>> option_types(MODELS["dncnn"])
    {'channels': <class 'int'>, 'width': <class 'int'>, 'depth': <class 'int'>}
    >>> option_types(MODELS["restorer"])["num_atoms"], "num_atoms" in option_types(MODELS["restorer_conv"])
    (<class 'int'>, False)
    """
    parameters = dict(inspect.signature(make).parameters)
    if "conv" in parameters and any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
        layer = inspect.signature(parameters["conv"].default).parameters
        parameters |= {name: each for name, each in layer.items() if each.kind is each.KEYWORD_ONLY}
    kinds = {name: [kind for kind in KINDS if kind in _members(each.annotation)] for name, each in parameters.items()}
    return {name: kind[0] for name, kind in kinds.items() if kind}


def _members(annotation: Any) -> tuple[Any, ...]:
    """A type itself, or with None; other unions are not options."""
    members = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return members if len([member for member in members if member is not NoneType]) == 1 else ()


def typed_options(model: str, make: Callable[..., nn.Module], options: Mapping[str, Any]) -> dict[str, Option]:
    """The options with the types of the network's arguments; other names, types and sizes are refused.

    model: the network's name in errors. A whole number may stand for a fraction, and 0 and 1 for a switch.

    >>> from acda.models import MODELS
    >>> typed_options("restorer", MODELS["restorer"], {"blind_to_smooth": 1, "adaptivity": 1})
    {'blind_to_smooth': True, 'adaptivity': 1.0}
    """
    types = option_types(make)
    checked: dict[str, Option] = {}
    for name, value in options.items():
        if name not in types:
            raise unknown(f"{model} option", name, types, None if types else "It has none.")
        checked[name] = _typed(name, value, types[name])
    return checked


def _typed(name: str, value: Any, kind: type) -> Option:
    found, most = type(value), MOST.get(name, 65536)
    if kind is bool and value in (0, 1):
        return bool(value)
    if kind is float and found is int and abs(value) <= most:
        return float(value)
    if found is not kind or (kind is float and not math.isfinite(value)):
        raise ValueError(f"the option {name} needs to be {KINDS[kind]}; got {str(value)[:40]}.")
    if kind is int and abs(value) > most:
        raise ValueError(f"the option {name} needs to be a whole number of at most {most}; got {str(value)[:40]}.")
    option: Option = value
    return option
