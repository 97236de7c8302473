"""Check settings that come from text: types as in the dataclass, numbers within their bounds."""

import json
import math
import types
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

# More than any recipe has, so that no file fills the memory.
MOST_TEXT = 2**20


def read_object(text: str) -> dict[str, Any]:
    """The JSON object in a text."""
    if len(text) > MOST_TEXT:
        raise ValueError(f"it has {len(text):,} characters, more than any recipe")
    try:
        values = json.loads(text)
    except RecursionError as error:
        raise ValueError("its JSON is nested too deeply") from error
    except ValueError as error:
        raise ValueError(f"it is not JSON ({error})") from error
    if not isinstance(values, dict):
        raise ValueError(f"a JSON object with settings is needed; got {shown(values)}")
    return values


def check_types(settings: Any) -> None:
    """Refuse a dataclass whose values are not of the types of its annotations.

    >>> from acda.training.recipe import Classification
    >>> Classification(model="lenet", epochs="3")
    Traceback (most recent call last):
    ...
    TypeError: epochs needs to be a whole number; got "3".
    """
    for name, hint in get_type_hints(type(settings)).items():
        value = getattr(settings, name)
        if not _is_of(value, hint):
            raise TypeError(f"{name} needs to be {_described(hint)}; got {shown(value)}.")


def check_range(settings: Any, least: float, most: float, *names: str) -> None:
    """Refuse numbers outside of these bounds; None stands for no number, and is allowed."""
    for name in names:
        value = getattr(settings, name)
        if value is not None and value < least:
            raise ValueError(f"{name} needs to be at least {least}; got {shown(value)}.")
        if value is not None and value > most:
            raise ValueError(f"{name} needs to be at most {most}; got {shown(value)}.")


def shown(value: Any) -> str:
    """A value in an error, of bounded length."""
    try:
        text = json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        text = type(value).__name__
    return text if len(text) <= 60 else text[:60] + "…"


def _is_of(value: Any, hint: Any) -> bool:
    if get_origin(hint) in (Union, types.UnionType):
        return any(_is_of(value, each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return any(value == each and type(value) is type(each) for each in get_args(hint))
    if get_origin(hint) is dict:
        keys, values = get_args(hint)
        return isinstance(value, dict) and all(_is_of(k, keys) and _is_of(v, values) for k, v in value.items())
    if hint is float:
        # A whole number may stand for one, unless it is too large for a float, like 10**400.
        return isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


NAMES = {int: "a whole number", float: "a finite number", str: "text", bool: "true or false", Path: "a path"}


def _described(hint: Any) -> str:
    if get_origin(hint) in (Union, types.UnionType):
        return " or ".join(_described(each) for each in get_args(hint))
    if get_origin(hint) is Literal:
        return " or ".join(json.dumps(each) for each in get_args(hint))
    if get_origin(hint) is dict:
        return "names with numbers, true, false or text"
    return "null" if hint is type(None) else NAMES[hint]
