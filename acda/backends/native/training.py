"""acda::adaptive_layer_training, a whole layer in training: Φ with its normalisations, and the operator.

It keeps the input and the maps of Φ before each normalisation. The backward pass recomputes the rest in scratch
memory. The results are those of the separate operators, bit for bit. Pixel-major, stride 1.

Besides the result y, the operator returns what the backward pass needs of each step of Φ: u, the map before its
normalisation, and `facts` (4, channels): mean, variance, and the scale and shift that follow from them.
"""

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor

from acda.backends.native.adaptive import NUMBERS, multiply_adds
from acda.backends.native.layouts import PixelMajor, dense, numbers, output_size
from acda.backends.native.norm_tanh import update_running
from acda.backends.native.registering import register, register_backward
from acda.window import Window

# The weight of a convolution of Φ, then what F.batch_norm takes after the map: running mean, running variance, weight,
# bias, whether to use the statistics of the batch, momentum, eps.
NormStep = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, bool, float, float]


class Step(NamedTuple):
    """A step of Φ as the operator takes it. mean, var: None for those of the batch"""

    conv: Any
    weight: Any
    bias: Any
    mean: Any
    var: Any
    eps: Any


class Arguments(NamedTuple):
    """The arguments of the operator in the order of its schema: tensors, their shapes, or their gradients."""

    x: Any
    squeeze: Step
    predict: Step
    bases: Any
    mixing: Any
    bias: Any
    window: tuple[Any, ...]
    groups: Any

    @classmethod
    def of(cls, x: Any, *rest: Any) -> "Arguments":
        squeeze, predict, (bases, mixing, bias, *window, groups) = rest[:6], rest[6:12], rest[12:]
        return cls(x, Step(*squeeze), Step(*predict), bases, mixing, bias, tuple(window), groups)

    def flat(self) -> tuple[Any, ...]:
        x, squeeze, predict, bases, mixing, bias, window, groups = self
        return x, *squeeze, *predict, bases, mixing, bias, *window, groups


def train_layer(
    x: Tensor,
    squeeze: NormStep,
    predict: NormStep,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
) -> Tensor:
    """The layer with zeros around the map; squeeze is 1×1, predict 3×3, stride 1. The result is channels_last.

    Updates the running statistics of the steps that use those of the batch.
    """
    steps = _as_operands(squeeze), _as_operands(predict)
    parameters = (dense(bases), mixing.contiguous(), dense(bias))
    given = Arguments(PixelMajor.apply(x), *steps, *parameters, numbers(window), groups)
    y, u1, facts1, u2, facts2 = torch.ops.acda.adaptive_layer_training(*given.flat())
    _update(squeeze, u1, facts1)
    _update(predict, u2, facts2)
    return y.permute(0, 3, 1, 2)


def _as_operands(step: NormStep) -> Step:
    conv, running_mean, running_var, weight, bias, uses_batch, _, eps = step
    mean, var = (None, None) if uses_batch else (dense(running_mean), dense(running_var))
    return Step(dense(conv), dense(weight), dense(bias), mean, var, eps)


def _update(step: NormStep, u: Tensor, facts: Tensor) -> None:
    _, running_mean, running_var, _, _, uses_batch, momentum, _ = step
    if uses_batch:
        values = u.shape[0] * u.shape[1] * u.shape[2]
        update_running(running_mean, running_var, facts[0], facts[1], values, momentum)


def _fake(*arguments: Any) -> tuple[Tensor, ...]:
    x, squeeze, predict, _, mixing, _, window, _ = Arguments.of(*arguments)
    B, H, W, _ = x.shape
    P, Q = output_size(H, W, *window)
    hidden, maps = squeeze.conv.shape[0], predict.conv.shape[0]
    shapes = ((B, P, Q, mixing.shape[0]), (B, H, W, hidden), (4, hidden), (B, P, Q, maps), (4, maps))
    return tuple(x.new_empty(shape) for shape in shapes)


def _flops(*arguments: Any, **options: Any) -> int:
    x, squeeze, predict, bases, mixing, _, window, _ = Arguments.of(*arguments)
    B, H, W, _ = x
    P, Q = output_size(H, W, *window)
    steps = B * H * W * prod(squeeze.conv) + B * P * Q * prod(predict.conv)
    return int(2 * (steps + multiply_adds(x, _alpha_of(B, P, Q, predict.conv, mixing), bases, mixing)))


def _alpha_of(B: int, P: int, Q: int, predict: Any, mixing: Any) -> tuple[int, ...]:
    """The shape of the coefficients, from that of the convolution that predicts them."""
    M = mixing[2]
    return B, P, Q, M, predict[0] // M


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    given, (_, *maps) = Arguments.of(*inputs), output
    ctx.has_bias = given.bias is not None
    ctx.fixed = given.squeeze.mean is not None, given.predict.mean is not None
    ctx.eps = given.squeeze.eps, given.predict.eps
    ctx.numbers = (*given.window, given.groups)
    ctx.mark_non_differentiable(*maps)
    ctx.set_materialize_grads(False)  # else every step fills maps of zeros, as large as Φ's, for gradients nobody reads
    ctx.save_for_backward(*maps, given.x, *given.squeeze[:3], *given.predict[:3], given.bases, given.mixing)


def _differentiate(ctx: Any, grad: Tensor, *others: Any) -> tuple[Tensor | None, ...]:
    *maps, x, squeeze, weight1, bias1, predict, weight2, bias2, bases, mixing = ctx.saved_tensors
    (fixed1, fixed2), (eps1, eps2), needs_input = ctx.fixed, ctx.eps, ctx.needs_input_grad[0]
    steps = (squeeze, weight1, bias1, fixed1, eps1, predict, weight2, bias2, fixed2, eps2)
    backward = torch.ops.acda.adaptive_layer_training_backward
    dx, dsqueeze, dweight1, dbias1, dpredict, dweight2, dbias2, dmixing, dbias = backward(
        grad.contiguous(), *maps, x, *steps, bases, mixing, *ctx.numbers, needs_input
    )
    *window, groups = [None] * len(ctx.numbers)
    return Arguments(
        dx if needs_input else None,
        Step(dsqueeze, dweight1, dbias1, None, None, None),
        Step(dpredict, dweight2, dbias2, None, None, None),
        None,
        dmixing,
        dbias if ctx.has_bias else None,
        tuple(window),
        groups,
    ).flat()


def _fake_backward(grad: Tensor, u1: Any, facts1: Any, u2: Any, facts2: Any, x: Tensor, *rest: Any) -> Any:
    squeeze, weight1, bias1, _, _, predict, weight2, bias2, _, _, _, mixing, *_ = rest
    like_inputs = (torch.empty_like(t) for t in (x, squeeze, weight1, bias1, predict, weight2, bias2, mixing))
    return *like_inputs, x.new_empty(mixing.shape[0])


def _flops_backward(grad: Any, u1: Any, facts1: Any, u2: Any, facts2: Any, x: Any, *rest: Any, **options: Any) -> int:
    squeeze, _, _, _, _, predict, _, _, _, _, bases, mixing, *_, needs_input = rest
    (B, P, Q, _), pixels = grad, prod(x[:3])
    # Two products for every one of the forward pass, but for the gradient of an input that needs none.
    steps = (1 + needs_input) * pixels * prod(squeeze) + 2 * B * P * Q * prod(predict)
    return int(2 * steps + 4 * multiply_adds(x, _alpha_of(B, P, Q, predict, mixing), bases, mixing))


register(
    "adaptive_layer_training",
    "(Tensor x,"
    " Tensor squeeze, Tensor weight1, Tensor bias1, Tensor? mean1, Tensor? var1, float eps1,"
    " Tensor predict, Tensor weight2, Tensor bias2, Tensor? mean2, Tensor? var2, float eps2,"
    f" Tensor? bases, Tensor mixing, Tensor? bias, {NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fake,
    _flops,
    _keep,
    _differentiate,
)
register_backward(
    "adaptive_layer_training_backward",
    "(Tensor grad, Tensor u1, Tensor facts1, Tensor u2, Tensor facts2, Tensor x,"
    " Tensor squeeze, Tensor weight1, Tensor bias1, bool fixed1, float eps1,"
    " Tensor predict, Tensor weight2, Tensor bias2, bool fixed2, float eps2,"
    f" Tensor? bases, Tensor mixing, {NUMBERS}, bool input)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _fake_backward,
    _flops_backward,
)
