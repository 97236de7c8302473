"""acda::conv2d_tanh, a whole step of Φ in inference: the normalisation is part of weight and shift. It has no gradient.

Pixel-major maps; negative padding crops.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from acda.backends.native.registering import register
from acda.window import output_length


def conv2d_tanh(x: Tensor, weight: Tensor, shift: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """tanh(F.conv2d(…)) without gradients, in one pass; the result is channels_last."""
    dense = x.permute(0, 2, 3, 1).contiguous(), weight.contiguous(), shift.contiguous()
    return torch.ops.acda.conv2d_tanh(*dense, *stride, *padding).permute(0, 3, 1, 2)


def _fake(x: Tensor, weight: Tensor, shift: Tensor, sy: int, sx: int, py: int, px: int) -> Tensor:
    (B, H, W, _), (O, _, k, _) = x.shape, weight.shape  # noqa: E741
    return x.new_empty(B, output_length(H, k, sy, py), output_length(W, k, sx, px), O)


def _flops(x: Any, weight: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
    return int(2 * prod(out_shape[:3]) * prod(weight))


register(
    "conv2d_tanh",
    "(Tensor x, Tensor weight, Tensor shift, int sy, int sx, int py, int px) -> Tensor",
    _fake,
    _flops,
)
