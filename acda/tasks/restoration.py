"""Restoring photos: mean square error on crops, PSNR and SSIM on whole photos."""

import torch.nn.functional as F
from torch import Tensor

from acda.data.batches import TestBatches, TrainBatches
from acda.data.image_files import image_size
from acda.data.pair_crops import UNIT, PairLoader, Photos
from acda.data.pairs import PhotoPair, read_pairs
from acda.metrics import luma, psnr, ssim
from acda.models import create_model
from acda.recipe import Restoration
from acda.tasks.task import Task


class RestorationTask(Task):
    """Lightning's view of a Restoration recipe. Metrics: PSNR (dB) and SSIM, on Y or on RGB as the recipe says."""

    recipe: Restoration
    metrics = ("PSNR", "SSIM")
    monitored = "PSNR"
    best = "max"

    def __init__(
        self, recipe: Restoration, train: list[PhotoPair] | None, test: list[PhotoPair], workers: int = 0
    ) -> None:
        super().__init__(recipe, create_model(recipe.model))
        self.photos, self.workers = (None if train is None else Photos(train), Photos(test)), workers
        self.statistics.copy_(UNIT)
        self.facts = {"scale": str(recipe.scale)} if recipe.scale else {}

    @classmethod
    def of(cls, recipe: Restoration, workers: int = 0) -> "RestorationTask":
        """With the data of the recipe, checked whole."""
        train, test = read_pairs(recipe.data, recipe.scale)
        for pair in train:
            if min(image_size(pair.clean)) < recipe.crop:
                raise ValueError(f"{pair.clean} is smaller than the crops of {recipe.crop}×{recipe.crop}.")
        return cls(recipe, train, test, workers)

    @classmethod
    def for_evaluation(cls, recipe: Restoration, facts: dict[str, str]) -> "RestorationTask":
        """With the test photos alone."""
        return cls(recipe, None, read_pairs(recipe.data, recipe.scale)[1])

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        degraded, clean = batch
        return F.mse_loss(self.model(degraded), clean)

    def test_sums(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        degraded, clean = batch
        # As a file would keep it.
        restored = (self.model(degraded).clamp(0, 1) * 255).round() / 255
        if self.recipe.channels == "y":
            restored, clean = luma(restored), luma(clean)
        return {"PSNR": psnr(restored, clean).sum(), "SSIM": ssim(restored, clean).sum()}

    def train_loader(self, rank: int, world: int) -> PairLoader:
        train = self.photos[0]
        assert train is not None
        batches = TrainBatches(self.recipe.crops, self.recipe.batch_size, self.recipe.seed, rank, world)
        return PairLoader(train, batches, self.recipe.crop, self.workers)

    def test_loader(self, rank: int, world: int) -> PairLoader:
        return PairLoader(
            self.photos[1], TestBatches(len(self.photos[1]), 1, rank, world), self.recipe.crop, self.workers
        )
