"""Runs that were stopped, killed or moved end with the weights of an uninterrupted run."""

import json
import shutil
import signal
import subprocess
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from acda.cli import main
from acda.training.recipe import Classification
from acda.training.run import fit
from tests.training.runs import assert_same, command, weights


@pytest.mark.parametrize("model", ["lenet", pytest.param("lenet_acda", marks=pytest.mark.slow)])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(recipe, tmp_path, model, monkeypatch, run_in):
    recipe = replace(recipe, model=model)
    fit(recipe, "whole", run_in(tmp_path / "whole"))

    class Stop(Exception):
        pass

    from acda.training.tasks.classification import ClassificationTask

    original, steps = ClassificationTask.training_step, []

    def stops(self, batch, index):
        steps.append(index)
        if len(steps) == 10:  # in the middle of the second epoch
            raise Stop
        return original(self, batch, index)

    monkeypatch.setattr(ClassificationTask, "training_step", stops)
    with pytest.raises(Stop):
        fit(recipe, "parts", run_in(tmp_path / "parts"))
    monkeypatch.undo()
    assert not (tmp_path / "parts" / "weights.safetensors").exists()
    fit(recipe, "parts", run_in(tmp_path / "parts", resume=True))
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    scores = [json.loads((tmp_path / n / "scores.json").read_text())["epochs"] for n in ("parts", "whole")]
    for a, b in zip(*scores, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.mark.slow
def test_normalisations_settle_before_the_end(recipe, tmp_path, ctrl_c, run_in):
    """Their statistics stay fixed after two thirds of the steps, also if the run stops in between."""
    recipe = replace(recipe, model="lenet_acda", freeze_norm_at=0.65, norm_momentum=0.5)
    fit(recipe, "whole", run_in(tmp_path / "whole"))
    seen = ctrl_c(15, lambda task: task.model.features[0].generator.predict_norm.running_var.clone())
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "parts", run_in(tmp_path / "parts"))
    fit(recipe, "parts", run_in(tmp_path / "parts", resume=True))
    changed = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changed == [True] * 12 + [False] * 5  # steps 0 to 11 of 18
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory, run_in):
    """whole(recipe): the folder of an uninterrupted run, made once for each recipe."""
    made: dict[str, Path] = {}

    def run(recipe: Classification) -> Path:
        key = repr(recipe)
        if key not in made:
            made[key] = tmp_path_factory.mktemp("whole")
            fit(recipe, "whole", run_in(made[key]))
        return made[key]

    return run


@pytest.mark.parametrize(
    ("step", "test_every"),
    [(8, 1), (6, 3), *(pytest.param(*case, marks=pytest.mark.slow) for case in ((1, 1), (12, 1), (13, 3)))],
)
def test_ctrl_c_stops_after_saving_and_goes_on_from_that_step(
    recipe, tmp_path, ctrl_c, step, test_every, run_in, whole
):
    """In the first epoch, in the middle of the second, at its very end; and after epochs that are not tested."""
    recipe = replace(recipe, test_every=test_every)
    unstopped = whole(recipe)
    steps = ctrl_c(step)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "parts", run_in(tmp_path / "parts"))
    assert len(steps) == step
    fit(recipe, "parts", run_in(tmp_path / "parts", resume=True))
    assert len(steps) == 18
    assert_same(weights(tmp_path / "parts"), weights(unstopped))
    scores = [json.loads((run / "scores.json").read_text())["epochs"] for run in (tmp_path / "parts", unstopped)]
    for a, b in zip(*scores, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_sigterm_stops_as_ctrl_c_does(recipe, tmp_path, ctrl_c, capsys, pictures):
    """As `kill`, containers and schedulers send it: two lines, a checkpoint of that step, the old handler restored."""
    before = signal.getsignal(signal.SIGTERM)
    ctrl_c(8, number=signal.SIGTERM)
    assert main(command(recipe, pictures, tmp_path / "run")[3:]) == 130
    said = capsys.readouterr().err
    assert said == "stopping after this step; another SIGTERM stops at once\nacda train: stopped.\n"
    last = torch.load(tmp_path / "run" / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["global_step"] == 8
    assert signal.getsignal(signal.SIGTERM) == before


def test_run_and_data_may_be_moved_between_two_sittings(recipe, tmp_path, ctrl_c, run_in, pictures):
    recipe = replace(recipe, epochs=2)
    ctrl_c(8)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "run", run_in(tmp_path / "before"))
    best = tmp_path / "before" / "checkpoints" / "best.ckpt"
    # As if the first epoch had been better than any can be: the second must not be written over it.
    last = torch.load(best.with_name("last.ckpt"), weights_only=True)
    (state,) = (s for s in last["callbacks"].values() if s.get("monitor") == "error")
    state["best_model_score"] = state["kth_value"] = torch.tensor(-1.0)
    state["best_k_models"] = {path: torch.tensor(-1.0) for path in state["best_k_models"]}
    torch.save(last, best.with_name("last.ckpt"))
    kept = best.read_bytes()
    (tmp_path / "before").rename(tmp_path / "after")
    shutil.copytree(pictures, tmp_path / "elsewhere")
    fit(recipe, "run", run_in(tmp_path / "after", data=tmp_path / "elsewhere", resume=True))
    assert (tmp_path / "after" / "checkpoints" / "best.ckpt").read_bytes() == kept
    assert not (tmp_path / "before").exists()


@pytest.mark.slow
def test_sigkill_after_the_first_checkpoint(recipe, tmp_path, pictures):
    recipe = replace(recipe, epochs=40)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command(recipe, pictures, whole), check=True, capture_output=True)
    process = subprocess.Popen(command(recipe, pictures, parts), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = parts / "checkpoints" / "last.ckpt"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    torch.load(last, weights_only=True)
    assert not (parts / "weights.safetensors").exists()
    subprocess.run(command(recipe, pictures, parts, "--resume"), check=True, capture_output=True)
    assert_same(weights(parts), weights(whole))
