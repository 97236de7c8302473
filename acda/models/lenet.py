"""LeNet for small colour images, and with adaptive convolutions: the paper's Table 1."""

from collections.abc import Callable
from functools import partial

from torch import Tensor, nn

from acda.layers import AdaptiveConv2d

SIZE = 32


class LeNet(nn.Module):
    """Two 5×5 convolutions with ReLU and 2×2 max pooling, then three linear layers.

    widths: filters of the two convolutions; linear: units of the two hidden linear layers.
    conv: what stands in for nn.Conv2d, any layer with its arguments.
    x: (B, in_channels, 32, 32)    returns: (B, num_classes)
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_channels: int = 3,
        *,
        conv: Callable[..., nn.Module] = nn.Conv2d,
        widths: tuple[int, int] = (6, 16),
        linear: tuple[int, int] = (120, 84),
    ) -> None:
        super().__init__()
        side = ((SIZE - 4) // 2 - 4) // 2
        self.features = nn.Sequential(
            conv(in_channels, widths[0], 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(widths[0], widths[1], 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(widths[1] * side**2, linear[0]),
            nn.ReLU(),
            nn.Linear(linear[0], linear[1]),
            nn.ReLU(),
            nn.Linear(linear[1], num_classes),
        )

    def forward(self, x: Tensor) -> Tensor:
        if tuple(x.shape[2:]) != (SIZE, SIZE):
            raise ValueError(
                f"LeNet needs images of {SIZE}×{SIZE} in (B, C, H, W); got {tuple(x.shape)}. Resize or crop them."
            )
        logits: Tensor = self.classifier(self.features(x))
        return logits


# Φ makes lenet_acda sixty times the multiply-adds of lenet; lenet_wide spends the same on width.
LENETS: dict[str, Callable[..., LeNet]] = {
    "lenet": LeNet,
    "lenet_acda": partial(LeNet, conv=AdaptiveConv2d),
    "lenet_wide": partial(LeNet, widths=(65, 174), linear=(1305, 914)),
}
