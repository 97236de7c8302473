"""acda recipes: what there is to train."""

import dataclasses
import inspect
from typing import Annotated

from acda.cli.arguments import arg
from acda.training.recipes import RECIPES, find_recipe


def recipes(name: Annotated[str | None, arg(metavar="[RECIPE]", help_behavior_hint="(optional)")] = None, /) -> None:
    """List the recipes, one line each, or show one.

    Args:
        name: name of one recipe, to print it whole.
    """
    if name is None:
        width = max(map(len, RECIPES))
        for each, function in RECIPES.items():
            print(f"{each:<{width}} {inspect.getdoc(function).splitlines()[0]}")  # type: ignore[union-attr]
        return
    function = find_recipe(name)
    print(f"{inspect.getdoc(function)}\n")
    for setting, value in dataclasses.asdict(function()).items():
        print(f"{setting:<16} {value}")
