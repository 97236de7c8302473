"""The paper's networks, and those that it compares them with, by name."""

import difflib
from collections.abc import Callable
from typing import Any

from torch import nn

from acda.models.ad_resnet import AD_RESNETS, AdResNet
from acda.models.blocks import BasicBlock, DynamicBottleneck
from acda.models.lenet import LENETS, LeNet

MODELS: dict[str, Callable[..., nn.Module]] = {**LENETS, **AD_RESNETS}


def create_model(name: str, **options: Any) -> nn.Module:
    """A fresh network by its name; options are those of its class, above all num_classes and conv.

    >>> import torch
    >>> create_model("lenet_acda", num_classes=100)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 100])
    """
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, n=3, cutoff=0.5)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(MODELS)}."
        raise ValueError(f"there is no model {name!r}. {hint}")
    return MODELS[name](**options)


__all__ = ["MODELS", "AdResNet", "BasicBlock", "DynamicBottleneck", "LeNet", "create_model"]
