"""Initial weights: the run is given their file, the recipe records their content."""

import hashlib
from dataclasses import replace

import pytest

from acda.training.recipe import Counting, read_recipe
from acda.training.run import fit
from acda.training.run_folder import begin, resumed

RECIPE = Counting(model="crowd_counter_s", epochs=1)
DIGEST = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"weights")
    return tmp_path / "w.safetensors"


def test_only_recipes_that_count_take_them(recipe, run_in, weights, tmp_path):
    with pytest.raises(ValueError, match="--initial is for recipes that count people; this one is Classification"):
        fit(recipe, "run", run_in(tmp_path / "run", initial=weights))


def test_they_need_to_be_those_of_the_recipe(run_in, weights, tmp_path):
    other = replace(RECIPE, initial_sha256="0" * 64)
    with pytest.raises(ValueError, match=f"needs weights with the SHA-256 0000.*w.safetensors has {DIGEST}"):
        fit(other, "run", run_in(tmp_path / "run", initial=weights))


def test_a_recipe_that_starts_from_weights_needs_their_file(run_in, tmp_path):
    with pytest.raises(ValueError, match="Give their file with --initial"):
        fit(replace(RECIPE, initial_sha256=DIGEST), "run", run_in(tmp_path / "run"))
    assert not (tmp_path / "run" / "recipe.json").exists()


def test_a_run_is_resumed_without_them_but_not_with_others(run_in, weights, tmp_path):
    """Before its first checkpoint it needs them again; afterwards they are in the checkpoint."""
    run, started = tmp_path / "run", replace(RECIPE, initial_sha256=DIGEST)
    run.mkdir()
    begin(run, started)
    assert read_recipe(run / "recipe.json") == started
    assert resumed(run, RECIPE) == started
    assert resumed(run, started) == started
    with pytest.raises(ValueError, match=r"is from another recipe \(initial_sha256"):
        resumed(run, replace(RECIPE, initial_sha256="0" * 64))
    with pytest.raises(ValueError, match="Give their file with --initial"):
        fit(RECIPE, "run", run_in(run, resume=True))
