"""acda with the 3×3 convolutions of networks by Winograd's algorithm: a quarter of the multiplications, on a CPU.

    python paper/winograd.py train polyu_sidd_dncnn --data DIR     # as `acda train …`

For trainings of run.py that would take too long otherwise: it is the same network and the same training, but for the
rounding. winograd.cpp is compiled at every start, for the machine that it runs on.
"""

import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from acda.cli import main

SOURCE = Path(__file__).with_suffix(".cpp")
# Channels have to be multiples of this.
PANEL = 16
_torchs = nn.Conv2d._conv_forward


@cache
def operators() -> Any:
    """winograd.cpp, compiled and loaded."""
    torchs = Path(torch.__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "winograd.so")
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O3", "-march=native", "-shared", "-fPIC"]
        command += ["-DTORCH_TARGET_VERSION=0x020a000000000000", f"-I{torchs / 'include'}", str(SOURCE)]
        command += [f"-L{torchs / 'lib'}", "-ltorch_cpu", "-o", str(library)]
        subprocess.run(command, check=True)
        torch.ops.load_library(library)
    return torch.ops.acda_winograd


class Winograd(torch.autograd.Function):
    """F.conv2d(x, weight, padding=1) of 3×3 filters; the result is channels_last."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        pixels, weight = x.permute(0, 2, 3, 1).contiguous(), weight.contiguous()
        ctx.save_for_backward(pixels, weight)
        return operators().convolve(pixels, weight, False).permute(0, 3, 1, 2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        pixels, weight = ctx.saved_tensors
        grad = grad.permute(0, 2, 3, 1).contiguous()
        dx = operators().convolve(grad, weight, True).permute(0, 3, 1, 2) if ctx.needs_input_grad[0] else None
        return dx, operators().filter_gradient(pixels, grad) if ctx.needs_input_grad[1] else None


def conv_forward(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place of nn.Conv2d's own, to which it leaves all other convolutions."""
    if not fits(layer, x):
        return _torchs(layer, x, weight, bias)
    y: Tensor = Winograd.apply(x, weight)
    return y if bias is None else y + bias[:, None, None]


def fits(layer: nn.Conv2d, x: Tensor) -> bool:
    window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode
    channels = layer.in_channels % PANEL == 0 and layer.out_channels % PANEL == 0
    plain = x.dtype == layer.weight.dtype == torch.float32 and x.is_cpu and x.ndim == 4 and x.numel() > 0
    return window == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and channels and plain


if __name__ == "__main__":
    operators()
    nn.Conv2d._conv_forward = conv_forward  # type: ignore[method-assign,assignment]
    sys.exit(main())
