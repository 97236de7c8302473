"""Recipes by name. A recipe is a function that returns a dataclass; a variant is dataclasses.replace(recipe(), …).

Its docstring has the command and, if it was run, the result, which `python -m paper.render` writes.
"""

from collections.abc import Callable

from acda.support.names import unknown
from acda.training.recipe import Recipe
from acda.training.recipes import classification, counting, denoising, super_resolution

RECIPES: dict[str, Callable[[], Recipe]] = {
    function.__name__: function
    for room in (classification, counting, super_resolution, denoising)
    for function in room.RECIPES
}


def find_recipe(name: str) -> Callable[[], Recipe]:
    """The function of this name; an unknown name is refused with the near matches."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES, "`acda recipes` lists them.")
    return RECIPES[name]
