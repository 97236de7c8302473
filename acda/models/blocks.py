"""Residual blocks, with any convolution in their middle."""

from collections.abc import Callable

from torch import Tensor, nn

from acda.layers import AdaptiveConv2d
from acda.window import Pair


class DynamicBottleneck(nn.Module):
    """1×1 to `width` channels, an adaptive convolution there, 1×1 to `out_channels`, beside a shortcut.

    Each convolution is followed by batch normalisation; the shortcut is the input itself, or a 1×1 convolution where
    the shape changes.

    in_channels, width, out_channels: channels of the input, inside the block, and of the output.
    kernel_size, stride: of the layer in the middle.
    conv: what stands in the middle, any layer with nn.Conv2d's arguments.

    >>> import torch
    >>> DynamicBottleneck(64, 32, 128, kernel_size=7, stride=2)(torch.randn(1, 64, 15, 15)).shape
    torch.Size([1, 128, 8, 8])
    """

    def __init__(
        self,
        in_channels: int,
        width: int,
        out_channels: int,
        kernel_size: int = 7,
        stride: Pair = 1,
        *,
        conv: Callable[..., nn.Module] = AdaptiveConv2d,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = conv(width, width, kernel_size, stride=stride, padding=kernel_size // 2, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.act = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.act(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.act(y + self.shortcut(x))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions beside a shortcut, as in ResNet-18."""

    def __init__(self, in_channels: int, out_channels: int, stride: Pair = 1) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(in_channels, out_channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(out_channels)
        self.act = nn.ReLU(inplace=True)
        self.shortcut = _shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.act(y + self.shortcut(x))


def _shortcut(in_channels: int, out_channels: int, stride: Pair) -> nn.Module:
    if in_channels == out_channels and stride in (1, (1, 1)):
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )
