"""acda::adaptive_layer_training, a whole layer in training: Φ with its normalisations, and the operator.

It keeps the input and the maps of Φ before each normalisation; the backward pass recomputes the rest in memory that
stays with the kernel. The same numbers as the separate operators give, bit for bit. Pixel-major, stride 1.
"""

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acda.backends.native.adaptive import NUMBERS, multiply_adds
from acda.backends.native.layouts import PixelMajor, dense, numbers
from acda.backends.native.registering import register, register_backward
from acda.window import Window


class NormStep(NamedTuple):
    """A convolution of Φ and its normalisation. mean, var: fixed statistics; None: those of the batch."""

    conv: Tensor
    weight: Tensor
    bias: Tensor
    mean: Tensor | None
    var: Tensor | None
    eps: float


# Mean and variance (divided by the number of values) that a normalisation used.
Statistics = tuple[Tensor, Tensor]


def train_layer(
    x: Tensor,
    squeeze: NormStep,
    predict: NormStep,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
) -> tuple[Tensor, Statistics, Statistics]:
    """The layer with zeros around the map, and the statistics of both steps; squeeze is 1×1, predict 3×3, stride 1.

    The result is channels_last.
    """
    steps = (t if isinstance(t, float) else dense(t) for t in (*squeeze, *predict))
    rest = (*steps, dense(bases), mixing.contiguous(), dense(bias), *numbers(window), groups)
    y, _, facts1, _, facts2 = torch.ops.acda.adaptive_layer_training(PixelMajor.apply(x), *rest)
    return y.permute(0, 3, 1, 2), (facts1[0], facts1[1]), (facts2[0], facts2[1])


def _output_size(x: Sequence[int], k: int, sy: int, sx: int, py: int, px: int, dy: int, dx: int) -> tuple[int, int]:
    return x[1] + 2 * py - dy * (k - 1), x[2] + 2 * px - dx * (k - 1)


def _fake(x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    squeeze, predict, mixing, window = rest[0], rest[6], rest[13], rest[15:22]
    P, Q = _output_size(x.shape, *window)
    B, H, W, _ = x.shape
    hidden, maps = squeeze.shape[0], predict.shape[0]
    shapes = ((B, P, Q, mixing.shape[0]), (B, H, W, hidden), (4, hidden), (B, P, Q, maps), (4, maps))
    return tuple(x.new_empty(shape) for shape in shapes)


def _flops(x: Any, *rest: Any, **_: Any) -> int:
    squeeze, predict, bases, mixing, window = rest[0], rest[6], rest[12], rest[13], rest[15:22]
    P, Q = _output_size(x, *window)
    M = mixing[2]
    alpha = (x[0], P, Q, M, predict[0] // M)
    steps = prod(x[:3]) * prod(squeeze) + x[0] * P * Q * prod(predict)
    return int(2 * (steps + multiply_adds(x, alpha, bases, mixing)))


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, squeeze, weight1, bias1, mean1, _, ctx.eps1, predict, weight2, bias2, mean2, _, ctx.eps2, bases, mixing, bias = (
        inputs[:16]
    )
    ctx.numbers, ctx.has_bias, ctx.fixed = inputs[16:], bias is not None, (mean1 is not None, mean2 is not None)
    ctx.mark_non_differentiable(*output[1:])
    ctx.save_for_backward(*output[1:], x, squeeze, weight1, bias1, predict, weight2, bias2, bases, mixing)


def _differentiate(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    *maps, x, squeeze, weight1, bias1, predict, weight2, bias2, bases, mixing = ctx.saved_tensors
    first, second = (squeeze, weight1, bias1, ctx.fixed[0], ctx.eps1), (predict, weight2, bias2, ctx.fixed[1], ctx.eps2)
    backward = torch.ops.acda.adaptive_layer_training_backward
    input = ctx.needs_input_grad[0]
    found = backward(grad.contiguous(), *maps, x, *first, *second, bases, mixing, *ctx.numbers, input)
    dx, *step1 = found[:4]
    *step2, dmixing, dbias = found[4:]
    nothing = (None, None, None)
    parameters = (*step1, *nothing, *step2, *nothing, None, dmixing, dbias if ctx.has_bias else None)
    return dx if input else None, *parameters, *[None] * len(ctx.numbers)


def _fake_backward(grad: Tensor, u1: Any, f1: Any, u2: Any, f2: Any, x: Tensor, *rest: Any) -> tuple[Tensor, ...]:
    squeeze, weight1, bias1, _, _, predict, weight2, bias2, _, _, _, mixing = rest[:12]
    shaped = (x, squeeze, weight1, bias1, predict, weight2, bias2, mixing)
    return *(torch.empty_like(t) for t in shaped), x.new_empty(mixing.shape[0])


def _flops_backward(grad: Any, u1: Any, f1: Any, u2: Any, f2: Any, x: Any, *rest: Any, **_: Any) -> int:
    squeeze, predict, bases, mixing, input = rest[0], rest[5], rest[10], rest[11], rest[-1]
    alpha = (*grad[:3], mixing[2], predict[0] // mixing[2])
    steps = (1 + input) * prod(x[:3]) * prod(squeeze) + 2 * prod(grad[:3]) * prod(predict)
    return int(2 * steps + 4 * multiply_adds(x, alpha, bases, mixing))


def _step(name: str, given: str) -> str:
    number = "1" if name == "squeeze" else "2"
    return f"Tensor {name}, Tensor weight{number}, Tensor bias{number}, " + given.format(n=number)


TENSORS = "Tensor? mean{n}, Tensor? var{n}, float eps{n}"
FACTS = "bool fixed{n}, float eps{n}"
register(
    "adaptive_layer_training",
    f"(Tensor x, {_step('squeeze', TENSORS)}, {_step('predict', TENSORS)}, Tensor? bases, Tensor mixing, Tensor? bias, "
    f"{NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fake,
    _flops,
    _keep,
    _differentiate,
)
register_backward(
    "adaptive_layer_training_backward",
    f"(Tensor grad, Tensor u1, Tensor facts1, Tensor u2, Tensor facts2, Tensor x, {_step('squeeze', FACTS)}, "
    f"{_step('predict', FACTS)}, Tensor? bases, Tensor mixing, {NUMBERS}, bool input) -> "
    "(" + ", ".join(["Tensor"] * 9) + ")",
    _fake_backward,
    _flops_backward,
)
