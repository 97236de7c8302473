"""Initial weights: the run takes their file, the recipe records a hash of their content."""

import hashlib
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from acda.photos.weights import write_weights
from acda.training.recipe import Counting, Restoration, read_recipe
from acda.training.run import Run, fit
from acda.training.run_folder import begin, resumed
from acda.training.tasks.restoration import RestorationTask

RECIPE = Counting(model="crowd_counter_s", epochs=1)
RESTORER = Restoration(
    model="photo_unet",
    options={"width": 4, "outer": 1, "inner": 1, "hidden": 4},
    epochs=1,
    crop=16,
    crops=2,
    batch_size=2,
    degradation="noise",
)
DIGEST = hashlib.sha256(b"weights").hexdigest()


@pytest.fixture
def weights(tmp_path):
    (tmp_path / "w.safetensors").write_bytes(b"weights")
    return tmp_path / "w.safetensors"


def test_classifiers_do_not_take_them(recipe, run_in, weights, tmp_path):
    with pytest.raises(ValueError, match="count people or restore photos; this one is Classification"):
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


@pytest.fixture
def photos(tmp_path):
    """A folder of clean photos: one for testing, seven for training."""
    folder = tmp_path / "photos"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for index in range(8):
        Image.fromarray(draw.integers(0, 256, (48, 48, 3), np.uint8)).save(folder / f"{index}.png")
    return folder


def test_a_restorer_starts_from_the_weights_of_the_same_network(photos, tmp_path):
    first = RestorationTask.of(RESTORER, photos)
    write_weights(tmp_path / "w.safetensors", first.state_dict(), first.described())
    second = RestorationTask.of(replace(RESTORER, seed=1), photos, tmp_path / "w.safetensors")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), second.parameters(), strict=True))
    with pytest.raises(ValueError, match=r"w\.safetensors are not the weights of photo_unet_conv"):
        RestorationTask.of(replace(RESTORER, model="photo_unet_conv", options={}), photos, tmp_path / "w.safetensors")


def test_a_restorers_recipe_records_them(photos, tmp_path):
    task = RestorationTask.of(RESTORER, photos)
    write_weights(tmp_path / "w.safetensors", task.state_dict(), task.described())
    fit(RESTORER, "run", Run(data=photos, out=tmp_path / "run", initial=tmp_path / "w.safetensors"))
    digest = hashlib.sha256((tmp_path / "w.safetensors").read_bytes()).hexdigest()
    assert read_recipe(tmp_path / "run" / "recipe.json") == replace(RESTORER, initial_sha256=digest)
