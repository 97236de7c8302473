"""The docstrings of recipes have the results of the files, and only those."""

import re

import pytest

from acda.photos.weight_folders import PACKAGED
from acda.training.recipes import RECIPES
from paper.recipe_lines import result_line, with_results
from paper.record import Record

RECORD = Record.read()
# The cards of the weights in the package name the recipe that trained them, and have its scores.
CARDS = "".join(path.read_text() for path in PACKAGED.glob("*.md"))


def function(lines):
    """The source of a recipe whose docstring ends with these lines."""
    command = "    acda train cifar10_lenet --data DIR\n"
    return f'def cifar10_lenet():\n    """LeNet.\n\n{command}{lines}    """\n    return 1\n'


def test_the_line_has_score_paper_duration_and_file():
    line = result_line("cifar10_lenet", RECORD)
    pattern = r"    Result: top-1 error \d+\.\d+ % \(paper: 24\.74\); \d\.\d+ hours \(paper/results/lenet.json\)\.\n"
    assert re.fullmatch(pattern, line)


@pytest.mark.parametrize("before", ["", "    Result: top-1 error 1 %.\n", "    Result: of\n    two lines.\n"])
def test_a_missing_or_stale_line_is_written(before):
    assert with_results(function(before), RECORD) == function(result_line("cifar10_lenet", RECORD))


def test_a_result_that_no_file_has_is_removed():
    source = function("    Result: top-1 error 1 %.\n").replace("cifar10_lenet", "imagenet_ad_resnet_s")
    assert "Result" not in with_results(source, RECORD)


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_has_a_result_or_says_that_it_was_not_run(recipe):
    scored = bool(result_line(recipe, RECORD)) or f"`acda train {recipe}`" in CARDS
    assert scored != ("Not run here." in (RECIPES[recipe].__doc__ or ""))


@pytest.mark.parametrize("recipe", [name for name in RECIPES if "Not run here." in (RECIPES[name].__doc__ or "")])
def test_a_recipe_that_was_not_run_is_for_a_table_of_the_paper_or_for_free_weights(recipe):
    datasets = {dataset for table in RECORD.tables for dataset, _ in table["columns"] if dataset}
    known = [f"{re.sub('_(2019|final)', '', dataset)}_" for dataset in datasets]
    assert recipe.startswith(("free_photos_", *known))
