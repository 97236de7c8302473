"""acda train: run a recipe."""

import inspect
import sys
from dataclasses import field, make_dataclass, replace

from acda.support.extras import need
from acda.training.recipes import find_recipe

USAGE = """usage: acda train RECIPE [--data DIR] [settings]

RECIPE is required. `acda recipes` lists the recipes; `acda train RECIPE --help` lists the settings of one."""


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
    # Given options as defaults, tyro would make one setting of each and allow no others.
    recipe_field = field(default=replace(default, options={}))
    settings = make_dataclass("Settings", [("recipe", type(default), recipe_field), ("run", Run, field(default=Run()))])
    flat = (tyro.conf.OmitArgPrefixes,)
    chosen = tyro.cli(settings, args=rest, prog=f"acda train {name}", description=inspect.getdoc(function), config=flat)
    scores = fit(replace(chosen.recipe, options=default.options | chosen.recipe.options), name, chosen.run)
    print(", ".join(f"{key} {value}" for key, value in scores.items()))
    return None
