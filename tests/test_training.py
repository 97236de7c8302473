"""Runs: what they write, that they resume to the same weights, that processes share the work exactly."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file

from acda import create_model
from acda.cli import main
from acda.models import CrowdCounter
from acda.recipe import Classification, Counting, Recipe, Restoration, recipe_from_json
from acda.recipes import RECIPES
from acda.tasks.task import Task
from acda.training import Run, evaluate, fit
from acda.weights import load, read_weights, write_weights

CLASSES = ("dark", "light", "noisy")


@pytest.fixture(scope="session")
def pictures(tmp_path_factory) -> Path:
    """Three classes that can be told apart, 32×32: 20 a class to learn from, 7 to test."""
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 7)):
        for label, name in enumerate(CLASSES):
            (folder / split / name).mkdir(parents=True)
            for i in range(count):
                level, spread = ((60, 5), (180, 5), (120, 60))[label]
                image = generator.normal(level, spread, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(image).save(folder / split / name / f"{i}.png")
    return folder


@pytest.fixture
def recipe(pictures) -> Classification:
    return Classification(model="lenet", epochs=3, data=pictures, batch_size=10, learning_rate=0.02, warmup_steps=2)


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 0) -> None:
    assert set(a) == set(b)
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=name)


def test_a_run_writes_what_it_says(recipe, tmp_path):
    scores = fit(replace(recipe, epochs=12), "try", Run(out=tmp_path / "run", accelerator="cpu"))
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
    assert len((run / "log.txt").read_text().splitlines()) == 12
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert state["epoch"] == 11


@pytest.mark.parametrize("model", ["lenet", "lenet_acda"])
def test_a_run_that_was_stopped_goes_on_to_the_same_weights(recipe, tmp_path, model, monkeypatch):
    recipe = replace(recipe, model=model)
    fit(recipe, "whole", Run(out=tmp_path / "whole", accelerator="cpu"))

    class Stop(Exception):
        pass

    from acda.tasks.classification import ClassificationTask

    original, steps = ClassificationTask.training_step, []

    def stops(self, batch, index):
        steps.append(index)
        if len(steps) == 10:  # in the middle of the second epoch
            raise Stop
        return original(self, batch, index)

    monkeypatch.setattr(ClassificationTask, "training_step", stops)
    with pytest.raises(Stop):
        fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu"))
    monkeypatch.undo()
    assert not (tmp_path / "parts" / "weights.safetensors").exists()
    fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu", resume=True))
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    scores = [json.loads((tmp_path / n / "scores.json").read_text())["epochs"] for n in ("parts", "whole")]
    for a, b in zip(*scores, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


@pytest.fixture
def ctrl_c(monkeypatch):
    """ctrl_c(n) interrupts the n-th step from now on, once. What it returns grows by what `watch` sees in each step."""

    def at(step, watch=lambda task: None):
        original, seen = Task.training_step, []

        def interrupted(self, batch, index):
            seen.append(watch(self))
            if len(seen) == step:
                os.kill(os.getpid(), signal.SIGINT)
            return original(self, batch, index)

        monkeypatch.setattr(Task, "training_step", interrupted)
        return seen

    return at


def test_normalisations_settle_before_the_end(recipe, tmp_path, ctrl_c):
    """From two thirds of the steps on their statistics stay, and the same after a stop in between."""
    recipe = replace(recipe, model="lenet_acda", freeze_norm_at=0.65, norm_momentum=0.5)
    fit(recipe, "whole", Run(out=tmp_path / "whole", accelerator="cpu"))
    seen = ctrl_c(15, lambda task: task.model.features[0].generator.predict_norm.running_var.clone())
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu"))
    fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu", resume=True))
    changed = [not torch.equal(a, b) for a, b in pairwise(seen)]
    assert changed == [True] * 12 + [False] * 5  # steps 0 to 11 of 18
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))


def test_the_last_epoch_is_tested_whatever_the_interval(recipe, tmp_path):
    fit(replace(recipe, test_every=2), "try", Run(out=tmp_path / "run", accelerator="cpu"))
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"]
    assert [epoch["epoch"] for epoch in saved] == [1, 2, 3]


@pytest.mark.parametrize(("step", "test_every"), [(1, 1), (8, 1), (12, 1), (6, 3), (13, 3)])
def test_ctrl_c_stops_after_saving_and_goes_on_from_that_step(recipe, tmp_path, ctrl_c, step, test_every):
    """In the first epoch, in the middle of the second, at its very end; and after epochs that are not tested."""
    recipe = replace(recipe, test_every=test_every)
    fit(recipe, "whole", Run(out=tmp_path / "whole", accelerator="cpu"))
    steps = ctrl_c(step)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu"))
    assert len(steps) == step
    fit(recipe, "parts", Run(out=tmp_path / "parts", accelerator="cpu", resume=True))
    assert len(steps) == 18
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    scores = [json.loads((tmp_path / n / "scores.json").read_text())["epochs"] for n in ("parts", "whole")]
    for a, b in zip(*scores, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}


def test_run_and_data_may_be_moved_between_two_sittings(recipe, tmp_path, ctrl_c):
    recipe = replace(recipe, epochs=2)
    ctrl_c(8)
    with pytest.raises(KeyboardInterrupt):
        fit(recipe, "run", Run(out=tmp_path / "before", accelerator="cpu"))
    best = tmp_path / "before" / "checkpoints" / "best.ckpt"
    # As if the first epoch had been better than any can be: the second must not be written over it.
    last = torch.load(best.with_name("last.ckpt"), weights_only=True)
    (state,) = (s for s in last["callbacks"].values() if s.get("monitor") == "error")
    state["best_model_score"] = state["kth_value"] = torch.tensor(-1.0)
    state["best_k_models"] = {path: torch.tensor(-1.0) for path in state["best_k_models"]}
    torch.save(last, best.with_name("last.ckpt"))
    kept = best.read_bytes()
    (tmp_path / "before").rename(tmp_path / "after")
    shutil.copytree(recipe.data, tmp_path / "elsewhere")
    fit(
        replace(recipe, data=tmp_path / "elsewhere"), "run", Run(out=tmp_path / "after", accelerator="cpu", resume=True)
    )
    assert (tmp_path / "after" / "checkpoints" / "best.ckpt").read_bytes() == kept
    assert not (tmp_path / "before").exists()


def command(recipe: Classification, out: Path, *more: str) -> list[str]:
    settings = ["--data", str(recipe.data), "--epochs", str(recipe.epochs), "--batch-size", str(recipe.batch_size)]
    settings += ["--learning-rate", str(recipe.learning_rate), "--warmup-steps", str(recipe.warmup_steps)]
    settings += ["--accelerator", "cpu", "--threads", "1", "--out", str(out), *more]
    return [sys.executable, "-m", "acda", "train", "cifar10_lenet", *settings]


def test_sigkill_at_any_moment(recipe, tmp_path):
    recipe = replace(recipe, epochs=40)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    subprocess.run(command(recipe, whole), check=True, capture_output=True)
    process = subprocess.Popen(command(recipe, parts), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    last = parts / "checkpoints" / "last.ckpt"
    deadline = time.monotonic() + 120
    while not last.exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait(60)
    torch.load(last, weights_only=True)
    assert not (parts / "weights.safetensors").exists()
    subprocess.run(command(recipe, parts, "--resume"), check=True, capture_output=True)
    assert_same(weights(parts), weights(whole))


@pytest.mark.parametrize(
    ("model", "precision", "tolerance"), [("lenet", "32-true", 1e-6), ("lenet_acda", "64-true", 1e-12)]
)
def test_two_processes_are_one_with_twice_the_batch(recipe, tmp_path, model, precision, tolerance):
    """21 test images in two processes: 11 and 10, each counted once. In 32 bits LeNet + ACDA's sums differ by 3e-6."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    options = ["--margin", "0", "--model", model, "--frozen-norm", "--precision", precision]
    subprocess.run(command(replace(recipe, batch_size=20), alone, *options), check=True, capture_output=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MASTER", "NODE"))}
    result = subprocess.run(
        command(recipe, together, *options, "--devices", "2"), capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert_same(weights(together), weights(alone), tolerance=tolerance)
    first, second = (json.loads((f / "scores.json").read_text())["epochs"] for f in (alone, together))
    for a, b in zip(first, second, strict=True):
        assert a["images"] == b["images"] == 21
        assert a["error"] == pytest.approx(b["error"], abs=1e-4)
        assert a["train loss"] == pytest.approx(b["train loss"], abs=1e-5)


def test_two_machines_with_the_same_command(recipe, tmp_path):
    """torchrun once for each machine, both of them this one."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    subprocess.run(command(replace(recipe, batch_size=20), alone, "--margin", "0"), check=True, capture_output=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MASTER", "NODE"))}
    machines = []
    log = (tmp_path / "log.txt").open("w+")
    for rank in ("0", "1"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        launcher += ["--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port]
        train = command(recipe, together, "--margin", "0", "--nodes", "2")[1:]
        machines.append(subprocess.Popen([*launcher, *train], env=environment, stdout=log, stderr=log))
    assert [machine.wait(300) for machine in machines] == [0, 0], (tmp_path / "log.txt").read_text()[-2000:]
    assert_same(weights(together), weights(alone), tolerance=1e-6)


def test_images_from_their_files(recipe, tmp_path):
    """The way ImageNet is read, with workers, stopped nowhere and scored again."""
    recipe = replace(recipe, image_size=32, epochs=2)
    scores = fit(recipe, "files", Run(out=tmp_path / "run", accelerator="cpu", workers=1))
    assert scores["images"] == 21
    again = evaluate(tmp_path / "run", recipe.data)
    assert again == {key: scores[key] for key in again}


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_network_and_says_how_it_is_run(name):
    recipe, documentation = RECIPES[name](), RECIPES[name].__doc__ or ""
    assert f"acda train {name} --data DIR" in documentation
    with torch.device("meta"):
        create_model(recipe.model)


def test_evaluation_gives_the_last_epochs_scores(recipe, tmp_path, capsys):
    run = tmp_path / "run"
    scores = fit(recipe, "try", Run(out=run, accelerator="cpu"))
    for target in (run, run / "weights.safetensors"):
        again = evaluate(target, recipe.data)
        assert again == {key: scores[key] for key in again}
    # Only the test images are needed.
    shutil.copytree(recipe.data / "test", tmp_path / "elsewhere" / "test")
    assert main(["evaluate", str(run), "--data", str(tmp_path / "elsewhere")]) == 0
    assert "error" in capsys.readouterr().out
    assert main(["evaluate", str(tmp_path), "--data", str(recipe.data)]) == 1
    assert "has no weights.safetensors: a run has it when it is complete" in capsys.readouterr().err
    # The weights tell all that is needed, and no place of this machine.
    (run / "weights.safetensors").rename(tmp_path / "alone.safetensors")
    assert evaluate(tmp_path / "alone.safetensors", recipe.data) == again
    assert str(recipe.data) not in json.dumps(read_weights(tmp_path / "alone.safetensors")[1])


def test_weights_are_for_their_network(recipe, tmp_path):
    run = tmp_path / "run"
    fit(replace(recipe, epochs=1), "try", Run(out=run, accelerator="cpu"))
    tensors, facts = read_weights(run / "weights.safetensors")
    write_weights(
        run / "weights.safetensors", tensors, {**facts, "recipe": replace(recipe, model="lenet_wide").to_json()}
    )
    with pytest.raises(ValueError, match="are not the weights of lenet_wide"):
        evaluate(run, recipe.data)
    save_file(tensors, run / "weights.safetensors")
    with pytest.raises(ValueError, match="do not tell their classes"):
        evaluate(run, recipe.data)
    (run / "recipe.json").unlink()
    with pytest.raises(ValueError, match="does not tell its recipe"):
        evaluate(run, recipe.data)
    (run / "weights.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="cannot be read"):
        evaluate(run, recipe.data)


def test_what_cannot_be_run_is_refused(recipe, tmp_path):
    with pytest.raises(ValueError, match="has no run to resume"):
        fit(recipe, "x", Run(out=tmp_path / "none", resume=True))
    with pytest.raises(ValueError, match="SyncBatchNorm does not run on CPUs"):
        Run(accelerator="cpu", sync_batchnorm=True)
    with pytest.raises(ValueError, match="--threads needs to be at least 1; got 0"):
        Run(threads=0)
    with pytest.raises(ValueError, match="needs so many GPUs; torch sees"):
        Run(accelerator="gpu", devices=1000)
    fit(replace(recipe, epochs=1), "x", Run(out=tmp_path / "run", accelerator="cpu"))
    with pytest.raises(ValueError, match="has a run already"):
        fit(recipe, "x", Run(out=tmp_path / "run", accelerator="cpu"))
    with pytest.raises(ValueError, match=r"is of another recipe \(epochs 1, now 3\)"):
        fit(recipe, "x", Run(out=tmp_path / "run", accelerator="cpu", resume=True))
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    with pytest.raises(ValueError, match="has a run already"):
        fit(replace(recipe, epochs=1), "x", Run(out=tmp_path / "run", accelerator="cpu"))
    with pytest.raises(ValueError, match="fewer than one batch"):
        fit(replace(recipe, batch_size=100), "x", Run(out=tmp_path / "large", accelerator="cpu"))


def test_recipes_are_values():
    recipe = Classification(model="lenet", epochs=3, data=Path("a/b"))
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
    assert main(["recipes", "--show", "cifar10_lenet"]) == 0
    assert "learning_rate" in capsys.readouterr().out
    assert main(["train", "cifar10_lenett"]) == 1
    assert "Did you mean cifar10_lenet" in capsys.readouterr().err
    assert main(["train", "cifar10_lenet", "--data", str(tmp_path)]) == 1
    assert "needs the folders train and val" in capsys.readouterr().err


def test_counting_from_a_classifiers_weights(tmp_path):
    """Photos with bright dots: trained, tested every second epoch on whole photos, and scored again to the same."""
    random = np.random.default_rng(0)
    for split in ("train", "test"):
        (tmp_path / "dots" / split).mkdir(parents=True)
        points = {}
        for i in range(4):
            pixels = np.full((50, 70, 3), 60, np.uint8)
            points[f"{i}.png"] = random.integers(3, 47, (5 + i, 2)).tolist()
            for x, y in points[f"{i}.png"]:
                pixels[y - 1 : y + 2, x - 1 : x + 2] = 250
            Image.fromarray(pixels).save(tmp_path / "dots" / split / f"{i}.png")
        (tmp_path / "dots" / split / "points.json").write_text(json.dumps(points))
    classifier = tmp_path / "classifier.safetensors"
    state = create_model("ad_resnet_s_conv", num_classes=5).state_dict()
    save_file({f"model.{name}": t for name, t in state.items()}, classifier)
    recipe = Counting(
        model="crowd_counter_s_conv",
        epochs=4,
        test_every=2,
        data=tmp_path / "dots",
        batch_size=2,
        crop=48,
        sigma=4.0,
        optimiser="adamw",
        learning_rate=1e-3,
        initial=classifier,
    )
    scores = fit(recipe, "dots", Run(out=tmp_path / "run", accelerator="cpu"))
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"]
    assert [epoch["epoch"] for epoch in saved] == [2, 4]
    assert scores["images"] == 4
    assert 0 < scores["MAE"] <= scores["root MSE"]
    shutil.rmtree(tmp_path / "dots" / "train")  # the test photos are enough
    again = evaluate(tmp_path / "run", tmp_path / "dots")
    assert again["MAE"] == pytest.approx(scores["MAE"], abs=1e-4)
    assert recipe_from_json((tmp_path / "run" / "recipe.json").read_text()) == recipe
    model = load(tmp_path / "run").model
    assert isinstance(model, CrowdCounter)
    shutil.copytree(tmp_path / "dots" / "test", tmp_path / "dots" / "train")
    with pytest.raises(ValueError, match=r"classifier.safetensors: these are not the weights of the same kind"):
        fit(replace(recipe, model="crowd_counter_s"), "dots", Run(out=tmp_path / "other", accelerator="cpu"))


def test_a_dataset_is_fetched_on_request_only(recipe, tmp_path, monkeypatch, capsys):
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
        fit(recipe, "own", Run(out=tmp_path / "own", download=True))


def test_restoring_from_pairs(tmp_path):
    """Noise on smooth pictures: trained on crops, more of them than photos, and tested whole; higher is better."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:40, :56]
    for part in ("train", "test"):
        for side in ("input", "target"):
            (tmp_path / "noisy" / part / side).mkdir(parents=True)
        for i in range(3):
            clean = 127 + 90 * np.sin((x + 5 * i) / 9) * np.cos(y / 7) * np.ones((3, 1, 1))
            for side, pixels in (("target", clean), ("input", clean + random.normal(0, 25, clean.shape))):
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
                image.save(tmp_path / "noisy" / part / side / f"{i}.png")
    recipe = Restoration(
        model="restorer",
        options={"kernel_size": 3, "num_atoms": 2},
        epochs=2,
        data=tmp_path / "noisy",
        batch_size=4,
        crop=32,
        crops=40,
        optimiser="adamw",
        learning_rate=1e-3,
        warmup_steps=2,
    )
    scores = fit(recipe, "noisy", Run(out=tmp_path / "run", accelerator="cpu"))
    first = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"][0]
    assert scores["PSNR"] > 19  # of the input: 20.2 dB less what normalisation has yet to learn
    assert 0 < scores["SSIM"] < 1
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    assert best["epoch"] == (0 if first["PSNR"] > scores["PSNR"] else 1)
    assert evaluate(tmp_path / "run", tmp_path / "noisy")["PSNR"] == pytest.approx(scores["PSNR"], abs=1e-4)
    assert tuple(load(tmp_path / "run").model.trunk.blocks[0].conv2.mixing.shape) == (48, 48, 2)
    with pytest.raises(ValueError, match=r"0.png is smaller than the crops of 64×64"):
        fit(replace(recipe, crop=64), "noisy", Run(out=tmp_path / "other", accelerator="cpu"))


@pytest.mark.parametrize("workers", [0, 1])
def test_noise_on_clean_photos_and_the_variational_objective_resume_too(tmp_path, ctrl_c, workers):
    """By the command line: stopped in the middle of an epoch of crops, it ends with the weights of a whole run."""
    random = np.random.default_rng(0)
    for part in ("train", "test"):
        (tmp_path / "clean" / part).mkdir(parents=True)
        for i in range(2):
            image = Image.fromarray(random.integers(0, 256, (40, 40, 3)).astype(np.uint8))
            image.save(tmp_path / "clean" / part / f"{i}.png")
    settings = ["--data", str(tmp_path / "clean"), "--epochs", "2", "--crops", "12", "--crop", "24"]
    settings += ["--batch-size", "4", "--options", "num_atoms", "2", "--workers", str(workers), "--accelerator", "cpu"]
    train = ["train", "synthetic_restorer_variational", *settings]
    assert main([*train, "--out", str(tmp_path / "whole")]) == 0
    steps = ctrl_c(4)  # the first of the second epoch
    assert main([*train, "--out", str(tmp_path / "parts")]) == 130
    assert main([*train, "--out", str(tmp_path / "parts"), "--resume"]) == 0
    assert len(steps) == 6
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    assert load(tmp_path / "parts").facts["options"] == '{"num_atoms": 2}'
