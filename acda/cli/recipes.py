"""acda recipes: what there is to train."""

import inspect

from acda.cli.train import describe_recipe
from acda.recipes import RECIPES, find_recipe


def recipes(show: str | None = None) -> None:
    """List the recipes, one line each.

    Args:
        show: name of one recipe, to print it whole.
    """
    if show is None:
        width = max(map(len, RECIPES))
        for name, function in RECIPES.items():
            print(f"{name:<{width}} {inspect.getdoc(function).splitlines()[0]}")  # type: ignore[union-attr]
        return
    function = find_recipe(show)
    print(f"{inspect.getdoc(function)}\n\n{describe_recipe(function())}")
