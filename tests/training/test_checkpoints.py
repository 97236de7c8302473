"""Resuming from a damaged checkpoint or another file: one line says what to do, and nothing is overwritten."""

import resource
import shutil
from dataclasses import replace

import pytest
import torch

from acda.cli import main
from acda.training.checkpoints import WholeFiles
from acda.training.run import fit
from tests.training.runs import assert_same, command, weights


@pytest.fixture(scope="module")
def stopped(tmp_path_factory, run_in):
    """A run after one of its two epochs, and the recipe."""
    from acda.training.recipe import Classification
    from acda.training.tasks.task import Task

    recipe = Classification(model="lenet", epochs=2, batch_size=10, learning_rate=0.02, warmup_steps=2)
    folder, original = tmp_path_factory.mktemp("stopped") / "run", Task.training_step

    def stops(self, batch, index):
        if self.current_epoch == 1:
            raise KeyError("stopped")
        return original(self, batch, index)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Task, "training_step", stops)
        with pytest.raises(KeyError, match="stopped"):
            fit(recipe, "run", run_in(folder))
    return folder, recipe


def changed(**parts):
    return lambda content: {**content, **parts}


def without(part):
    return lambda content: {key: value for key, value in content.items() if key != part}


def inside(*path, value):
    """The content with one value replaced, however deep."""

    def change(content):
        at = content
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = value
        return content

    return change


def of_callback(name, key, value):
    def change(content):
        (state,) = (s for k, s in content["callbacks"].items() if k.startswith(name) and s.get("monitor", "error"))
        state[key] = value
        return content

    return change


BROKEN = [
    (lambda content: {}, "it lacks epoch, global_step"),
    *[(without(part), f"it lacks {part}") for part in ("state_dict", "loops", "optimizer_states", "callbacks")],
    (changed(epoch="1"), "epoch of the checkpoint needs to be a count"),
    (changed(global_step=-3), "global_step of the checkpoint needs to be a count"),
    (changed(state_dict=[]), "state_dict of the checkpoint needs to be parts"),
    (inside("state_dict", "model.fc.bias", value=torch.zeros(4)), r"needs to be numbers in the shape \(3,\)"),
    (inside("state_dict", "model.fc.bias", value=torch.full((3,), torch.nan)), "non-finite values in model.fc.bias"),
    (changed(callbacks={}), "it lacks the state of"),
    (changed(loops=None), "loops of the checkpoint needs to be parts"),
    (inside("loops", "fit_loop", value=3), "fit_loop of loops"),
    (
        inside("loops", "fit_loop", "epoch_progress", "current", "ready", value="x"),
        "ready of current of epoch_pro",
    ),
    (changed(optimizer_states=[]), "not enough values"),
    (changed(optimizer_states=[{"state": {}, "param_groups": []}]), "param_groups of the optimiser needs to be 2"),
    (inside("optimizer_states", 0, "state", 4, "momentum_buffer", value=torch.zeros(1)), "momentum_buffer of the opt"),
    (inside("optimizer_states", 0, "param_groups", 0, "lr", value="fast"), "lr of param_groups"),
    (inside("lr_schedulers", 0, "last_epoch", value=None), "last_epoch of the schedule needs to be a count"),
    (changed(**{"losses of the epoch": 3}), "its losses of the epoch are not a row"),
    (changed(**{"pytorch-lightning_version": "zzz"}), "zzz"),
    (of_callback("History", "epochs", 7), "not iterable"),
    (of_callback("History", "epochs", [1]), "the scores needs to be parts"),
    (of_callback("MovableCheckpoint", "best_model_score", "good"), "its best scores are not numbers"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN)
def test_a_checkpoint_of_another_form_is_refused(stopped, tmp_path, change, message, run_in):
    folder, recipe = stopped
    shutil.copytree(folder, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    torch.save(change(torch.load(last, weights_only=True)), last)
    before = last.read_bytes()
    with pytest.raises(ValueError, match=rf"last\.ckpt cannot be resumed.*{message}") as caught:
        fit(recipe, "run", run_in(tmp_path / "run", resume=True))
    assert "\n" not in str(caught.value)
    assert f"copy {last.with_name('best.ckpt')} over it and pass --resume again, or start afresh" in str(caught.value)
    assert last.read_bytes() == before
    assert not (tmp_path / "run" / "weights.safetensors").exists()


def test_a_flipped_bit_is_refused_and_the_way_out_leads_to_the_same_weights(stopped, tmp_path, run_in):
    folder, recipe = stopped
    shutil.copytree(folder, tmp_path / "run")
    last = tmp_path / "run" / "checkpoints" / "last.ckpt"
    content = bytearray(last.read_bytes())
    content[len(content) // 2] ^= 0x40
    last.write_bytes(content)
    run = run_in(tmp_path / "run", resume=True)
    with pytest.raises(ValueError, match=r"last\.ckpt is damaged: .* To go on, copy .*best\.ckpt over it"):
        fit(recipe, "run", run)
    shutil.copy(last.with_name("best.ckpt"), last)
    fit(recipe, "run", run)
    fit(recipe, "whole", run_in(tmp_path / "whole"))
    assert_same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


@pytest.fixture
def full_disk():
    """A limit on the size of files for this process, which any user can set: larger writes fail."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_full_disk_leaves_the_old_checkpoint(tmp_path, full_disk):
    path = tmp_path / "last.ckpt"
    WholeFiles().save_checkpoint({"old": torch.zeros(10)}, path)
    with pytest.raises(OSError, match="What was saved before is intact") as caught:
        WholeFiles().save_checkpoint({"new": torch.zeros(1_000_000)}, path)
    assert str(caught.value).startswith(f"{path} could not be written (")
    assert "\n" not in str(caught.value)
    assert set(torch.load(path, weights_only=True)) == {"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["last.ckpt"]


def test_a_disk_that_fills_in_the_middle_of_a_training_is_one_line(recipe, tmp_path, pictures, full_disk, capsys):
    assert main(command(replace(recipe, epochs=1), pictures, tmp_path / "run")[3:]) == 1
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"acda train: {tmp_path / 'run' / 'checkpoints'}")
    assert "Traceback" not in said
