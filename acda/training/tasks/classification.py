"""Image classification: cross-entropy, and the percentage of wrong images."""

import json
from pathlib import Path

import torch.nn.functional as F
from torch import Tensor

from acda.models import create_model
from acda.photos.weights import IMAGENET_STATISTICS
from acda.training.data.batches import TestBatches, TrainBatches
from acda.training.data.classes import (
    FileSet,
    ImageSet,
    channel_statistics,
    fetch_cifar,
    list_image_sets,
    list_test_set,
    read_image_sets,
    read_test_set,
)
from acda.training.data.loading import EpochLoader, FileLoader, MemoryLoader
from acda.training.recipe import Classification
from acda.training.tasks.task import Task


class ClassificationTask(Task):
    """Lightning's view of a Classification recipe. Metrics: error (top-1, %), top-5 error (%), loss."""

    recipe: Classification
    metrics = ("loss", "error", "top-5 error")
    monitored = "error"

    def __init__(
        self, recipe: Classification, train: ImageSet | FileSet | None, test: ImageSet | FileSet, workers: int = 0
    ) -> None:
        super().__init__(recipe, create_model(recipe.model, num_classes=len(test.classes), **recipe.options))
        self.sets, self.workers = (train, test), workers
        self.counts = len(train.labels) if train else 0, len(test.labels)
        self.facts = {"classes": json.dumps(test.classes)}
        self.statistics.copy_(channel_statistics(train.images) if isinstance(train, ImageSet) else IMAGENET_STATISTICS)

    @classmethod
    def of(
        cls, recipe: Classification, data: Path, workers: int = 0, download: bool = False, check: bool = True
    ) -> "ClassificationTask":
        """With the images of a folder, all of them checked."""
        if download:
            if recipe.dataset is None:
                raise ValueError("--download fetches CIFAR; this recipe's data have to be in --data already.")
            fetch_cifar(data, recipe.dataset)
        if recipe.image_size is None:
            return cls(recipe, *read_image_sets(data, recipe.dataset))
        return cls(recipe, *list_image_sets(data, check), workers)

    @classmethod
    def for_evaluation(cls, recipe: Classification, data: Path, facts: dict[str, str]) -> "ClassificationTask":
        """With the test images alone; facts are those that were saved with the weights."""
        if "classes" not in facts:
            raise ValueError("the weights have no classes: they were not written by `acda train`.")
        classes = tuple(json.loads(facts["classes"]))
        if recipe.image_size is None:
            return cls(recipe, None, read_test_set(data, classes, recipe.dataset))
        return cls(recipe, None, list_test_set(data, classes))

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        images, labels = batch
        return F.cross_entropy(self.model(images), labels, label_smoothing=self.recipe.label_smoothing)

    def test_sums(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        images, labels = batch
        logits = self.model(images)
        ranked = logits.topk(min(5, logits.shape[1]), dim=1).indices == labels[:, None]
        return {
            "loss": F.cross_entropy(logits, labels, reduction="sum"),
            "error": 100 * (~ranked[:, 0]).sum(),
            "top-5 error": 100 * (~ranked.any(1)).sum(),
        }

    def train_loader(self, rank: int, world: int) -> EpochLoader:
        train = self.sets[0]
        assert train is not None
        return self._loader(
            train, TrainBatches(len(train.labels), self.recipe.batch_size, self.recipe.seed, rank, world)
        )

    def test_loader(self, rank: int, world: int) -> EpochLoader:
        test = self.sets[1]
        return self._loader(test, TestBatches(len(test.labels), 2 * self.recipe.batch_size, rank, world))

    def _loader(self, images: ImageSet | FileSet, batches: TrainBatches | TestBatches) -> EpochLoader:
        if isinstance(images, ImageSet):
            return MemoryLoader(images, batches, self.statistics.cpu(), self.recipe.margin)
        assert self.recipe.image_size is not None
        return FileLoader(images, batches, self.recipe.image_size, self.workers)
