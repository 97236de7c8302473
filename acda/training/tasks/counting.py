"""Crowd counting: mean square error on the density, absolute and squared errors of whole photos' counts."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.models import COUNTERS, CrowdCounter, LiteCounter, create_model
from acda.photos.weights import IMAGENET_STATISTICS, read_weights
from acda.training.data.batches import TestBatches, TrainBatches
from acda.training.data.crowd_crops import CrowdLoader
from acda.training.data.crowds import Crowd, read_crowds, read_test_crowds
from acda.training.recipe import Counting
from acda.training.tasks.task import Task, tested_in_tiles


class CountingTask(Task):
    """Lightning's view of a Counting recipe. Metrics over whole photos: MAE, and root MSE, which papers call MSE."""

    recipe: Counting
    model: CrowdCounter | LiteCounter
    metrics = ("MAE", "root MSE")
    monitored = "MAE"

    def __init__(self, recipe: Counting, train: list[Crowd] | None, test: list[Crowd], workers: int = 0) -> None:
        model = create_model(recipe.model, **recipe.options)
        if not isinstance(model, COUNTERS):
            raise ValueError(f"{recipe.model} does not count: a crowd counter is needed.")
        super().__init__(recipe, model)
        self.crowds, self.workers = (train, test), workers
        self.counts = len(train or ()), len(test)
        self.statistics.copy_(statistics_of(model))

    @classmethod
    def of(cls, recipe: Counting, data: Path, initial: Path | None = None, workers: int = 0) -> "CountingTask":
        """With the photos of a folder, all annotations checked. initial: weights of a classifier to start from."""
        task = cls(recipe, *read_crowds(data), workers)
        if initial is not None:
            load_classifier(task.model, initial)
        return task

    @classmethod
    def for_evaluation(cls, recipe: Counting, data: Path) -> "CountingTask":
        """With the test photos alone."""
        return cls(recipe, None, read_test_crowds(data))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, densities = batch
        return F.mse_loss(self.model(images) / self.model.unit, densities / self.model.unit)

    def test_sums(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        images, counts = batch
        error = tested_in_tiles(self.model, images).cpu().double().sum((1, 2, 3)) - counts.cpu()
        return {"MAE": error.abs().sum(), "root MSE": error.square().sum()}

    def scores(self, means: dict[str, float]) -> dict[str, float]:
        return {"MAE": means["MAE"], "root MSE": math.sqrt(means["root MSE"])}

    def train_loader(self, rank: int, world: int) -> CrowdLoader:
        train = self.crowds[0]
        assert train is not None
        batches = TrainBatches(len(train), self.recipe.batch_size, self.recipe.seed, rank, world)
        return self._loader(train, batches)

    def test_loader(self, rank: int, world: int) -> CrowdLoader:
        return self._loader(self.crowds[1], TestBatches(len(self.crowds[1]), 1, rank, world))

    def _loader(self, crowds: list[Crowd], batches: TrainBatches | TestBatches) -> CrowdLoader:
        statistics, recipe = statistics_of(self.model), self.recipe
        return CrowdLoader(crowds, batches, statistics, recipe.crop, recipe.sigma, self.model.cell, self.workers)


def statistics_of(model: nn.Module) -> Tensor:
    """Mean and standard deviation, 0–255, by which a counter's inputs are scaled: to ±1, or as ImageNet's. (2, 3)"""
    return torch.full((2, 3), 127.5) if isinstance(model, LiteCounter) else IMAGENET_STATISTICS


def load_classifier(model: CrowdCounter | LiteCounter, path: Path) -> None:
    """Start from the weights of a trained classifier, in a file."""
    state, _ = read_weights(path)
    try:
        model.load_classifier({name.removeprefix("model."): t for name, t in state.items()})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
