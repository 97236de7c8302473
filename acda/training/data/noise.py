"""Noise for clean photos, as cameras make it: stronger where there is more light, and different from place to place."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Sides of the blocks within which the noise has one strength.
SMALLEST, LARGEST = 8, 48


def noisy(clean: Tensor, strength: float, generator: torch.Generator) -> Tensor:
    """Gaussian noise with a variance of its own in every block, part of it in proportion to the light.

    clean: (3, H, W), 0 to 1    strength: the largest standard deviation
    returns: (3, H, W), not clamped

    >>> clean = torch.full((3, 64, 64), 0.5)
    >>> noise = noisy(clean, 0.1, torch.Generator().manual_seed(0)) - clean
    >>> 0.01 < float(noise.std()) < 0.1
    True
    """
    height, width = clean.shape[1:]
    side = int(torch.randint(SMALLEST, LARGEST + 1, (), generator=generator))
    blocks = torch.rand(2, -(-height // side), -(-width // side), generator=generator)
    constant, in_proportion = F.interpolate(blocks[None], scale_factor=side, mode="nearest")[0, :, :height, :width]
    # The two shares of the largest variance: read noise, and the noise of light.
    variance = strength**2 * (constant**2 * 0.5 + in_proportion**2 * 0.5 * clean.clamp(0, 1))
    return clean + variance.sqrt() * torch.randn(clean.shape, generator=generator)
