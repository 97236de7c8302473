"""Crowd counters: an Ad-ResNet without its first pooling and its classifier, then transposed convolutions."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from torch import Tensor, nn

from acda.layers import CondConv2d
from acda.models.ad_resnet import AD_RESNETS, AdResNet
from acda.models.whole_strides import cropped, with_zeros


class CrowdCounter(nn.Module):
    """Photos to density maps at a quarter of their resolution: the sum over a map is the number of heads.

    backbone: makes the Ad-ResNet; its maps are at a sixteenth of the resolution, without the first pooling.
    widths: channels after each transposed convolution, which doubles the resolution.
    x: (B, 3, H, W), any size    returns: (B, 1, H/4, W/4), rounded up

    >>> import torch
    >>> CrowdCounter(AD_RESNETS["ad_resnet_s"])(torch.randn(1, 3, 100, 131)).shape
    torch.Size([1, 1, 25, 33])
    """

    # Pixels per cell of the map, and the period of the network: shifted by so many pixels, it does the same.
    cell = 4
    stride = 16
    # Densities are a few thousandths. The last layer learns them in this unit, so that its outputs are near 1.
    unit = 0.01

    def __init__(self, backbone: Callable[..., AdResNet], widths: tuple[int, int] = (128, 64)) -> None:
        super().__init__()
        self.backbone = backbone(num_classes=0, global_pool="")
        self.backbone.maxpool = nn.Identity()
        channels = (self.backbone.num_features, *widths)
        self.decoder = nn.Sequential(
            *(part for before, after in pairwise(channels) for part in _doubling(before, after))
        )
        self.density = nn.Conv2d(widths[-1], 1, 1)
        assert self.density.bias is not None
        # A fresh network predicts nearly no people.
        nn.init.normal_(self.density.weight, std=0.01)
        nn.init.zeros_(self.density.bias)

    def forward(self, x: Tensor) -> Tensor:
        H, W = x.shape[2:]
        maps = self.decoder(self.backbone(with_zeros(x, self.stride)))
        return cropped(self.unit * self.density(maps), -(-H // self.cell), -(-W // self.cell))

    def load_classifier(self, state: dict[str, Tensor]) -> None:
        """Load the weights of a trained classifier of the same kind, without its head.

        state: its state dict
        """
        own = self.backbone.state_dict()
        missing = [name for name in own if name not in state or state[name].shape != own[name].shape]
        if missing:
            raise ValueError(
                f"these are not the weights of the same kind of classifier: {len(missing)} of {len(own)} tensors do "
                f"not fit, {missing[0]} first."
            )
        self.backbone.load_state_dict({name: state[name] for name in own})


def _doubling(before: int, after: int) -> tuple[nn.Module, ...]:
    return (
        nn.ConvTranspose2d(before, after, 4, stride=2, padding=1, bias=False),
        nn.BatchNorm2d(after),
        nn.ReLU(inplace=True),
    )


# The paper's baseline, and one with a filter per image: the same code with another convolution in the deep half.
_KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "": ("", {}),
    "_conv": ("_conv", {}),
    "_condconv": ("_conv", {"conv": CondConv2d}),
}
CROWD_COUNTERS: dict[str, Callable[..., CrowdCounter]] = {
    f"crowd_counter_{size}{kind}": partial(CrowdCounter, partial(AD_RESNETS[f"ad_resnet_{size}{base}"], **options))
    for size in ("s", "m")
    for kind, (base, options) in _KINDS.items()
}
