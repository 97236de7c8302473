"""acda::adaptive_layer, a whole layer in inference: Φ's two steps and the operator. It has no gradient.

It computes a few rows at a time, so neither Φ's hidden map nor the coefficients ever exist as a whole. The result is
that of the three separate operators, bit for bit. Pixel-major or planar, as x is.
"""

from math import prod
from typing import Any

import torch
from torch import Tensor

from acda.backends.native.adaptive import NUMBERS
from acda.backends.native.layouts import dense, numbers, output_size
from acda.backends.native.registering import register
from acda.window import Window

# Weight and shift of a step of Φ that include its normalisation.
Step = tuple[Tensor, Tensor]


def adaptive_layer(
    x: Tensor,
    squeeze: Step,
    predict: Step,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
) -> Tensor:
    """The layer with zeros around the map; squeeze is 1×1, predict 3×3. The result has the memory format of x."""
    parameters = (*(t.contiguous() for t in (*squeeze, *predict)), dense(bases), mixing.contiguous(), dense(bias))
    rest = (*parameters, *numbers(window), groups)
    if x.is_contiguous():
        return torch.ops.acda.adaptive_layer(x, *rest, True)
    pixel_major = x.permute(0, 2, 3, 1).contiguous()
    return torch.ops.acda.adaptive_layer(pixel_major, *rest, False).permute(0, 3, 1, 2)


def _fake(x: Tensor, squeeze: Any, _1: Any, predict: Any, _2: Any, bases: Any, mixing: Tensor, *rest: Any) -> Tensor:
    _, *window, _, planar = rest
    B, O = x.shape[0], mixing.shape[0]  # noqa: E741
    P, Q = output_size(*(x.shape[2:] if planar else x.shape[1:3]), *window)
    return x.new_empty((B, O, P, Q) if planar else (B, P, Q, O))


def _flops(x: Any, squeeze: Any, _1: Any, predict: Any, _2: Any, bases: Any, mixing: Any, *rest: Any, **_: Any) -> int:
    _, *window, _, planar = rest
    B, C = x[0], x[1 if planar else 3]
    height, width = x[2:] if planar else x[1:3]
    P, Q = output_size(height, width, *window)
    O, per_group, M = mixing  # noqa: E741
    compose = 0 if bases is None else M * prod(bases)
    taps = window[0] ** 2
    return int(
        2 * B * (height * width * prod(squeeze) + P * Q * (prod(predict) + compose + M * (C * taps + O * per_group)))
    )


STEPS = "Tensor squeeze, Tensor squeeze_shift, Tensor predict, Tensor predict_shift"
register(
    "adaptive_layer",
    f"(Tensor x, {STEPS}, Tensor? bases, Tensor mixing, Tensor? bias, {NUMBERS}, bool planar) -> Tensor",
    _fake,
    _flops,
)
