"""Run trainings in folders and as commands, and compare their weights."""

import sys
from pathlib import Path

import torch
from safetensors.torch import load_file

from acda.training.recipe import Classification


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "weights.safetensors")


def assert_same(a: dict[str, torch.Tensor], b: dict[str, torch.Tensor], tolerance: float = 0) -> None:
    assert set(a) == set(b)
    for name in a:
        torch.testing.assert_close(a[name], b[name], rtol=0, atol=tolerance, msg=name)


def command(recipe: Classification, data: Path, out: Path, *more: str) -> list[str]:
    settings = ["--data", str(data), "--epochs", str(recipe.epochs), "--batch-size", str(recipe.batch_size)]
    settings += ["--learning-rate", str(recipe.learning_rate), "--warmup-steps", str(recipe.warmup_steps)]
    settings += ["--device", "cpu", "--threads", "1", "--out", str(out), *more]
    return [sys.executable, "-m", "acda", "train", "cifar10_lenet", *settings]
