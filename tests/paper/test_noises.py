"""White noise of a known strength, and networks whose answer is known."""

import pytest
import torch
from torch import nn

from tests.paper.scripts import script

noises = script("noises")


class Grey(nn.Module):
    """All that it knows is the clean picture; not quite, so that nothing half way is half way between two steps."""

    def forward(self, x):
        return torch.full_like(x, 128.2 / 255)


def psnrs(model, noise):
    pictures = [torch.full((1, 3, 128, 128), 128 / 255)] * 2
    return {row["name"]: row["value"] for row in noises.rows_of(model, pictures, noise)}


def test_noise_as_strong_as_it_says_and_as_much_of_the_network_as_is_taken():
    half_of_it = "ACDA at a strength of 0.5"
    assert psnrs(nn.Identity(), 0) == {half_of_it: float("inf"), "ACDA": float("inf")}
    found = psnrs(Grey(), 15)
    assert found["noisy"] == pytest.approx(24.6, abs=0.05)  # 20 log₁₀(255 / 15), and rounding to eight bits
    assert found[half_of_it] == pytest.approx(found["noisy"] + 6.02, abs=0.05)
    assert found["ACDA"] == float("inf")
