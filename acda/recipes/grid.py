"""Recipes that differ only in dataset and network: one function for each pair, with its name and documentation."""

from collections.abc import Callable
from typing import TypeVar

from acda.recipe import Recipe

R = TypeVar("R", bound=Recipe)


def named(make: Callable[[], R], name: str, first_line: str, options: str = "") -> Callable[[], R]:
    """make under this name, documented with its first line and its command."""
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{first_line}\n\nacda train {name} --data DIR{options}"
    return make
