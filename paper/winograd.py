"""acda with the 3×3 convolutions of networks in acda's kernel: Winograd's algorithm, a quarter of the multiplications.

    python -m paper.winograd train polyu_sidd_dncnn --data DIR     # as `acda train …`

For trainings of baselines that would take too long otherwise: the same network and the same training, but for the
rounding.
"""

import sys

import torch
from torch import Tensor, nn

from acda.backends import native
from acda.cli import main

_torchs = nn.Conv2d._conv_forward


def conv_forward(layer: nn.Conv2d, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """In place of nn.Conv2d's own, to which it leaves all other convolutions."""
    if not fits(layer, x):
        return _torchs(layer, x, weight, bias)
    y = native.conv2d(x, weight, stride=(1, 1), padding=(1, 1))
    return y if bias is None else y + bias[:, None, None]


def fits(layer: nn.Conv2d, x: Tensor) -> bool:
    window = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.groups, layer.padding_mode
    plain = x.dtype == layer.weight.dtype == torch.float32 and x.is_cpu and x.ndim == 4 and x.numel() > 0
    return window == ((3, 3), (1, 1), (1, 1), (1, 1), 1, "zeros") and plain and native.MISSING is None


if __name__ == "__main__":
    nn.Conv2d._conv_forward = conv_forward  # type: ignore[method-assign,assignment]
    sys.exit(main())
