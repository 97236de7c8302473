"""A training with non-finite values ends with an error, and earlier results stay readable."""

import math
from dataclasses import replace

import pytest
import torch

from acda import load
from acda.cli import main
from acda.training.run import evaluate, fit
from acda.training.tasks.classification import ClassificationTask
from acda.training.tasks.task import Task
from tests.training.runs import command


def test_a_learning_rate_that_is_far_too_high_stops_the_run(recipe, tmp_path, capsys, pictures):
    arguments = command(replace(recipe, learning_rate=1e12, epochs=6), pictures, tmp_path / "run")[3:]
    assert main(arguments) == 1
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("acda train: training diverged: the ")
    assert "of 6, learning rate" in line
    assert "No checkpoint was saved before" in line
    assert "Try a lower --learning-rate" in line
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def poisoned(monkeypatch, epoch, poison):
    """From this epoch on (the first is 0), poison is called after each step's loss."""
    original = Task.training_step

    def step(self, batch, index):
        loss = original(self, batch, index)
        return poison(self, loss, index) if self.current_epoch >= epoch else loss

    monkeypatch.setattr(Task, "training_step", step)


def nan_weights_after_the_last_step(task, loss, index):
    if index == 5:
        next(task.model.parameters()).data.fill_(math.nan)  # behind autograd's back: the loss has been computed
    return loss


@pytest.mark.parametrize(
    ("poison", "message"),
    [
        (lambda task, loss, index: loss * math.nan, "the loss is nan at step 13, epoch 3 of 3"),
        pytest.param(
            lambda task, loss, index: loss + math.inf,
            "the loss is inf at step 13, epoch 3 of 3",
            marks=pytest.mark.slow,
        ),
        (nan_weights_after_the_last_step, r"the weights model\.features\.0\.weight are not finite at step 18"),
    ],
)
@pytest.mark.parametrize("test_every", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_best_checkpoint_from_before_can_be_used(
    recipe, tmp_path, monkeypatch, poison, message, test_every, run_in, pictures
):
    recipe = replace(recipe, epochs=3 if test_every == 1 else 4, test_every=test_every)
    message = message.replace("of 3", f"of {recipe.epochs}")
    poisoned(monkeypatch, 2, poison)
    run = tmp_path / "run"
    with pytest.raises(ValueError, match=message) as caught:
        fit(recipe, "run", run_in(run))
    best = run / "checkpoints" / "best.ckpt"
    assert f"The best weights from before are in {best}" in str(caught.value)
    assert not (run / "weights.safetensors").exists()
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert all(bool(t.isfinite().all()) for t in last["state_dict"].values())
    for name in (run, best):
        assert load(name).facts["model"] == "lenet"
        assert evaluate(name, pictures)["images"] == 21


def test_scores_that_are_not_numbers_stop_it_too(recipe, tmp_path, monkeypatch, run_in, pictures):
    original = ClassificationTask.test_sums

    def nan(task, batch):
        return {**original(task, batch), "loss": torch.tensor(math.nan)}

    monkeypatch.setattr(ClassificationTask, "test_sums", nan)
    with pytest.raises(ValueError, match="training diverged: the score loss is nan at step 6, epoch 1 of 3"):
        fit(recipe, "run", run_in(tmp_path / "run"))
    assert not (tmp_path / "run" / "scores.json").exists()
    monkeypatch.undo()
    fit(replace(recipe, epochs=1), "sound", run_in(tmp_path / "sound"))
    monkeypatch.setattr(ClassificationTask, "test_sums", nan)
    with pytest.raises(ValueError, match=r"gives scores that are not numbers \(loss\)"):
        evaluate(tmp_path / "sound", pictures)
