"""A trained network with what is needed to use it: the base of those that restore, count and classify photos."""

import torch
from torch import Tensor, nn


class Trained(nn.Module):
    """A network ready for use, in evaluation mode. Subclasses are called with photos.

    model: the network itself
    statistics: (2, 3), mean and standard deviation of its training images by channel, 0–255
    facts: what the file of weights says about them
    card: the text of their model card with its header, or "" where there is none

    `to`, `half` and `state_dict` work as for any module. A photo may be on another device than the network: its parts
    are moved to the network, and the result is moved back.

    >>> trained = Trained(nn.Conv2d(3, 1, 3), torch.tensor([[0.0] * 3, [255.0] * 3]), {})
    >>> trained.normalised(torch.full((1, 3, 2, 2), 255, dtype=torch.uint8)).unique()
    tensor([1.])
    """

    statistics: Tensor

    def __init__(self, model: nn.Module, statistics: Tensor, facts: dict[str, str], card: str = "") -> None:
        super().__init__()
        self.model = model
        self.register_buffer("statistics", statistics)
        self.facts, self.card = facts, card
        self.eval()

    def normalised(self, pixels: Tensor) -> Tensor:
        """Photos as the network takes them, on its device and in its precision.

        pixels: (B, 3, H, W), uint8 or floating point from 0 to 1
        """
        mean, deviation = self.statistics.float()[:, :, None, None]
        values = pixels.to(mean.device).float()
        values = values * 255 if pixels.is_floating_point() else values
        return ((values - mean) / deviation).to(self.statistics.dtype)


def in_unit_range(pixels: Tensor) -> Tensor:
    """Pixels as floating point from 0 to 1: uint8 is divided by 255, floating point is returned unchanged."""
    return pixels if pixels.is_floating_point() else pixels.to(torch.float32) / 255
