"""Tables 2, 3 and 6: parameters and multiply-adds, counted, of one layer and of the networks, timm's beside ours.

python paper/networks.py          # seconds: nothing is computed, only counted
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import timm
from torch import nn

from acda import AdaptiveConv2d, create_model
from acda.cost import count
from acda.models import DynamicBottleneck
from acda.support.environment import write_results

RESULTS = Path(__file__).parent / "results"
IMAGE = (1, 3, 224, 224)
# The paper's names, and what timm calls the network where it has it.
OURS = {"Ad-ResNet-s": "ad_resnet_s", "Ad-ResNet-m": "ad_resnet_m", "Ad-ResNet-l": "ad_resnet_l"}
TIMM = {
    "ResNet-18": "resnet18",
    "ResNet-34": "resnet34",
    "ResNet-50": "resnet50",
    "MobileNet-V3 small": "mobilenetv3_small_100",
    "CondConv-EfficientNet": "tf_efficientnet_cc_b0_4e",
}


def main() -> None:
    for name, rows in (("layer", layer_rows()), ("networks", network_rows()), ("counters", counter_rows())):
        write_results(RESULTS / f"{name}.json", list(rows), budget="counted, nothing was run")


def layer_rows() -> Iterator[dict[str, Any]]:
    """Table 6: one layer of 256 channels on 100×100."""
    for side in (3, 5, 7):
        conv = count(nn.Conv2d(256, 256, side, padding=side // 2), (1, 256, 100, 100))
        whole = count(AdaptiveConv2d(256, 256, side, padding=side // 2), (1, 256, 100, 100))
        # Without bases there are no atoms to build, and the rest of the operator is the two convolutions.
        bare = count(AdaptiveConv2d(256, 256, side, padding=side // 2, bases=None), (1, 256, 100, 100))
        generator = bare.layers["generator"]
        figures = {
            "Conv": (conv.multiply_adds, conv.parameters),
            "ACDA (conv only)": (
                bare.multiply_adds - generator.multiply_adds,
                bare.parameters - generator.parameters,
            ),
            "ACDA (+ atom generation)": (whole.multiply_adds, whole.parameters),
        }
        for name, values in figures.items():
            for metric, value in zip(("multiply-adds, M", "parameters, M"), values, strict=True):
                common = {"table": "layer", "dataset": f"{side}×{side}", "name": name, "metric": metric}
                yield {**common, "value": value / 1e6}


def network_rows() -> Iterator[dict[str, Any]]:
    """Table 2: our networks, the paper's baseline and its rivals as timm has them."""
    networks = {name: create_model(ours) for name, ours in OURS.items()}
    networks |= {f"{name}, 3×3 Conv2d": create_model(f"{ours}_conv") for name, ours in OURS.items()}
    networks |= {f"{name}, Conv2d of ACDA's sizes": create_model(f"{ours}_conv_large") for name, ours in OURS.items()}
    networks |= {
        f"{name}, Φ as released, 512 to 512 without a projection": as_printed(ours) for name, ours in OURS.items()
    }
    networks |= {name: timm.create_model(theirs, pretrained=False) for name, theirs in TIMM.items()}
    for name, network in networks.items():
        cost = count(network, IMAGE)
        source = {"network": f"timm {timm.__version__}, {TIMM[name]}"} if name in TIMM else {}
        common = {"table": "imagenet", "dataset": "ImageNet", "name": name, **source}
        yield {**common, "metric": "parameters, M", "value": cost.parameters / 1e6}
        yield {**common, "metric": "multiply-adds at 224×224, M", "value": round(cost.multiply_adds / 1e6, 3)}


def as_printed(name: str) -> nn.Module:
    """The reading that comes nearest to the parameters that the paper prints."""
    network = create_model(name, conv=partial(AdaptiveConv2d, first_kernel=3))
    for block in network.modules():
        if isinstance(block, DynamicBottleneck) and isinstance(block.shortcut, nn.Sequential):
            projection = block.shortcut[0]
            if isinstance(projection, nn.Conv2d) and projection.in_channels == projection.out_channels:
                block.shortcut = nn.AvgPool2d(1, projection.stride[0])
    return network


def counter_rows() -> Iterator[dict[str, Any]]:
    """Table 3: the counters that nobody has trained here; run.py tells the others'."""
    untrained = {"Ad-ResNet-m": "crowd_counter_m", "Ad-ResNet-s's baseline with CondConv": "crowd_counter_s_condconv"}
    for name, model in untrained.items():
        value = count(create_model(model), (1, 3, 512, 512)).parameters / 1e6
        yield {"table": "counting", "dataset": "", "name": name, "metric": "parameters, M", "value": round(value, 3)}


if __name__ == "__main__":
    main()
