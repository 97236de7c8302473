"""Recipes by name. A recipe is a function that returns a dataclass; its docstring tells command, duration and score."""

import difflib
from collections.abc import Callable

from acda.recipe import Recipe
from acda.recipes import classification

RECIPES: dict[str, Callable[[], Recipe]] = {function.__name__: function for function in classification.RECIPES}


def find_recipe(name: str) -> Callable[[], Recipe]:
    """The function of this name; an unknown one lists the near matches."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`acda recipes` lists them."
        raise ValueError(f"there is no recipe {name!r}. {hint}")
    return RECIPES[name]
