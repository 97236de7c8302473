"""What restorers are scored on: the channels in the recipe, and SIDD's blocks where they exist."""

import numpy as np
import pytest
import scipy.io
import torch
from skimage.metrics import structural_similarity
from torch import Tensor, nn

from acda.training.data.pair_crops import Photos
from acda.training.recipe import Restoration
from acda.training.tasks.restoration import (
    LITTLE,
    SHIFT_WEIGHT,
    RestorationTask,
    negative_psnr,
    read_photos,
    relative_mse,
)
from tests.training.data.test_pairs import own, polyu, sidd


@pytest.mark.parametrize("channels", ["y", "rgb"])
def test_scores_are_of_the_recipes_channels(tmp_path, channels):
    """Against the definition, written out: BT.601 in 0–255, and the photo rounded as in a file."""
    recipe = Restoration(model="restorer_conv_small", epochs=1, crop=8, channels=channels)
    task = RestorationTask.of(recipe, own(tmp_path))
    task.model = Brighter().eval()
    random = np.random.default_rng(0)
    clean = random.integers(0, 256, (3, 20, 24)) / 255
    degraded = np.clip(clean + random.normal(0, 0.1, clean.shape), 0, 1)
    found = task.test_sums(tuple(torch.from_numpy(x).float()[None] for x in (degraded, clean)))
    restored = np.round(255 * np.clip(degraded + Brighter.by, 0, 1)) / 255
    if channels == "y":
        restored, clean = ((np.tensordot([65.481, 128.553, 24.966], x, 1)[None] + 16) / 255 for x in (restored, clean))
    truth = -10 * np.log10(((restored - clean) ** 2).mean())
    assert float(found["PSNR"]) == pytest.approx(truth, abs=1e-3)
    whole_windows = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False}
    map_of = structural_similarity(restored, clean, data_range=1, channel_axis=0, full=True, **whole_windows)[1]
    assert float(found["SSIM"]) == pytest.approx(map_of[:, 5:-5, 5:-5].mean(), abs=1e-5)


class Brighter(nn.Module):
    """A restorer whose output has values between those of uint8, and outside their range."""

    cell = stride = 1
    by = 0.3 / 255 + 0.02

    def forward(self, x: Tensor) -> Tensor:
        return x + self.by


def test_the_relative_error_counts_photos_alike():
    """Half of the noise left is a quarter of the error, for any noise; without noise it is relative to one level."""
    clean = torch.rand(2, 3, 8, 8)
    noise = torch.randn(2, 3, 8, 8) * torch.tensor([0.02, 0.4])[:, None, None, None]
    recipe = Restoration(model="dncnn", epochs=1, options={"depth": 2}, objective="relative_mse")
    task = RestorationTask(recipe, None, np.zeros((1, 2, 16, 16, 3), np.uint8))
    task.model = HalfWayTo(clean)
    found = task.loss((clean + noise, clean))
    parts = [0.25 * v / (v + 1 / 255**2) for v in noise.square().mean((1, 2, 3)).tolist()]
    assert min(parts) > 0.23
    assert float(found) == pytest.approx(sum(parts) / 2, rel=1e-4)
    assert float(relative_mse(clean + 2 / 255, clean, clean)) == pytest.approx(4, rel=1e-3)


class HalfWayTo(nn.Module):
    """A denoiser that knows the clean photos and removes half of the noise."""

    def __init__(self, clean: Tensor) -> None:
        super().__init__()
        self.clean = clean

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.clean) / 2


def test_with_sidds_blocks_all_scenes_are_trained_on(tmp_path):
    recipe, data = Restoration(model="restorer", epochs=1), sidd(tmp_path)
    train, test = read_photos(recipe, data)
    assert isinstance(test, Photos)
    assert (len(train), len(test)) == (3, 2)
    for name in ("ValidationNoisyBlocksSrgb", "ValidationGtBlocksSrgb"):
        scipy.io.savemat(tmp_path / f"{name}.mat", {name: np.zeros((2, 3, 16, 16, 3), np.uint8)})
    train, test = read_photos(recipe, data)
    assert (len(train), len(test)) == (5, 6)


def test_but_not_what_other_sets_hold_out(tmp_path):
    """Blocks that are not beside SIDD's Data folder are not used."""
    sidd(tmp_path / "sidd")
    polyu(tmp_path / "polyu")
    for name in ("ValidationNoisyBlocksSrgb", "ValidationGtBlocksSrgb"):
        scipy.io.savemat(tmp_path / f"{name}.mat", {name: np.zeros((2, 3, 16, 16, 3), np.uint8)})
    train, test = read_photos(Restoration(model="restorer", epochs=1), tmp_path)
    assert isinstance(test, Photos)
    assert {pair.scene for pair in train.pairs}.isdisjoint({pair.scene for pair in test.pairs})


def test_a_shift_of_a_channel_counts_more_than_errors_of_single_pixels():
    clean = torch.full((1, 3, 8, 8), 0.5)
    sign = torch.ones(8, 8)
    sign[::2] = -1  # as many pixels too dark as too bright
    error = 0.1**2
    assert float(negative_psnr(clean + 0.1 * sign, clean)) == pytest.approx(10 * np.log10(error + LITTLE), abs=1e-4)
    shifted = 10 * np.log10((1 + SHIFT_WEIGHT) * error + LITTLE)
    assert float(negative_psnr(clean + 0.1, clean)) == pytest.approx(shifted, abs=1e-4)
