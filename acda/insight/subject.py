"""The network that is inspected (weights, a fresh network by name, or a fresh layer), and a photo for it."""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from acda.insight.capture import Captured, capture
from acda.layers import AdaptiveConv2d
from acda.models import MODELS, create_model
from acda.photos.classify import PhotoClassifier
from acda.photos.files import resized
from acda.photos.ready import ready
from acda.photos.trained import Trained
from acda.photos.weights import IMAGENET_STATISTICS, load
from acda.support.devices import device_named

FRESH = "fresh layer"
# Larger photos are reduced: a map of coefficients has a hundred numbers a pixel.
LARGEST = 1024


@dataclass(frozen=True)
class Look:
    """A photo as the model saw it, (1, 3, H, W) of uint8, and what its layers did."""

    photo: Tensor
    captured: Captured


def find_subject(name: str, device: str = "cpu") -> Trained:
    """By the name of weights or of a fresh model, or by a file of weights. device: as in device_named"""
    where = device_named(device)
    return _found(name).to(where)


def _found(name: str) -> Trained:
    if name == FRESH:
        torch.manual_seed(0)
        return Trained(nn.Sequential(AdaptiveConv2d(3, 8, 7, padding=3)), IMAGENET_STATISTICS, {})
    if name in MODELS and not Path(name).exists():
        torch.manual_seed(0)
        return ready(create_model(name), IMAGENET_STATISTICS, {"model": name})
    return load(name)


def look_inside(subject: Trained, pixels: Tensor) -> Look:
    """Run the network on a photo, at the size that it takes."""
    pixels = fitted(subject, pixels)
    return Look(pixels, capture(subject.model, subject.normalised(pixels)))


def fitted(subject: Trained, pixels: Tensor) -> Tensor:
    """A photo at the size at which the network looks at it."""
    if isinstance(subject, PhotoClassifier):
        pixels = subject.fitted(pixels)
    height, width = pixels.shape[2:]
    if max(height, width) > LARGEST:
        share = LARGEST / max(height, width)
        return resized(pixels, max(1, round(height * share)), max(1, round(width * share)))
    return pixels
