"""Φ, the small network that reads each pixel's neighbourhood and predicts the coefficients of its filter."""

from collections.abc import Callable

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.checks import check_alike, check_input
from acda.layers.batch_norm import ForgivingBatchNorm2d
from acda.layers.conv_like import check_counts, check_padding_mode
from acda.window import Pair, Window, kernel_side

# x, convolution, normalisation, padding → tanh(norm(conv(x)))
Step = Callable[[Tensor, nn.Module, nn.Module, tuple[int, int]], Tensor]

# E[tanh²(g)] for a standard normal g: the mean square of what a fresh Φ predicts in train mode.
TANH_POWER = 0.394294


class AtomGenerator(nn.Module):
    """1×1 → BatchNorm → Tanh → 3×3 → BatchNorm → Tanh, evaluated at the centre of each output window.

    The window arguments are those of the layer that the generator serves; it has that layer's output size.
    x: (B, in_channels, H, W)    returns: (B, out_channels, P, Q), each number between -1 and 1
    hidden: channels between the two convolutions
    first_kernel: side of the first convolution
    adaptivity: share of a fresh generator's predictions that depends on the position; 1 is the paper's initialisation
    per_image: average the predictions over each image

    >>> AtomGenerator(16, 6 * 18, kernel_size=7, stride=2, padding=3)(torch.randn(1, 16, 11, 12)).shape
    torch.Size([1, 108, 6, 6])
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        padding_mode: str = "zeros",
        *,
        hidden: int = 64,
        first_kernel: int = 1,
        adaptivity: float = 0.2,
        per_image: bool = False,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_padding_mode(padding_mode)
        if not 0 <= adaptivity <= 1:
            raise ValueError(f"adaptivity needs to be from 0, the same filter everywhere, to 1; got {adaptivity}.")
        self.adaptivity, self.per_image = adaptivity, per_image
        check_counts(hidden=hidden)
        self.window = Window.of(kernel_side(kernel_size), stride, padding, dilation)
        self.in_channels, self.padding_mode = in_channels, padding_mode
        side = kernel_side(first_kernel, "first_kernel")
        # No biases: each convolution is followed by a normalisation, which has its own.
        self.squeeze = nn.Conv2d(in_channels, hidden, side, bias=False, device=device, dtype=dtype)
        self.squeeze_norm = ForgivingBatchNorm2d(hidden, device=device, dtype=dtype)
        self.predict = nn.Conv2d(hidden, out_channels, 3, self.window.stride, bias=False, device=device, dtype=dtype)
        self.predict_norm = ForgivingBatchNorm2d(out_channels, device=device, dtype=dtype)
        self._start()

    def reset_parameters(self) -> None:
        """Start afresh: torch's default initialisation, and fresh running statistics."""
        for part in (self.squeeze, self.squeeze_norm, self.predict, self.predict_norm):
            part.reset_parameters()
        self._start()

    def _start(self) -> None:
        """Begin with a random part that is the same everywhere, and a smaller one that depends on the position.

        Departs from the paper, whose start (adaptivity 1) has no fixed part: predictions are then an odd function of
        the input, so that the layer gives the same output for x and -x. What Tanh sees has unit variance either way.
        """
        norm = self.predict_norm
        if not norm.weight.is_meta:
            nn.init.constant_(norm.weight, self.adaptivity)
            if self.adaptivity < 1:  # else it is zero, and no random number is drawn
                nn.init.normal_(norm.bias, std=(1 - self.adaptivity**2) ** 0.5)

    @property
    def constants(self) -> Tensor:
        """The prediction where the last convolution returns zeros: (out_channels,)."""
        return self.predict_norm.bias.tanh()

    def become(self, coefficients: Tensor) -> None:
        """Predict these coefficients, between -1 and 1, at every pixel, until training changes that."""
        nn.init.zeros_(self.predict_norm.weight)
        self.predict_norm.bias.copy_(coefficients.atanh())

    def fresh_moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each prediction of a fresh generator in train mode, in float64 on the CPU."""
        points, weights = np.polynomial.hermite_e.hermegauss(32)  # of a standard normal number
        norm = self.predict_norm
        scale, shift = (t.detach().cpu().double()[:, None] for t in (norm.weight, norm.bias))
        values = (scale * torch.from_numpy(points) + shift).tanh()
        share = torch.from_numpy(weights / weights.sum())
        mean = values @ share
        variance = values.square() @ share - mean.square()
        return mean, torch.zeros_like(variance) if self.per_image else variance

    def forward(self, x: Tensor, *, step: Step | None = None) -> Tensor:
        """step: computes convolution, normalisation and Tanh, for a layer that has checked x; else the modules do."""
        if step is None:
            check_input(x)
            step = plain_step
        self.check_fit(x)
        margin = self.squeeze.kernel_size[0] // 2
        hidden, padding = self._extend(x, (margin, margin))
        hidden, padding = self._extend(step(hidden, self.squeeze, self.squeeze_norm, padding), self._margins())
        alpha = step(hidden, self.predict, self.predict_norm, padding)
        return alpha.mean((2, 3), keepdim=True).expand_as(alpha) if self.per_image else alpha

    def check_fit(self, x: Tensor) -> None:
        """A map with the generator's channels, dtype and device, and large enough for its window."""
        if x.shape[1] != self.in_channels:
            raise ValueError(f"the generator needs {self.in_channels} channels in (B, C, H, W); got {tuple(x.shape)}.")
        if type(self.squeeze) is nn.Conv2d:
            check_alike(x, generator=self.squeeze.weight)
        self.window.output_size(x.shape[2], x.shape[3])  # refuses a map that is too small

    def _margins(self) -> tuple[int, int]:
        """How far outside the map a 3×3 window has to begin to share its centre with the layer's first window."""
        (py, px), (ry, rx) = self.window.padding, self.window.reach
        return py - ry + 1, px - rx + 1

    def _extend(self, x: Tensor, margins: tuple[int, int]) -> tuple[Tensor, tuple[int, int]]:
        """The map extended by these margins in the layer's padding mode.

        Zeros are not written, and nothing is cropped: the second value is the padding that is left for the convolution.
        """
        gy, gx = (max(margin, 0) for margin in margins)
        if self.padding_mode == "zeros" or not (gy or gx):
            return x, margins
        left = min(margins[0], 0), min(margins[1], 0)
        if max(gy, gx) < min(x.shape[2:]):
            return F.pad(x, (gx, gx, gy, gy), mode=self.padding_mode), left
        # F.pad refuses margins as wide as the map, which a 1×1 layer on a tiny map has.
        for dim, margin in ((2, gy), (3, gx)):
            x = x.index_select(dim, _source(x.shape[dim], margin, self.padding_mode, x.device))
        return x, left

    def extra_repr(self) -> str:
        side, stride, padding, dilation = self.window
        return f"for a {side}×{side} layer, {stride=}, {padding=}, {dilation=}, padding_mode={self.padding_mode!r}"


class ConstantAtoms(nn.Module):
    """Replaces AtomGenerator: coefficients that are learned and do not depend on the input.

    x: (B, C, H, W)    returns: (B, out_channels, P, Q), each number between -1 and 1 and the same everywhere

    >>> ConstantAtoms(6 * 18, Window.of(7, 2, 3))(torch.randn(1, 16, 11, 12)).shape
    torch.Size([1, 108, 6, 6])
    """

    def __init__(
        self,
        out_channels: int,
        window: Window,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.window = window
        # Before Tanh, as an AtomGenerator's last shift.
        self.shift = nn.Parameter(torch.empty(out_channels, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.shift)

    @property
    def constants(self) -> Tensor:
        """The coefficients: (out_channels,)."""
        return self.shift.tanh()

    def become(self, coefficients: Tensor) -> None:
        """Take these values, between -1 and 1."""
        self.shift.copy_(coefficients.atanh())

    def fresh_moments(self) -> tuple[Tensor, Tensor]:
        """Values of all coefficients and zeros, in float64 on the CPU."""
        mean = self.constants.detach().cpu().double()
        return mean, torch.zeros_like(mean)

    def forward(self, x: Tensor) -> Tensor:
        size = self.window.output_size(x.shape[2], x.shape[3])
        return self.constants[None, :, None, None].expand(x.shape[0], -1, *size)


def plain_step(x: Tensor, conv: nn.Module, norm: nn.Module, padding: tuple[int, int]) -> Tensor:
    """tanh(norm(conv(x))), negative padding cropping the map."""
    py, px = padding
    y: Tensor = norm(conv(F.pad(x, (px, px, py, py))))
    return y.tanh()  # not in place: a hook may have kept what the normalisation returned


def _source(size: int, margin: int, mode: str, device: torch.device) -> Tensor:
    """Which row of a map each row of the extended map shows.

    >>> _source(3, 2, "reflect", torch.device("cpu")).tolist()
    [2, 1, 0, 1, 2, 1, 0]
    """
    index = torch.arange(-margin, size + margin, device=device)
    if mode == "circular":
        return index % size
    if mode == "replicate":
        return index.clamp(0, size - 1)
    period = max(1, 2 * (size - 1))
    index = index % period
    return torch.minimum(index, period - index) if size > 1 else index
