"""Recipes are plain functions: their names, their commands and their networks."""

import inspect
from dataclasses import replace

import pytest
import torch

from acda.models import create_model
from acda.training.recipe import Recipe
from acda.training.recipes import RECIPES, find_recipe


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_has_a_network_that_takes_its_options(name):
    recipe = RECIPES[name]()
    assert isinstance(recipe, Recipe)
    with torch.device("meta"):
        create_model(recipe.model, **recipe.options)


@pytest.mark.parametrize("name", RECIPES)
def test_the_docstring_has_the_command(name):
    """The docstring in the source, after a def of this name."""
    source = inspect.getsource(RECIPES[name])
    assert source.startswith(f"def {name}() -> ")
    assert f"\n    acda train {name} --data DIR" in source


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_new_value_each_time(name):
    """Options are a dictionary: that of one recipe must not be that of the next."""
    first = RECIPES[name]()
    assert first == RECIPES[name]()
    assert first != replace(first, seed=1)
    first.options["num_atoms"] = 99
    assert "num_atoms" not in RECIPES[name]().options


def test_an_unknown_recipe_is_answered_with_near_ones():
    assert find_recipe("cifar10_lenet")().model == "lenet"
    with pytest.raises(ValueError, match="Did you mean city100_restorer"):
        find_recipe("city100_restorers")
