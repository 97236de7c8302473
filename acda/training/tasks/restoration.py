"""Restore photos: mean square error, PSNR or VDNet's objective on crops; PSNR and SSIM on whole photos."""

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.models import VariationalDenoiser, create_model
from acda.photos.image_files import image_size
from acda.photos.weights import fill, read_weights
from acda.training.data.batches import TestBatches, TrainBatches
from acda.training.data.degradations import DEGRADATIONS, MARGIN, Degradation
from acda.training.data.pair_crops import UNIT, PairLoader, Photos, Pixels
from acda.training.data.pairs import PhotoPair, read_blocks, read_clean, read_pairs
from acda.training.metrics import WINDOW as SSIM_WINDOW
from acda.training.metrics import luma, psnr, ssim
from acda.training.recipe import Restoration
from acda.training.tasks import elbo
from acda.training.tasks.task import Task, tested_in_tiles

# How much more than the errors of single pixels the error of a channel's mean counts, in the objective "psnr".
SHIFT_WEIGHT = 20
# Errors below this, 42 dB, count little there. Otherwise crops without noise, whose error can fall by many dB, teach
# the network to keep weak grain.
LITTLE = 6e-5


class RestorationTask(Task):
    """Lightning's view of a Restoration recipe. Metrics: PSNR (dB) and SSIM, on Y or on RGB as the recipe says."""

    recipe: Restoration
    metrics = ("PSNR", "SSIM")
    monitored = "PSNR"
    best = "max"

    def __init__(self, recipe: Restoration, train: Photos | None, test: Photos | Pixels, workers: int = 0) -> None:
        model = create_model(recipe.model, **recipe.options)
        if recipe.objective == "variational" and not isinstance(model, VariationalDenoiser):
            raise ValueError(f"{recipe.model} predicts no variances, which the variational objective needs.")
        super().__init__(recipe, model)
        self.photos, self.workers = (train, test), workers
        self.counts = len(train or ()), len(test)
        self.statistics.copy_(UNIT)
        self.facts = {"scale": str(recipe.scale)} if recipe.scale else {}

    @classmethod
    def of(cls, recipe: Restoration, data: Path, initial: Path | None = None, workers: int = 0) -> "RestorationTask":
        """With the photos of a folder, whose sizes are checked. initial: weights of the same network to start from."""
        train, test = read_photos(recipe, data)
        for pair in train.pairs:
            least = recipe.crop + (MARGIN if recipe.degradation else 0)
            if min(image_size(pair.clean)) < least:
                raise ValueError(f"{pair.clean} is smaller than the crops, for which {least}×{least} is needed.")
        for pair in test.pairs if isinstance(test, Photos) else ():
            if min(image_size(pair.clean)) < SSIM_WINDOW:
                raise ValueError(f"{pair.clean} is too small to be measured: {SSIM_WINDOW}×{SSIM_WINDOW} is needed.")
        task = cls(recipe, train, test, workers)
        if initial is not None:
            state = read_weights(initial)[0]
            own = {name.removeprefix("model."): t for name, t in state.items() if name.startswith("model.")}
            fill(task.model, own, initial, recipe.model)
        return task

    @classmethod
    def for_evaluation(cls, recipe: Restoration, data: Path) -> "RestorationTask":
        """With the test photos, which are found by reading the list of all photos."""
        return cls(recipe, None, read_photos(recipe, data)[1])

    def loss(self, batch: tuple[Tensor, Tensor]) -> Tensor:
        degraded, clean = batch
        if self.recipe.objective == "variational":
            assert isinstance(self.model, VariationalDenoiser)
            return elbo.loss(self.model.posterior(degraded), degraded, clean)
        if self.recipe.objective == "relative_mse":
            return relative_mse(self.model(degraded), degraded, clean)
        if self.recipe.objective == "psnr":
            return negative_psnr(self.model(degraded), clean)
        return F.mse_loss(self.model(degraded), clean)

    def test_sums(self, batch: tuple[Tensor, Tensor]) -> dict[str, Tensor]:
        degraded, clean = batch
        # Rounded to 0–255, as in a file.
        restored = (tested_in_tiles(self.model, degraded).clamp(0, 1) * 255).round() / 255
        if self.recipe.channels == "y":
            restored, clean = luma(restored), luma(clean)
        return {"PSNR": psnr(restored, clean).sum(), "SSIM": ssim(restored, clean).sum()}

    @property
    def _degradation(self) -> Degradation | None:
        return DEGRADATIONS[self.recipe.degradation] if self.recipe.degradation else None

    def train_loader(self, rank: int, world: int) -> PairLoader:
        train = self.photos[0]
        assert train is not None
        batches = TrainBatches(self.recipe.crops, self.recipe.batch_size, self.recipe.seed, rank, world)
        return PairLoader(train, batches, self.recipe.crop, self._degradation, self.workers)

    def test_loader(self, rank: int, world: int) -> PairLoader:
        test = self.photos[1]
        batches = TestBatches(len(test), 1, rank, world)
        return PairLoader(test, batches, self.recipe.crop, self._degradation, self.workers)


def relative_mse(restored: Tensor, degraded: Tensor, clean: Tensor) -> Tensor:
    """The square error of each photo relative to that of its input, averaged over the photos.

    Where noise differs from photo to photo, the plain error is mostly that of the worst few. Here all photos count
    equally, except those whose error is below one level of 0–255.
    """
    left, there_was = ((y - clean).square().mean(dim=(1, 2, 3)) for y in (restored, degraded))
    return (left / (there_was + 1 / 255**2)).mean()


def negative_psnr(restored: Tensor, clean: Tensor) -> Tensor:
    """Minus the mean of the photos' PSNR in dB, each at most 42 dB: a crop without noise is not endlessly improved.

    A shift of a whole channel counts SHIFT_WEIGHT times more than as much error in single pixels. Noise that was
    clipped at black or white shifts colours, which the eye sees and the mean square error hardly does.
    """
    difference = restored - clean
    error = difference.square().mean(dim=(1, 2, 3))
    shift = difference.mean(dim=(2, 3)).square().mean(dim=1)
    return 10 * torch.log10(error + SHIFT_WEIGHT * shift + LITTLE).mean()


def read_photos(recipe: Restoration, data: Path) -> tuple[Photos, Photos | Pixels]:
    """For training and for testing: pairs, or clean photos that are degraded as they are read.

    Where SIDD's validation blocks are beside its Data they are what is tested, and all its scenes are trained on.
    """
    if recipe.degradation:
        train, test = ([PhotoPair(path, path, path.stem) for path in part] for part in read_clean(data))
    else:
        train, test = read_pairs(data, recipe.scale)
    blocks = read_blocks(data) if (data / "Data").is_dir() else None
    return (Photos(train), Photos(test)) if blocks is None else (Photos(train + test), blocks)
