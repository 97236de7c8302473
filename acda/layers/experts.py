"""Convolutions whose filter is a mixture of a few, one mixture per image: what CondConv2d and DynamicConv2d share."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.backends.calling import like_input
from acda.layers.conv_like import ConvLike, check_counts
from acda.window import Pair


class ExpertConv2d(ConvLike):
    """Σ_e shares(x)[e] · weight[e], one filter for each image of a batch, applied as one grouped convolution.

    A subclass defines the shares. weight: (E, O, C/groups·k²)    bias: (E, O)
    The weight has three dimensions because torch takes five for a volume when it moves a model to channels_last.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair,
        padding: Pair | str,
        dilation: Pair,
        groups: int,
        bias: bool,
        padding_mode: str,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
        num_experts: int,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        check_counts(num_experts=num_experts)
        self.num_experts = num_experts
        shape = (num_experts, out_channels, in_channels // groups * self.window.side**2)
        self.weight = nn.Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(shape[:2], device=device, dtype=dtype)) if bias else None
        )

    def shares(self, x: Tensor) -> Tensor:
        """How much of each expert an image takes: (B, E)."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.weight)
        self.window.output_size(x.shape[2], x.shape[3])
        shares = self.shares(x)
        (B, C), (padded, window) = x.shape[:2], self.extended(x)
        if B == 0:
            first = None if self.bias is None else self.bias[0]
            return F.conv2d(padded, self.experts()[0], first, *window[1:], self.groups)
        weight = (shares @ self.weight.flatten(1)).view(B * self.out_channels, -1, *self.kernel_size)
        bias = None if self.bias is None else (shares @ self.bias).flatten()
        # The images side by side as channels, one group of filters each.
        together = padded.reshape(1, B * C, *padded.shape[2:])
        y = F.conv2d(together, weight, bias, *window[1:], B * self.groups)
        return like_input(y.view(B, self.out_channels, *y.shape[2:]), x)

    def experts(self) -> Tensor:
        """The filters to mix: (E, O, C/groups, k, k)."""
        return self.weight.unflatten(2, (-1, *self.kernel_size))

    def reset_experts(self, share: float) -> None:
        """Draw the experts so that, each with this share, the mixture has the variance of a fresh nn.Conv2d."""
        bound = 1 / math.sqrt(self.weight.shape[2] * self.num_experts * share**2)
        nn.init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, num_experts={self.num_experts}"
