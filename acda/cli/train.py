"""acda train: run a recipe."""

import sys
from dataclasses import replace
from typing import Annotated, Any

from acda.support.extras import need
from acda.training.recipes import find_recipe

USAGE = """usage: acda train RECIPE [--data DIR] [settings]

RECIPE is required. `acda recipes` lists the recipes; `acda train RECIPE --help` tells the settings of one."""


def run(arguments: list[str]) -> int | None:
    """`acda train RECIPE [--settings]`: the settings of the recipe and of the run, from their dataclasses."""
    tyro = need("tyro", "cli")
    if not arguments or arguments[0] in ("-h", "--help"):
        print(USAGE, file=sys.stdout if arguments else sys.stderr)
        return 0 if arguments else 2
    name, *rest = arguments
    function = find_recipe(name)
    from acda.training.run import Run, fit

    default = function()
    flat = tyro.conf.OmitArgPrefixes

    def train(recipe: Any, run: Any) -> None:
        recipe = replace(recipe, options=default.options | recipe.options)
        scores = fit(recipe, name, run)
        print(", ".join(f"{key} {value}" for key, value in scores.items()))

    train.__annotations__ = {
        "recipe": Annotated[type(default), flat],
        "run": Annotated[Run, flat],
        "return": None,
    }
    train.__doc__ = function.__doc__
    # Of options that it is given tyro would make one setting each, and allow no others.
    train.__defaults__ = (replace(default, options={}), Run())
    tyro.cli(train, args=rest, prog=f"acda train {name}")
    return None
