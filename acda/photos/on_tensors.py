"""Trained networks for other programs: one tensor from 0 to 1 in, one tensor out."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.photos.classify import PhotoClassifier
from acda.photos.restore import PhotoRestorer
from acda.photos.trained import Trained


class OnTensors(Trained):
    """The network of a Trained with its normalisation, as a graph of plain operations.

    trained: what acda.load returns    scale: whole number by which photos are enlarged first, by bicubic interpolation
    x: (B, 3, H, W), from 0 to 1
    returns: for a restorer the photo (B, 3, scale·H, scale·W), from 0 to 1; for a counter the density map; for a
        classifier probabilities (B, classes)

    >>> from acda import create_model
    >>> dncnn = PhotoRestorer(create_model("dncnn", depth=3), torch.tensor([[0.0] * 3, [255.0] * 3]), {})
    >>> OnTensors(dncnn, scale=2)(torch.rand(1, 3, 20, 31)).shape
    torch.Size([1, 3, 40, 62])
    """

    def __init__(self, trained: Trained, scale: int = 1) -> None:
        super().__init__(trained.model, trained.statistics, trained.facts, trained.card)
        self.kind, self.scale = type(trained), scale

    def forward(self, x: Tensor) -> Any:
        x = enlarged(x, self.scale).clamp(0, 1) if self.scale > 1 else x
        y: Tensor = self.model(self.normalised(x))
        if self.kind is PhotoRestorer:
            return y.clamp(0, 1)
        return y.softmax(1) if self.kind is PhotoClassifier else y


def own_scale(trained: Trained) -> int:
    """The scale in a restorer's weights by which photos are enlarged first; 1 for all others."""
    scale = (trained.own_scale if isinstance(trained, PhotoRestorer) else None) or 1.0
    if scale != int(scale):
        raise ValueError(f"the weights enlarge by {scale:g}; a tensor is enlarged by whole numbers only. Give a scale.")
    return int(scale)


def enlarged(x: Tensor, scale: int) -> Tensor:
    """Bicubic interpolation as Pillow's, for whole numbers, as one convolution, which every runtime has.

    x: (B, C, H, W)    returns: (B, C, scale·H, scale·W)
    """
    B, C = x.shape[:2]
    along = _cubic(scale).to(x)
    filters = torch.einsum("py,qx->pqyx", along, along).flatten(0, 1)[:, None]
    # At the edges the weights of what is inside add up to 1, as in Pillow.
    inside = F.conv2d(torch.ones_like(x[:1, :1]), filters, padding=2)
    phases = F.conv2d(x.flatten(0, 1)[:, None], filters, padding=2) / inside
    return F.pixel_shuffle(phases, scale).squeeze(1).unflatten(0, (B, C))


def _cubic(scale: int) -> Tensor:
    """Weights of the five nearest pixels for each of the new ones within a pixel, (scale, 5); a = -0.5 as Pillow's."""
    centres = (torch.arange(scale, dtype=torch.float64) + 0.5) / scale - 0.5
    t = (torch.arange(-2, 3)[None] - centres[:, None]).abs()
    near = 1.5 * t**3 - 2.5 * t**2 + 1
    far = -0.5 * t**3 + 2.5 * t**2 - 4 * t + 2
    weights = torch.where(t < 1, near, torch.where(t < 2, far, 0.0))
    return weights / weights.sum(1, keepdim=True)
