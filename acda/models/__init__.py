"""The paper's networks and their baselines, by name."""

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

from torch import nn

from acda.models.ad_resnet import AD_RESNETS, AdResNet
from acda.models.blocks import BasicBlock, DynamicBottleneck
from acda.models.crowd_counter import CROWD_COUNTERS, CrowdCounter
from acda.models.lenet import LENETS, LeNet
from acda.models.lite_counter import LITE_COUNTERS, LiteCounter
from acda.models.options import Option, typed_options
from acda.models.photo_unet import PHOTO_UNETS, PhotoUNet
from acda.models.restorer import RESTORERS, Restorer
from acda.models.variational import VARIATIONAL, VariationalDenoiser
from acda.support.names import unknown

# The classes of networks that count.
COUNTERS = (CrowdCounter, LiteCounter)
CLASSIFIERS: dict[str, Callable[..., nn.Module]] = {**LENETS, **AD_RESNETS}
MODELS: dict[str, Callable[..., nn.Module]] = {
    **CLASSIFIERS,
    **CROWD_COUNTERS,
    **LITE_COUNTERS,
    **RESTORERS,
    **PHOTO_UNETS,
    **VARIATIONAL,
}


def create_model(name: str, **options: Any) -> nn.Module:
    """A fresh network by its name; options are the arguments of its class, above all num_classes and conv.

    >>> import torch
    >>> create_model("lenet_acda", num_classes=100)(torch.randn(2, 3, 32, 32)).shape
    torch.Size([2, 100])
    """
    return _maker(name)(**options)


def checked_options(name: str, options: Mapping[str, Any]) -> dict[str, Option]:
    """Options for create_model(name) that come from a file or a command line, with the types that the network needs.

    Unknown names, other types and numbers with which the network would fill the memory are refused.

    >>> checked_options("restorer", {"num_atoms": 9, "blind_to_smooth": 1})
    {'num_atoms': 9, 'blind_to_smooth': True}
    """
    return typed_options(name, _maker(name), options)


def _maker(name: str) -> Callable[..., nn.Module]:
    if name not in MODELS:
        raise unknown("model", name, MODELS)
    return MODELS[name]


def list_models(pattern: str = "*") -> list[str]:
    """The names that create_model knows, sorted; those that match a pattern with * and ?, where one is given.

    >>> list_models("lenet*")
    ['lenet', 'lenet_acda', 'lenet_wide']
    """
    return sorted(name for name in MODELS if fnmatchcase(name, pattern))


__all__ = [
    "CLASSIFIERS",
    "COUNTERS",
    "MODELS",
    "AdResNet",
    "BasicBlock",
    "CrowdCounter",
    "DynamicBottleneck",
    "LeNet",
    "LiteCounter",
    "PhotoUNet",
    "Restorer",
    "VariationalDenoiser",
    "checked_options",
    "create_model",
    "list_models",
]
