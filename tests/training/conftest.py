"""Shared by the tests of training: pictures to learn from, a recipe for them, and Ctrl-C at a step."""

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from acda.training.recipe import Classification
from acda.training.run import Run
from acda.training.tasks.task import Task

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
def recipe() -> Classification:
    return Classification(model="lenet", epochs=3, batch_size=10, learning_rate=0.02, warmup_steps=2)


@pytest.fixture(scope="session")
def run_in(pictures):
    """run_in(folder, …): a run on the pictures, on the CPU."""

    def run(out: Path, **more: Any) -> Run:
        return Run(**{"data": pictures, "out": out, "device": "cpu", **more})

    return run


@pytest.fixture
def ctrl_c(monkeypatch):
    """ctrl_c(n) interrupts the n-th step from now on, once. What it returns grows by what `watch` sees in each step.

    number: a signal other than Ctrl-C's
    """

    def at(step, watch=lambda task: None, number=signal.SIGINT):
        original, seen = Task.training_step, []

        def interrupted(self, batch, index):
            seen.append(watch(self))
            if len(seen) == step:
                os.kill(os.getpid(), number)
            return original(self, batch, index)

        monkeypatch.setattr(Task, "training_step", interrupted)
        return seen

    return at
