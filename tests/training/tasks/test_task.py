"""Each task through fit: counting, restoring from pairs, noise on clean photos."""

import hashlib
import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from acda import create_model
from acda.cli import main
from acda.models import CrowdCounter
from acda.photos.weights import load, read_weights
from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import psnr, ssim
from acda.training.recipe import Counting, Restoration, read_recipe
from acda.training.run import Run, evaluate, fit
from acda.training.tasks.restoration import RestorationTask
from tests.training.runs import assert_same, weights


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
        epochs=8,
        test_every=4,
        batch_size=2,
        crop=48,
        sigma=4.0,
        optimiser="adamw",
        learning_rate=3e-3,
    )
    run = Run(data=tmp_path / "dots", initial=classifier, out=tmp_path / "run", device="cpu")
    scores = fit(recipe, "dots", run)
    saved = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"]
    assert [epoch["epoch"] for epoch in saved] == [4, 8]
    assert scores["images"] == 4
    assert scores["MAE"] < 5  # saying that there is nothing would be wrong by 6.5
    assert scores["MAE"] <= scores["root MSE"]
    shutil.rmtree(tmp_path / "dots" / "train")  # the test photos are enough
    again = evaluate(tmp_path / "run", tmp_path / "dots")
    assert again["MAE"] == pytest.approx(scores["MAE"], abs=1e-4)
    digest = hashlib.sha256(classifier.read_bytes()).hexdigest()
    assert read_recipe(tmp_path / "run" / "recipe.json") == replace(recipe, initial_sha256=digest)
    assert json.loads(read_weights(tmp_path / "run" / "weights.safetensors")[1]["recipe"])["initial_sha256"] == digest
    model = load(tmp_path / "run").model
    assert isinstance(model, CrowdCounter)
    shutil.copytree(tmp_path / "dots" / "test", tmp_path / "dots" / "train")
    with pytest.raises(ValueError, match=r"classifier.safetensors: these are not the weights of the same kind"):
        fit(replace(recipe, model="crowd_counter_s"), "dots", replace(run, out=tmp_path / "other"))


def test_restoring_from_pairs(tmp_path):
    """Noise on smooth pictures: trained on crops, more of them than photos, and tested whole; higher is better."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:40, :56]
    for part in ("train", "test"):
        for side in ("input", "target"):
            (tmp_path / "noisy" / part / side).mkdir(parents=True)
        for i in range(3):
            clean = 127 + 90 * np.sin((x + 5 * i + 3 * (part == "test")) / 9) * np.cos(y / 7) * np.ones((3, 1, 1))
            for side, pixels in (("target", clean), ("input", clean + random.normal(0, 25, clean.shape))):
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8).transpose(1, 2, 0))
                image.save(tmp_path / "noisy" / part / side / f"{i}.png")
    recipe = Restoration(
        model="restorer",
        options={"kernel_size": 3, "num_atoms": 2},
        epochs=2,
        batch_size=4,
        crop=32,
        crops=80,
        optimiser="adamw",
        learning_rate=1e-3,
        warmup_steps=10,
    )
    run = Run(data=tmp_path / "noisy", out=tmp_path / "run", device="cpu")
    scores = fit(recipe, "noisy", run)
    unit = [torch.from_numpy(Photos(read_pairs(tmp_path / "noisy")[1])[i]) / 255 for i in range(3)]
    noisy, clean = torch.stack(unit, 1).movedim(-1, 2)
    assert scores["PSNR"] > float(psnr(noisy, clean).mean()) + 0.1
    assert scores["SSIM"] > float(ssim(noisy, clean).mean())
    first = json.loads((tmp_path / "run" / "scores.json").read_text())["epochs"][0]
    best = torch.load(tmp_path / "run" / "checkpoints" / "best.ckpt", weights_only=True)
    assert first["PSNR"] < scores["PSNR"]
    assert best["epoch"] == 1
    assert evaluate(tmp_path / "run", tmp_path / "noisy")["PSNR"] == pytest.approx(scores["PSNR"], abs=1e-4)
    assert tuple(load(tmp_path / "run").model.trunk.blocks[0].conv2.mixing.shape) == (48, 48, 2)
    with pytest.raises(ValueError, match=r"0.png is smaller than the crops, for which 64×64 is needed"):
        fit(replace(recipe, crop=64), "noisy", replace(run, out=tmp_path / "other"))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_noise_on_clean_photos_and_the_variational_objective_resume_too(tmp_path, ctrl_c, workers):
    """On the command line: stopped within an epoch of crops and resumed, it ends with the weights of a whole run."""
    random = np.random.default_rng(0)
    for part in ("train", "test"):
        (tmp_path / "clean" / part).mkdir(parents=True)
        for i in range(2):
            image = Image.fromarray(random.integers(0, 256, (40, 40, 3)).astype(np.uint8))
            image.save(tmp_path / "clean" / part / f"{i}.png")
    settings = ["--data", str(tmp_path / "clean"), "--epochs", "2", "--crops", "12", "--crop", "24"]
    settings += ["--batch-size", "4", "--options", "num_atoms", "2", "kernel_size", "3"]
    settings += ["--workers", str(workers), "--device", "cpu"]
    train = ["train", "polyu_sidd_restorer_variational", "--degradation", "noise", *settings]
    assert main([*train, "--out", str(tmp_path / "whole")]) == 0
    steps = ctrl_c(4)  # the first of the second epoch
    assert main([*train, "--out", str(tmp_path / "parts")]) == 130
    assert main([*train, "--out", str(tmp_path / "parts"), "--resume"]) == 0
    assert len(steps) == 6
    assert_same(weights(tmp_path / "parts"), weights(tmp_path / "whole"))
    assert load(tmp_path / "parts").facts["options"] == '{"num_atoms": 2, "kernel_size": 3}'


def test_options_join_those_of_the_recipe(monkeypatch):
    """An ablation of a denoiser starts like the denoiser, unless its options say otherwise."""
    trained: list[dict[str, int]] = []
    monkeypatch.setattr("acda.training.run.fit", lambda recipe, *_: trained.append(recipe.options) or {})
    for given in ([], ["--options", "num_atoms", "9"], ["--options", "blind_to_smooth", "0"]):
        assert main(["train", "polyu_sidd_restorer", *given]) == 0
    assert trained == [{"blind_to_smooth": True}, {"blind_to_smooth": True, "num_atoms": 9}, {"blind_to_smooth": False}]


def test_the_losses_of_an_epoch_take_no_room(monkeypatch):
    """Until the next test each is kept as one number, not as the tensor that it is the mean of."""
    recipe = Restoration(model="dncnn", epochs=1, options={"depth": 2})
    task = RestorationTask(recipe, None, np.zeros((1, 2, 16, 16, 3), np.uint8))
    monkeypatch.setattr(task, "log", lambda *_, **__: None)
    task.training_step((torch.rand(2, 3, 32, 32), torch.rand(2, 3, 32, 32)), 0)
    (loss,) = task._losses
    assert loss.untyped_storage().nbytes() == loss.element_size()
