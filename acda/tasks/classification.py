"""Image classification: cross-entropy, and the share of images that the network gets wrong."""

import json
from dataclasses import dataclass
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from acda.data.batches import TestBatches, TrainBatches
from acda.data.classes import ImageSet, MemoryLoader, channel_statistics, read_image_sets, read_test_set
from acda.models import create_model
from acda.recipe import Recipe
from acda.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class Classification(Recipe):
    """Classify images that fit into memory, as CIFAR's do."""

    margin: int = 4
    """pixels by which training images are shifted at most, in each direction; 0 also leaves them unmirrored"""
    label_smoothing: float = 0.0
    """part of the target that is spread over all classes"""


class ClassificationTask(Task):
    """Lightning's view of a Classification recipe. Metrics: error (top-1, %), top-5 error (%), loss."""

    recipe: Classification
    metrics = ("loss", "error", "top-5 error")
    monitored = "error"

    def __init__(self, recipe: Classification, train: ImageSet | None, test: ImageSet) -> None:
        super().__init__(recipe, create_model(recipe.model, num_classes=len(test.classes)))
        self.sets = (train, test)
        self.facts = {"classes": json.dumps(test.classes)}
        if train is not None:
            self.statistics.copy_(channel_statistics(train.images))

    @classmethod
    def of(cls, recipe: Classification) -> "ClassificationTask":
        """With the data of the recipe, read and checked whole."""
        return cls(recipe, *read_image_sets(recipe.data))

    @classmethod
    def for_evaluation(cls, recipe: Classification, facts: dict[str, str]) -> "ClassificationTask":
        """With the test images alone; facts are those that were saved with the weights."""
        return cls(recipe, None, read_test_set(recipe.data, tuple(json.loads(facts["classes"]))))

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

    def train_loader(self, rank: int, world: int) -> Any:
        train = self.sets[0]
        assert train is not None
        batches = TrainBatches(len(train.labels), self.recipe.batch_size, self.recipe.seed, rank, world)
        return MemoryLoader(train, batches, self.statistics, self.recipe.margin)

    def test_loader(self, rank: int, world: int) -> Any:
        test = self.sets[1]
        return MemoryLoader(test, TestBatches(len(test.labels), 500, rank, world), self.statistics)
