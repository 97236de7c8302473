"""Ad-ResNets: residual networks with adaptive convolutions in their deep half (the table of the paper's appendix)."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.fx import Proxy
from torch.utils.checkpoint import checkpoint

from acda.layers import AdaptiveConv2d
from acda.layers.conv_like import ConvLike
from acda.models.blocks import BasicBlock, DynamicBottleneck


class AdResNet(nn.Module):
    """7×7/2 and max pooling, two stages of ordinary blocks, two of dynamic bottlenecks, average, linear.

    depths, widths: blocks and output channels of the four stages.
    bottlenecks: whether the first two stages consist of bottlenecks (m, l) or of basic blocks (s).
    conv, kernel_sizes: the convolution in the middle of the last two stages' blocks, any layer with nn.Conv2d's
        arguments, and its size in each.
    in_chans: channels of the images.
    drop_rate: dropout before the last layer.
    num_classes=0 returns pooled features, global_pool="" the map. Names and methods are those of timm's networks.
    """

    def __init__(
        self,
        num_classes: int = 1000,
        in_chans: int = 3,
        global_pool: str = "avg",
        *,
        depths: tuple[int, int, int, int] = (2, 2, 2, 2),
        widths: tuple[int, int, int, int] = (64, 128, 256, 512),
        bottlenecks: bool = False,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
        kernel_sizes: tuple[int, int] = (7, 5),
        drop_rate: float = 0.0,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_chans, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.act1 = nn.ReLU(inplace=True)
        self.maxpool: nn.Module = nn.MaxPool2d(3, 2, 1)

        def ordinary(before: int, after: int, stride: int) -> nn.Module:
            if bottlenecks:
                return DynamicBottleneck(before, after // 4, after, 3, stride, conv=nn.Conv2d)
            return BasicBlock(before, after, stride)

        def dynamic(before: int, after: int, stride: int, kernel_size: int) -> nn.Module:
            return DynamicBottleneck(before, after // 2, after, kernel_size, stride, conv=conv)

        third, fourth = (partial(dynamic, kernel_size=k) for k in kernel_sizes)
        self.layer1 = _stage(ordinary, 64, widths[0], depths[0], 1)
        self.layer2 = _stage(ordinary, widths[0], widths[1], depths[1], 2)
        self.layer3 = _stage(third, widths[1], widths[2], depths[2], 2)
        self.layer4 = _stage(fourth, widths[2], widths[3], depths[3], 2)
        self.feature_info = [{"num_chs": 64, "reduction": 2, "module": "act1"}] + [
            {"num_chs": width, "reduction": 4 * 2**i, "module": f"layer{i + 1}"} for i, width in enumerate(widths)
        ]
        self.num_features = self.head_hidden_size = widths[3]
        self.drop_rate = drop_rate
        self.grad_checkpointing = False
        self.reset_classifier(num_classes, global_pool)
        self._initialise()

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """The last stage's map: (B, num_features, H/32, W/32), rounded up."""
        self._refuse_what_cannot_be_normalised(x)
        x = self.maxpool(self.act1(self.bn1(self.conv1(x))))
        for stage in self._stages():
            x = checkpoint(stage, x, use_reentrant=False) if self.grad_checkpointing else stage(x)
        return x

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Pool, and classify unless pre_logits asks for what comes before."""
        if self.global_pool:
            x = x.mean((2, 3))
            x = nn.functional.dropout(x, self.drop_rate, self.training) if self.drop_rate else x
        return x if pre_logits else self.fc(x)

    def forward_intermediates(
        self,
        x: Tensor,
        indices: int | list[int] | tuple[int, ...] | None = None,
        norm: bool = False,
        stop_early: bool = False,
        output_fmt: str = "NCHW",
        intermediates_only: bool = False,
    ) -> Any:
        """The maps after the stem and after each stage (0 to 4), those of `indices`, the last n of them, or all.

        stop_early: do not compute what lies behind the last of them.
        output_fmt: "NCHW", the only one.
        intermediates_only: return the maps alone, without the last one before them.
        norm has no effect, as in timm's own ResNets: there is no normalisation at the end.
        """
        if output_fmt != "NCHW":
            raise ValueError(f'output_fmt needs "NCHW"; got {output_fmt!r}.')
        wanted = _indices(indices)
        x = self.act1(self.bn1(self.conv1(x)))
        maps = [x] if 0 in wanted else []
        x = self.maxpool(x)
        for i, stage in enumerate(self._stages(), start=1):
            if stop_early and i > max(wanted):
                break
            x = stage(x)
            maps += [x] if i in wanted else []
        return maps if intermediates_only else (x, maps)

    def get_classifier(self, name_only: bool = False) -> Any:
        """The last layer, or with name_only its name."""
        return "fc" if name_only else self.fc

    def reset_classifier(self, num_classes: int, global_pool: str = "avg") -> None:
        """A fresh last layer for num_classes; 0 leaves it out. global_pool: "avg", or "" for none."""
        if global_pool not in ("avg", ""):
            raise ValueError(f'global_pool needs "avg" or ""; got {global_pool!r}.')
        if num_classes and not global_pool:
            raise ValueError(
                f"without pooling there is nothing to classify: num_classes needs to be 0; got {num_classes}."
            )
        like = self.conv1.weight
        self.num_classes, self.global_pool = num_classes, global_pool
        self.fc: nn.Module = nn.Identity()
        if num_classes:
            self.fc = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)

    def set_grad_checkpointing(self, enable: bool = True) -> None:
        """Keep only the stages' inputs for backward, and compute the rest again; enable=False ends it."""
        self.grad_checkpointing = enable

    def group_matcher(self, coarse: bool = False) -> dict[str, str]:
        """Which parameters belong to one depth, for timm's layer-wise learning rates."""
        return {"stem": r"^conv1|bn1", "blocks": r"^layer(\d+)" if coarse else r"^layer(\d+)\.(\d+)"}

    def _stages(self) -> tuple[nn.Module, ...]:
        return self.layer1, self.layer2, self.layer3, self.layer4

    def _initialise(self) -> None:
        # Layers that stand in for nn.Conv2d, and the convolutions within them, have their own initialisation.
        others = {part for module in self.modules() if isinstance(module, ConvLike) for part in module.modules()}
        for module in self.modules():
            if isinstance(module, nn.Conv2d) and module not in others:
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            # Each block starts as its shortcut.
            elif isinstance(module, DynamicBottleneck):
                nn.init.zeros_(module.bn3.weight)
            elif isinstance(module, BasicBlock):
                nn.init.zeros_(module.bn2.weight)

    def _refuse_what_cannot_be_normalised(self, x: Tensor) -> None:
        if not self.training or isinstance(x, Proxy):
            return
        stride = 16 if isinstance(self.maxpool, nn.Identity) else 32  # a crowd counter does without that pooling
        if x.shape[0] == 1 and max(x.shape[2:]) <= stride:
            raise ValueError(
                f"training on a single image needs at least {stride + 1} pixels in one direction, so that the last "
                f"stage has more than one to normalise; got {tuple(x.shape)}. Use a larger image, a larger batch or "
                "model.eval()."
            )


def _stage(block: Callable[[int, int, int], nn.Module], before: int, after: int, depth: int, stride: int) -> nn.Module:
    return nn.Sequential(block(before, after, stride), *(block(after, after, 1) for _ in range(depth - 1)))


def _indices(indices: int | list[int] | tuple[int, ...] | None) -> set[int]:
    """Maps to take, of five: the last n, the listed ones (negative: from the end), or all."""
    if indices is None:
        return set(range(5))
    listed = range(5 - indices, 5) if isinstance(indices, int) else indices
    wanted = {i + 5 if i < 0 else i for i in listed}
    if not wanted or not wanted <= set(range(5)):
        raise ValueError(f"indices needs some of the five maps, 0 to 4 or -5 to -1; got {indices!r}.")
    return wanted


_SIZES: dict[str, dict[str, Any]] = {
    "s": {"depths": (2, 2, 2, 2), "widths": (64, 128, 256, 512)},
    "m": {"depths": (2, 2, 2, 2), "widths": (256, 512, 512, 1024), "bottlenecks": True},
    "l": {"depths": (2, 3, 8, 3), "widths": (256, 512, 512, 1024), "bottlenecks": True},
}
# The paper's baseline has standard 3×3 convolutions; "large" has them in ACDA's sizes.
_KINDS: dict[str, dict[str, Any]] = {
    "": {},
    "_conv": {"conv": nn.Conv2d, "kernel_sizes": (3, 3)},
    "_conv_large": {"conv": nn.Conv2d},
}
AD_RESNETS: dict[str, Callable[..., AdResNet]] = {
    f"ad_resnet_{size}{kind}": partial(AdResNet, **_SIZES[size], **_KINDS[kind]) for size in _SIZES for kind in _KINDS
}
