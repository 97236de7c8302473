"""Registers the classifiers with timm when imported: `timm.create_model("ad_resnet_s", num_classes=10)`.

Weights that acda finds by name are pretrained configurations, such as `lenet_acda.cifar10`: `pretrained=True` reads
their file, and nothing is downloaded.
"""

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import Tensor

from acda.layers import fx_leaf_modules
from acda.models import CLASSIFIERS
from acda.models.lenet import LENETS
from acda.photos.weight_folders import named_weights
from acda.support.extras import need

_registry, _builder = need("timm.models._registry", "timm"), need("timm.models._builder", "timm")
_data, _layers = need("timm.data", "timm"), need("timm.layers", "timm")
# Their control flow depends on shapes: timm's tracer takes them as one piece.
for _kind in fx_leaf_modules:
    _layers.register_notrace_module(_kind)


def _config(name: str) -> dict[str, Any]:
    """What timm asks of a network: there are no weights to download."""
    small = {"num_classes": 10, "input_size": (3, 32, 32), "pool_size": (5, 5), "fixed_input_size": True}
    # The state dict of an adaptive layer has no `weight`, which timm would adapt to other channels.
    small["first_conv"] = None if name == "lenet_acda" else "features.0"
    return {
        "url": "",
        "num_classes": 1000,
        "input_size": (3, 224, 224),
        "pool_size": (7, 7),
        "crop_pct": 0.875,
        "interpolation": "bilinear",
        "mean": _data.IMAGENET_DEFAULT_MEAN,
        "std": _data.IMAGENET_DEFAULT_STD,
        "first_conv": "conv1",
        "classifier": "fc",
        "license": "apache-2.0",
        **(small if name in LENETS else {}),
    }


def _trained() -> dict[str, dict[str, Any]]:
    """Configurations of the trained weights found, by timm's names: lenet_acda_cifar10 is lenet_acda.cifar10."""
    found: dict[str, dict[str, Any]] = {}
    for name, path in named_weights().items():
        with suppress(Exception):  # a file of something else in the user's folder is no reason to fail
            model, own = _trained_config(path)
            found[f"{model}.{name.removeprefix(model).strip('_') or 'trained'}"] = own
    return found


def _trained_config(path: Path) -> tuple[str, dict[str, Any]]:
    """The network of a file of weights, and its configuration; KeyError where it is not one of the classifiers."""
    with need("safetensors", "timm").safe_open(path, "pt") as file:
        facts, (mean, deviation) = file.metadata(), file.get_tensor("statistics").float() / 255
    model, classes = facts["model"], json.loads(facts["classes"])
    if json.loads(facts.get("options", "{}")):
        raise KeyError("options, which timm would have to be told")
    return model, {
        **_config({name: name for name in CLASSIFIERS}[model]),
        "file": str(path),
        "num_classes": len(classes),
        "label_names": tuple(classes),
        "mean": tuple(mean.tolist()),
        "std": tuple(deviation.tolist()),
        "license": "other",
    }


def _network_alone(state: dict[str, Tensor], model: Any) -> dict[str, Tensor]:
    """The tensors of the network in a file of weights, in which they are called model.…"""
    return {name.removeprefix("model."): t for name, t in state.items() if name.startswith("model.")}


def _entrypoint(name: str) -> Callable[..., Any]:
    def create(pretrained: bool = False, **options: Any) -> Any:
        if options.get("features_only") and name in LENETS:
            raise ValueError(f"{name} has no pyramid of features; the Ad-ResNets have.")
        filtered = ("img_size",) if name in LENETS else ()
        return _builder.build_model_with_cfg(
            CLASSIFIERS[name],
            name,
            pretrained,
            kwargs_filter=filtered,
            pretrained_filter_fn=_network_alone,
            **options,
        )

    create.__name__ = create.__qualname__ = name
    create.__module__ = __name__
    create.__doc__ = f"acda's {name}."
    return create


# timm reads a module's entry points and configurations from its namespace.
default_cfgs = _registry.generate_default_cfgs(
    _trained() | {f"{name}.untrained": _config(name) for name in CLASSIFIERS}
)
__all__: list[str] = []  # register_model fills it
for _name in CLASSIFIERS:
    globals()[_name] = _registry.register_model(_entrypoint(_name))
