"""Registers the Ad-ResNets with timm when imported: `timm.create_model("ad_resnet_s", num_classes=10)`."""

from collections.abc import Callable
from typing import Any

from acda.extras import need
from acda.models.ad_resnet import AD_RESNETS, AdResNet

_registry, _builder = need("timm.models._registry", "timm"), need("timm.models._builder", "timm")
_data = need("timm.data", "timm")


def _config() -> dict[str, Any]:
    """What timm asks of a network: there are no weights to download."""
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
    }


def _entrypoint(name: str) -> Callable[..., Any]:
    def create(pretrained: bool = False, **options: Any) -> Any:
        return _builder.build_model_with_cfg(AD_RESNETS[name], name, pretrained, **options)

    create.__name__ = create.__qualname__ = name
    create.__module__ = __name__
    create.__doc__ = f"acda's {name}; options as {AdResNet.__name__}'s."
    return create


# timm reads a module's entry points and configurations from its namespace.
default_cfgs = _registry.generate_default_cfgs({f"{name}.untrained": _config() for name in AD_RESNETS})
__all__: list[str] = []  # register_model fills it
for _name in AD_RESNETS:
    globals()[_name] = _registry.register_model(_entrypoint(_name))
