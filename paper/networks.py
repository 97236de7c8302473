"""Tables 2, 3 and 6: parameters and multiply-adds, counted, of one layer and of the networks, timm's beside ours.

python -m paper.networks          # seconds: nothing is run, only counted
"""

from collections.abc import Iterator
from functools import partial

import timm
from torch import nn

from acda import AdaptiveConv2d, create_model
from acda.cost import count
from acda.models import DynamicBottleneck
from paper.results import Row, result, write

IMAGE = (1, 3, 224, 224)
OURS = ("ad_resnet_s", "ad_resnet_m", "ad_resnet_l")
# Networks of the paper's table, and what timm calls them.
TIMM = {
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "mobilenetv3_small": "mobilenetv3_small_100",
    "condconv_efficientnet": "tf_efficientnet_cc_b0_4e",
}


def main() -> None:
    for name, rows in (("layer", layer_rows()), ("networks", network_rows()), ("counters", counter_rows())):
        write(name, list(rows), budget="counted, nothing was run")


def layer_rows() -> Iterator[Row]:
    """Table 6: one layer of 256 channels on 100×100."""
    for side in (3, 5, 7):
        conv = count(nn.Conv2d(256, 256, side, padding=side // 2), (1, 256, 100, 100))
        whole = count(AdaptiveConv2d(256, 256, side, padding=side // 2), (1, 256, 100, 100))
        # Without bases there are no atoms to build, and the rest of the operator is the two convolutions.
        bare = count(AdaptiveConv2d(256, 256, side, padding=side // 2, bases=None), (1, 256, 100, 100))
        generator = bare.layers["generator"]
        figures = {
            "conv": (conv.multiply_adds, conv.parameters),
            "acda_conv_only": (
                bare.multiply_adds - generator.multiply_adds,
                bare.parameters - generator.parameters,
            ),
            "acda": (whole.multiply_adds, whole.parameters),
        }
        for model, values in figures.items():
            for metric, value in zip(("multiply_adds", "parameters"), values, strict=True):
                yield result("layer", f"{side}x{side}", model, metric, value / 1e6)


def network_rows() -> Iterator[Row]:
    """Table 2: our networks, the paper's baseline, and other networks as timm has them."""
    networks = {
        f"{ours}{kind}": create_model(f"{ours}{kind}") for kind in ("", "_conv", "_conv_large") for ours in OURS
    }
    networks |= {f"{ours}_as_released": as_released(ours) for ours in OURS}
    networks |= {name: timm.create_model(theirs, pretrained=False) for name, theirs in TIMM.items()}
    for name, network in networks.items():
        cost = count(network, IMAGE)
        source = {"network": f"timm {timm.__version__}, {TIMM[name]}"} if name in TIMM else {}
        yield result("imagenet", "imagenet", name, "parameters", cost.parameters / 1e6, **source)
        yield result("imagenet", "imagenet", name, "multiply_adds_224", round(cost.multiply_adds / 1e6, 3), **source)


def as_released(name: str) -> nn.Module:
    """The reading whose parameters are nearest to those that the paper prints."""
    network = create_model(name, conv=partial(AdaptiveConv2d, first_kernel=3))
    for block in network.modules():
        if isinstance(block, DynamicBottleneck) and isinstance(block.shortcut, nn.Sequential):
            projection = block.shortcut[0]
            if isinstance(projection, nn.Conv2d) and projection.in_channels == projection.out_channels:
                block.shortcut = nn.AvgPool2d(1, projection.stride[0])
    return network


def counter_rows() -> Iterator[Row]:
    """Table 3: the counters that were not trained here; the others' costs are collected with their scores."""
    for model in ("crowd_counter_m", "crowd_counter_s_condconv"):
        parameters = count(create_model(model), (1, 3, 512, 512)).parameters / 1e6
        yield result("counting", "", model, "parameters", round(parameters, 3))


if __name__ == "__main__":
    main()
