"""Recipes from files: any other content is refused with one line that names the file."""

import json
from pathlib import Path

import pytest

from acda.cli import main
from acda.photos.weights import write_weights
from acda.training.recipe import Classification, Counting, Restoration, read_recipe
from tests.photos.test_weights import FACTS, tensors

RECIPE = json.loads(Classification(model="lenet", epochs=3).to_json())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"a JSON object with settings is needed; got \[\]"),
        ("1", "got 1"),
        ("null", "got null"),
        ("", "it is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"task": ' * 100_000, "nested too deeply"),
        ("9" * 5000, "it is not JSON"),
        ("x" * 2_000_000, "more than any recipe"),
        ("{}", "its task is null"),
        ('{"task": []}', r"its task is \[\]"),
        ('{"task": "Classification"}', "lacks epochs and model"),
    ],
)
def test_what_is_no_recipe_is_refused_by_its_file(tmp_path, text, message):
    (tmp_path / "recipe.json").write_text(text)
    with pytest.raises(ValueError, match=rf"recipe\.json is not a recipe that can be used: .*{message}") as caught:
        read_recipe(tmp_path / "recipe.json")
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 500


def test_bytes_that_are_no_text(tmp_path):
    (tmp_path / "recipe.json").write_bytes(b"\xff\xfe{}")
    with pytest.raises(ValueError, match=r"recipe\.json .*it is not text"):
        read_recipe(tmp_path / "recipe.json")


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("epochs", "3", 'epochs needs to be a whole number; got "3"'),
        ("epochs", True, "epochs needs to be a whole number; got true"),
        ("epochs", 2.5, "epochs needs to be a whole number"),
        ("epochs", -1, "epochs needs to be at least 1"),
        ("epochs", 10**400, "epochs needs to be at most"),
        ("model", 3, "model needs to be text"),
        ("optimiser", "adam", 'optimiser needs to be "sgd" or "adamw"'),
        ("options", [1], "options needs to be names with numbers, true, false or text"),
        ("options", {"in_chans": [3]}, "options needs to be names with numbers, true, false or text"),
        ("options", {"in_chans": "3"}, "the option in_chans needs to be a whole number; got 3"),
        ("options", {"in_chans": 10**12}, "the option in_chans needs to be a whole number of at most 65536"),
        ("options", {"num_atoms": 9}, "there is no lenet option 'num_atoms'"),
        ("model", "lenett", "there is no model 'lenett'"),
        ("learning_rate", float("nan"), "learning_rate needs to be a finite number"),
        ("learning_rate", float("inf"), "learning_rate needs to be a finite number"),
        ("learning_rate", 10**400, "learning_rate needs to be a finite number"),
        ("learning_rate", -0.1, "learning_rate needs to be positive"),
        ("weight_decay", -1.0, "weight_decay needs to be at least 0"),
        ("norm_momentum", 2.0, "norm_momentum needs to be at most 1"),
        ("frozen_norm", 1, "frozen_norm needs to be true or false"),
        ("image_size", 10**12, "image_size needs to be at most 16384"),
        ("image_size", 0, "image_size needs to be at least 1"),
        ("margin", -1, "margin needs to be at least 0"),
        ("label_smoothing", 1.5, "label_smoothing needs to be at most 1"),
        ("seed", 2**40, "seed needs to be at most"),
        ("dataset", "MNIST", 'dataset needs to be "CIFAR10" or "CIFAR100" or null'),
    ],
)
def test_types_and_ranges_are_those_of_the_dataclass(tmp_path, setting, value, message):
    (tmp_path / "recipe.json").write_text(json.dumps({**RECIPE, setting: value}))
    with pytest.raises(ValueError, match=rf"recipe\.json .*{message}"):
        read_recipe(tmp_path / "recipe.json")


def test_a_whole_number_may_stand_for_a_fraction():
    assert Counting(model="crowd_counter_s", epochs=1, sigma=4).sigma == 4
    with pytest.raises(ValueError, match="sigma needs to be positive"):
        Counting(model="crowd_counter_s", epochs=1, sigma=0)


def test_a_recipe_in_the_metadata_of_weights_is_checked_alike(tmp_path, capsys):
    path = tmp_path / "w.safetensors"
    for text in ("[]", "[" * 100_000, json.dumps({**RECIPE, "image_size": 10**12})):
        write_weights(path, tensors(), {**FACTS, "recipe": text})
        assert main(["evaluate", str(path), "--data", str(tmp_path)]) == 1
        line = capsys.readouterr().err
        assert f"the metadata of {path} is not a recipe that can be used" in line
        assert line.count("\n") == 1


def test_a_broken_recipe_stops_resuming_and_is_left_alone(tmp_path, capsys):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "recipe.json").write_text("[]")
    arguments = ["train", "cifar10_lenet", "--data", str(tmp_path), "--out", str(tmp_path / "run"), "--resume"]
    assert main(arguments) == 1
    assert "recipe.json is not a recipe" in capsys.readouterr().err
    assert Path(tmp_path / "run" / "recipe.json").read_text() == "[]"


def test_settings_of_earlier_versions_that_belong_to_a_run_are_left_out(tmp_path):
    """Recipes once had the folder of the data, the path of initial weights, a strength of noise, and 1 for true."""
    recipe = Counting(model="crowd_counter_s", epochs=3)
    old = {**json.loads(recipe.to_json()), "data": "data", "initial": "runs/classifier/weights.safetensors"}
    del old["initial_sha256"]
    (tmp_path / "recipe.json").write_text(json.dumps(old))
    assert read_recipe(tmp_path / "recipe.json") == recipe
    switched = Restoration(model="restorer", epochs=3, options={"blind_to_smooth": True})
    (tmp_path / "recipe.json").write_text(switched.to_json().replace("true", "1").replace("{", '{"noise": 0.0,', 1))
    assert read_recipe(tmp_path / "recipe.json").to_json() == switched.to_json()


@pytest.mark.parametrize("digest", ["", "runs/classifier/weights.safetensors", "A" * 64])
def test_initial_weights_are_recorded_by_their_content(digest):
    with pytest.raises(ValueError, match="initial_sha256 needs to be 64 hexadecimal digits"):
        Counting(model="crowd_counter_s", epochs=1, initial_sha256=digest)
