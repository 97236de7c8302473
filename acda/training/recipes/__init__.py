"""Recipes by name. A recipe is a function that returns a dataclass.

Its docstring tells the command, and where it was run here, the score and mostly the duration.
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
    """The function of this name; an unknown one lists the near matches."""
    if name not in RECIPES:
        raise unknown("recipe", name, RECIPES, "`acda recipes` lists them.")
    return RECIPES[name]
