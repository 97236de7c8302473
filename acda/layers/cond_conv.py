"""CondConv: one filter per image, mixed from experts (Yang, Bender, Le, Ngiam, NeurIPS 2019)."""

import torch
from torch import Tensor, nn

from acda.layers.experts import ExpertConv2d
from acda.window import Pair


class CondConv2d(ExpertConv2d):
    """The experts' shares are sigmoid(R · average of the image): they need not add up to one.

    num_experts: filters that are blended

    >>> CondConv2d(8, 16, 3, padding=1)(torch.randn(2, 8, 10, 10)).shape
    torch.Size([2, 16, 10, 10])
    """

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
        num_experts: int = 8,
    ) -> None:
        window = (kernel_size, stride, padding, dilation)
        super().__init__(
            in_channels, out_channels, *window, groups, bias, padding_mode, device, dtype, num_experts=num_experts
        )
        self.routing = nn.Linear(in_channels, num_experts, device=device, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.routing.reset_parameters()
        self.reset_experts(share=0.5)

    def shares(self, x: Tensor) -> Tensor:
        return self.routing(x.mean((2, 3))).sigmoid()
