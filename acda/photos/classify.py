"""Photos classified by a trained network."""

import json
from typing import Any

import torch
from torch import Tensor

from acda.models import LeNet
from acda.models.lenet import SIZE
from acda.photos.files import resized
from acda.photos.given import photos_of
from acda.photos.trained import Trained


class PhotoClassifier(Trained):
    """A network that classifies photos, such as `acda.load("lenet_acda_cifar10")`.

    Call it with what PhotoRestorer takes: a PIL image, an array or a tensor. An image or an array gives the names of
    the classes with their probabilities, the most probable first; a tensor gives probabilities (B, classes), in the
    order of `classes`. For logits, use `model` with `normalised`.

    >>> from acda import create_model
    >>> classifier = PhotoClassifier(create_model("lenet"), torch.tensor([[120.0] * 3, [60.0] * 3]), {})
    >>> classifier(torch.rand(2, 3, 50, 70)).shape
    torch.Size([2, 10])
    """

    def forward(self, photo: Any) -> Any:
        probabilities = torch.cat([self._probabilities(each.pixels) for each in photos_of(photo)])
        if isinstance(photo, Tensor):
            return probabilities.to(photo.device)
        best_first = probabilities[0].sort(descending=True, stable=True)
        names = self.classes or tuple(str(index) for index in range(len(probabilities[0])))
        return {names[int(index)]: float(value) for value, index in zip(*best_first, strict=True)}

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the network's outputs; empty if the weights do not name them."""
        return tuple(json.loads(self.facts.get("classes", "[]")))

    def fitted(self, pixels: Tensor) -> Tensor:
        """A photo at the size that the network takes: LeNet has only one."""
        return resized(pixels, SIZE, SIZE) if isinstance(self.model, LeNet) else pixels

    @torch.no_grad()
    def _probabilities(self, pixels: Tensor) -> Tensor:
        logits: Tensor = self.model(self.normalised(self.fitted(pixels)))
        return logits.float().softmax(1)
