"""What a run writes, scores again and refuses; recipes as values and on the command line."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import save_file

from acda.cli import main
from acda.photos.weights import read_weights, write_weights
from acda.training.recipe import Classification, Recipe
from acda.training.run import Run, _accelerator, evaluate, fit


def test_a_run_writes_what_it_says(recipe, tmp_path, run_in):
    scores = fit(replace(recipe, epochs=12), "try", run_in(tmp_path / "run"))
    run = tmp_path / "run"
    assert {p.name for p in run.iterdir()} >= {
        "recipe.json",
        "log.txt",
        "scores.json",
        "checkpoints",
        "curves.png",
        "weights.safetensors",
    }
    assert list(run.glob("events.out.tfevents*"))
    assert {p.name for p in (run / "checkpoints").iterdir()} == {"last.ckpt", "best.ckpt"}
    assert Classification.from_json((run / "recipe.json").read_text()) == replace(recipe, epochs=12)
    history = json.loads((run / "scores.json").read_text())
    assert [e["epoch"] for e in history["epochs"]] == list(range(1, 13))
    assert history["epochs"][-1] == scores
    assert scores["images"] == 21
    assert scores["error"] < 20
    begins, *epochs = (run / "log.txt").read_text().splitlines()
    assert len(epochs) == 12
    assert begins == "try begins: 60 images for training, 21 for testing, 0.06 M parameters, 72 steps"
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["epoch"] == 11


def test_the_last_epoch_is_tested_whatever_the_interval(recipe, tmp_path, run_in):
    fit(replace(recipe, test_every=2), "try", run_in(tmp_path / "run"))
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"]
    assert [epoch["epoch"] for epoch in saved] == [1, 2, 3]


def test_images_from_their_files(recipe, tmp_path, run_in, pictures):
    """As ImageNet is read: with workers, without interruption, and scored again."""
    recipe = replace(recipe, image_size=32, epochs=2)
    scores = fit(recipe, "files", run_in(tmp_path / "run", workers=1))
    assert scores["images"] == 21
    again = evaluate(tmp_path / "run", pictures)
    assert again == {key: scores[key] for key in again}


def test_evaluation_gives_the_last_epochs_scores(recipe, tmp_path, capsys, run_in, pictures):
    run = tmp_path / "run"
    scores = fit(recipe, "try", run_in(run))
    for target in (run, run / "weights.safetensors"):
        again = evaluate(target, pictures)
        assert again == {key: scores[key] for key in again}
    # Only the test images are needed.
    shutil.copytree(pictures / "test", tmp_path / "elsewhere" / "test")
    assert main(["evaluate", str(run), "--data", str(tmp_path / "elsewhere")]) == 0
    assert "error" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path), "--data", str(pictures)]) == 1
    assert "has no weights.safetensors: a run has it when it is complete" in capsys.readouterr().err
    # The weights tell all that is needed, and no place of this machine.
    (run / "weights.safetensors").rename(tmp_path / "alone.safetensors")
    assert evaluate(tmp_path / "alone.safetensors", pictures) == again
    assert str(pictures) not in json.dumps(read_weights(tmp_path / "alone.safetensors")[1])


def test_weights_are_for_their_network(recipe, tmp_path, run_in, pictures):
    run = tmp_path / "run"
    fit(replace(recipe, epochs=1), "try", run_in(run))
    tensors, facts = read_weights(run / "weights.safetensors")
    write_weights(
        run / "weights.safetensors", tensors, {**facts, "recipe": replace(recipe, model="lenet_wide").to_json()}
    )
    with pytest.raises(ValueError, match="are not the weights of lenet_wide"):
        evaluate(run, pictures)
    save_file(tensors, run / "weights.safetensors")
    with pytest.raises(ValueError, match="have no classes"):
        evaluate(run, pictures)
    (run / "recipe.json").unlink()
    with pytest.raises(ValueError, match="has no recipe"):
        evaluate(run, pictures)
    (run / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        evaluate(run, pictures)


def test_what_cannot_be_run_is_refused(recipe, tmp_path, run_in):
    with pytest.raises(ValueError, match="has no run to resume"):
        fit(recipe, "x", run_in(tmp_path / "none", resume=True))
    with pytest.raises(ValueError, match="SyncBatchNorm does not run on CPUs"):
        Run(device="cpu", sync_batchnorm=True)
    with pytest.raises(ValueError, match="--threads needs to be at least 1; got 0"):
        Run(threads=0)
    fit(replace(recipe, epochs=1), "x", run_in(tmp_path / "run"))
    with pytest.raises(ValueError, match="has a run already"):
        fit(recipe, "x", run_in(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"is from another recipe \(epochs 1, now 3\)"):
        fit(recipe, "x", run_in(tmp_path / "run", resume=True))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(ValueError, match="has a run already"):
        fit(replace(recipe, epochs=1), "x", run_in(tmp_path / "run"))
    with pytest.raises(ValueError, match="fewer than one batch"):
        fit(replace(recipe, batch_size=100), "x", run_in(tmp_path / "large"))


def test_a_device_is_there_as_often_as_asked_for(monkeypatch):
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="--device cuda cannot be used"):
            Run(device="cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert _accelerator("auto") == _accelerator(Run(device="cuda", devices=2, sync_batchnorm=True).device) == "gpu"
    with pytest.raises(ValueError, match="--devices 3 with --device cuda needs as many GPUs; torch sees 2"):
        Run(device="auto", devices=3)
    assert _accelerator(Run(device="cpu", devices=3).device) == "cpu"


def test_recipes_are_values():
    recipe = Classification(model="lenet", epochs=3)
    assert Classification.from_json(recipe.to_json()) == recipe
    with pytest.raises(ValueError, match="does not know: \\['colour'\\]"):
        Classification.from_json(recipe.to_json().replace('"seed"', '"colour": 1, "seed"'))
    with pytest.raises(ValueError, match="not a recipe of the task Recipe"):
        Recipe.from_json(recipe.to_json())
    with pytest.raises(ValueError, match="epochs needs to be at least 1"):
        replace(recipe, epochs=0)


def test_the_command_line_lists_and_refuses(capsys, tmp_path):
    assert main(["recipes"]) == 0
    assert "LeNet with both convolutions adaptive, on CIFAR-10" in capsys.readouterr().out
    assert main(["recipes", "cifar10_lenet"]) == 0
    assert "learning_rate" in capsys.readouterr().out
    assert main(["train", "cifar10_lenett"]) == 1
    assert "Did you mean cifar10_lenet" in capsys.readouterr().err
    assert main(["train", "cifar10_lenet", "--data", str(tmp_path)]) == 1
    assert "needs the folders train and val" in capsys.readouterr().err


def test_a_dataset_is_fetched_on_request_only(recipe, run_in, tmp_path, monkeypatch, capsys):
    asked = []

    def unreachable(folder, download=False, train=True):
        asked.append((folder, download))
        raise RuntimeError("no route to host")

    monkeypatch.setattr("torchvision.datasets.CIFAR100", unreachable)
    out = str(tmp_path / "run")
    assert main(["train", "cifar100_lenet", "--data", str(tmp_path), "--out", out]) == 1
    assert "needs the folders train and val" in capsys.readouterr().err
    assert asked == []
    assert main(["train", "cifar100_lenet", "--data", str(tmp_path), "--out", out, "--download"]) == 1
    assert f"CIFAR100 could not be fetched into {tmp_path} (no route to host)" in capsys.readouterr().err
    assert asked == [(str(tmp_path), True)]
    with pytest.raises(ValueError, match="this recipe's data have to be in --data already"):
        fit(recipe, "own", run_in(tmp_path / "own", download=True))
