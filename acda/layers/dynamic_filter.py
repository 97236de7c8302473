"""DFN: a network predicts the full-size filter of every pixel (De Brabandere et al., NIPS 2016).

For tables and small maps only: it stores O·C·k² numbers per pixel. ACDA avoids that.
"""

import math
from pathlib import Path

import torch
from torch import Tensor, nn

from acda.backends import choose
from acda.backends.calling import like_input
from acda.backends.reference import needs_grad
from acda.layers.conv_like import ConvLike
from acda.layers.fused import predict
from acda.layers.generator import TANH_POWER, AtomGenerator
from acda.window import Pair


class DynamicFilterConv2d(ConvLike):
    """Φ's features at each output pixel, then a 1×1 convolution to the O·C/groups·k² numbers of the pixel's filters.

    hidden: channels of Φ's features
    memory_limit: bytes that the filters of a call may take; by default what the device has left. More is refused.

    >>> DynamicFilterConv2d(2, 3, 3, padding=1)(torch.randn(1, 2, 6, 6)).shape
    torch.Size([1, 3, 6, 6])
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
        hidden: int = 64,
        memory_limit: int | None = None,
    ) -> None:
        super().__init__(in_channels, out_channels, kernel_size, stride, padding, dilation, groups, padding_mode)
        self.memory_limit = memory_limit
        self.generator = AtomGenerator(
            in_channels, hidden, *self.window, padding_mode, adaptivity=1.0, device=device, dtype=dtype
        )
        self.predict = nn.Conv2d(hidden, out_channels * self._fan_in, 1, bias=False, device=device, dtype=dtype)
        self.register_parameter(
            "bias", nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype)) if bias else None
        )
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """A fresh layer has the output variance of a fresh nn.Conv2d."""
        self.generator.reset_parameters()
        bound = 1 / math.sqrt(self._fan_in)
        inner = bound / math.sqrt(self.predict.in_channels * TANH_POWER)
        nn.init.uniform_(self.predict.weight, -inner, inner)
        if self.bias is not None:
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, x: Tensor) -> Tensor:
        self.check(x, self.predict.weight)
        self._refuse_what_does_not_fit(x)
        filters = self.filters(x)
        padded, (P, Q) = self.padded(x).to(filters.dtype), filters.shape[-2:]
        # A product of matrices at each pixel: (O/groups, C/groups) with what the tap sees, (C/groups, 1).
        y = filters.new_zeros(x.shape[0], self.groups, P, Q, self.out_channels // self.groups, 1)
        for i in range(self.window.side):
            for j in range(self.window.side):
                seen = padded[:, :, *self.window.tap(i, j, P, Q)].unflatten(1, (self.groups, -1))
                taps = filters[:, :, :, i, j].unflatten(1, (self.groups, -1))
                y = y + taps.movedim((2, 3), (4, 5)) @ seen.movedim(2, 4)[..., None]
        y = y.squeeze(5).movedim(4, 2).flatten(1, 2)
        return like_input(self.biased(y), x)

    def filters(self, x: Tensor) -> Tensor:
        """The filters of every output pixel: (B, O, C/groups, k, k, P, Q)."""
        k = self.window.side
        return self.predict(predict(self.generator, x, choose("auto", x))).unflatten(1, (self.out_channels, -1, k, k))

    def bytes_needed(self, x: Tensor) -> int:
        """What the filters take for this input, and their gradients where there will be some."""
        P, Q = self.window.output_size(x.shape[2], x.shape[3])
        filters = x.shape[0] * self.out_channels * self._fan_in * P * Q * x.element_size()
        return filters * (2 if needs_grad(x, self.predict.weight) else 1)

    @property
    def _fan_in(self) -> int:
        return self.in_channels // self.groups * self.window.side**2

    def _refuse_what_does_not_fit(self, x: Tensor) -> None:
        limit = self.memory_limit if self.memory_limit is not None else _bytes_left(x.device)
        needed = self.bytes_needed(x)
        if limit is not None and needed > limit:
            numbers = self.out_channels * self._fan_in
            raise MemoryError(
                f"a filter of its own for every pixel, {numbers:,} numbers each, needs {needed / 2**30:.1f} GiB for an "
                f"input of {tuple(x.shape)}; there are {limit / 2**30:.1f}. Try a smaller map, fewer channels or "
                "acda.AdaptiveConv2d, which never stores them."
            )


def _bytes_left(device: torch.device) -> int | None:
    """Memory that this device can still give, where that can be asked."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    if device.type != "cpu":
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        return None
