"""White noise of a known strength, and networks with a known answer."""

import pytest
import torch
from torch import nn

from paper import noises


class Grey(nn.Module):
    """The clean picture with a small offset, so that its mean with the input is never halfway between levels."""

    def forward(self, x):
        return torch.full_like(x, 128.2 / 255)


def psnrs(model, noise):
    pictures = [torch.full((1, 3, 128, 128), 128 / 255)] * 2
    return {row["model"]: row["value"] for row in noises.rows_of(model, pictures, noise)}


def test_noise_has_its_standard_deviation_and_strength_mixes_the_result_with_the_input():
    assert psnrs(nn.Identity(), 0) == {"restorer_0_5": float("inf"), "restorer": float("inf")}
    found = psnrs(Grey(), 15)
    assert found["input"] == pytest.approx(24.6, abs=0.05)  # 20 log₁₀(255 / 15), and rounding to uint8
    assert found["restorer_0_5"] == pytest.approx(found["input"] + 6.02, abs=0.05)
    assert found["restorer"] == float("inf")
