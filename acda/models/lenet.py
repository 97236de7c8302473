"""LeNet for small colour images, and with adaptive convolutions: the paper's Table 1."""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from acda.layers import AdaptiveConv2d

SIZE = 32


class LeNet(nn.Module):
    """Two 5×5 convolutions with ReLU and 2×2 max pooling, then three linear layers.

    widths: filters of the two convolutions; linear: units of the two hidden linear layers.
    conv: what stands in for nn.Conv2d, any layer with its arguments.
    num_classes=0 returns the units of the last hidden layer. Names and methods are those of timm's networks.
    x: (B, in_chans, 32, 32)    returns: (B, num_classes)
    """

    def __init__(
        self,
        num_classes: int = 10,
        in_chans: int = 3,
        *,
        conv: Callable[..., nn.Module] = nn.Conv2d,
        widths: tuple[int, int] = (6, 16),
        linear: tuple[int, int] = (120, 84),
    ) -> None:
        super().__init__()
        side = ((SIZE - 4) // 2 - 4) // 2
        self.features = nn.Sequential(
            conv(in_chans, widths[0], 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            conv(widths[0], widths[1], 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.hidden = nn.Sequential(
            nn.Flatten(),
            nn.Linear(widths[1] * side**2, linear[0]),
            nn.ReLU(),
            nn.Linear(linear[0], linear[1]),
            nn.ReLU(),
        )
        self.num_features = self.head_hidden_size = linear[1]
        self.reset_classifier(num_classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def forward_features(self, x: Tensor) -> Tensor:
        """The map after the two convolutions: (B, widths[1], 5, 5)."""
        if tuple(x.shape[2:]) != (SIZE, SIZE):
            raise ValueError(
                f"LeNet needs images of {SIZE}×{SIZE} in (B, C, H, W); got {tuple(x.shape)}. Resize or crop them."
            )
        maps: Tensor = self.features(x)
        return maps

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """The hidden linear layers, and the last one unless pre_logits asks for what comes before."""
        units: Tensor = self.hidden(x)
        return units if pre_logits else self.fc(units)

    def get_classifier(self, name_only: bool = False) -> Any:
        """The last layer, or with name_only its name."""
        return "fc" if name_only else self.fc

    def reset_classifier(self, num_classes: int) -> None:
        """A fresh last layer for num_classes; 0 leaves it out."""
        like = next(self.hidden.parameters())
        self.num_classes = num_classes
        self.fc: nn.Module = nn.Identity()
        if num_classes:
            self.fc = nn.Linear(self.num_features, num_classes, device=like.device, dtype=like.dtype)


# Φ begins with a 3×3 here: with three and six channels a 1×1 sees too little. This gives lenet_acda sixty times
# the multiply-adds of lenet; lenet_wide has as many, by its width.
LENETS: dict[str, Callable[..., LeNet]] = {
    "lenet": LeNet,
    "lenet_acda": partial(LeNet, conv=partial(AdaptiveConv2d, first_kernel=3)),
    "lenet_wide": partial(LeNet, widths=(67, 180), linear=(1346, 942)),
}
