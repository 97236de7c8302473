"""acda recipes: what there is to train."""

import dataclasses
import inspect

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
    print(f"{inspect.getdoc(function)}\n")
    for name, value in dataclasses.asdict(function()).items():
        print(f"{name:<16} {value}")
