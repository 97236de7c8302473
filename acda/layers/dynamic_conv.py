"""DY-CNN: one filter per image, an attention over a few kernels (Chen et al., CVPR 2020)."""

import torch
from torch import Tensor, nn

from acda.layers.experts import ExpertConv2d
from acda.window import Pair

# The paper's temperatures at the beginning and at the end of annealing (over its first ten epochs).
HOT, COOL = 30.0, 1.0


class DynamicConv2d(ExpertConv2d):
    """The experts' shares are a softmax, at a temperature that is lowered as training begins (see `anneal`).

    num_experts: filters that are blended
    reduction: how many times fewer units than channels the hidden layer has that predicts the shares
    temperature: of the softmax at the beginning

    >>> DynamicConv2d(8, 16, 3, padding=1)(torch.randn(2, 8, 10, 10)).shape
    torch.Size([2, 16, 10, 10])
    """

    temperature: Tensor

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        num_experts: int = 4,
        reduction: int = 4,
        temperature: float = HOT,
    ) -> None:
        window = (kernel_size, stride, padding, dilation)
        super().__init__(
            in_channels, out_channels, *window, groups, bias, padding_mode, device, dtype, num_experts=num_experts
        )
        if not temperature > 0:
            raise ValueError(f"temperature needs to be positive; got {temperature}.")
        hidden = max(1, in_channels // reduction)
        self.squeeze = nn.Linear(in_channels, hidden, device=device, dtype=dtype)
        self.attend = nn.Linear(hidden, num_experts, device=device, dtype=dtype)
        self._first_temperature = temperature
        self.register_buffer("temperature", torch.tensor(float(temperature), device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.squeeze.reset_parameters()
        self.attend.reset_parameters()
        self.temperature.fill_(self._first_temperature)
        self.reset_experts(share=1 / self.num_experts)

    def shares(self, x: Tensor) -> Tensor:
        logits = self.attend(self.squeeze(x.mean((2, 3))).relu())
        return (logits / self.temperature).softmax(1)


def anneal(model: nn.Module, progress: float) -> None:
    """Set the temperature of every DynamicConv2d in a model: highest at progress 0, 1 at progress 1, linear between.

    >>> layer = DynamicConv2d(4, 4, 3)
    >>> anneal(layer, 0.5)
    >>> float(layer.temperature)
    15.5
    """
    temperature = HOT + (COOL - HOT) * min(max(progress, 0.0), 1.0)
    for module in model.modules():
        if isinstance(module, DynamicConv2d):
            module.temperature.fill_(temperature)
