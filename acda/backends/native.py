"""The fused CPU kernel (C++ beside this file), as torch operators with gradients, shapes and costs.

Atoms, z and patches never exist for more than a few hundred pixels: the forward pass allocates its result, training
keeps x, the coefficients and the parameters, and the backward pass recomputes the rest.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import register_flop_formula

from acda.backends.reference import needs_grad
from acda.backends.sources import digest_of
from acda.window import Window

# Pixel-major: x (B, H, W, C), coefficients (B, P, Q, M, L), result (B, P, Q, O). Without mixing the result is z,
# channel c·M + m. The planar form has x (B, C, H, W) and result (B, O, P, Q), and no gradient. The numbers are
# kernel side, stride, padding and dilation (vertical, horizontal), groups.
# The rest are Φ's steps, maps pixel-major too: conv2d_tanh the whole of one, without gradient; conv2d (stride 1) and
# norm_tanh its two halves in training. norm_tanh takes the batch's own statistics unless others are given, and returns
# those that it took.
_OPERANDS = "Tensor x, Tensor coefficients, Tensor? bases, Tensor? mixing"
_NUMBERS = "int k, int sy, int sx, int py, int px, int dy, int dx, int groups"
SCHEMAS = {
    "adaptive_conv2d": f"({_OPERANDS}, Tensor? bias, {_NUMBERS}) -> Tensor",
    "adaptive_conv2d_backward": f"(Tensor grad, {_OPERANDS}, {_NUMBERS}) -> (Tensor, Tensor, Tensor, Tensor)",
    "adaptive_conv2d_planar": f"({_OPERANDS.replace('? mixing', ' mixing')}, Tensor? bias, {_NUMBERS}) -> Tensor",
    "conv2d_tanh": "(Tensor x, Tensor weight, Tensor shift, int sy, int sx, int py, int px) -> Tensor",
    "conv2d": "(Tensor x, Tensor weight, int py, int px) -> Tensor",
    "conv2d_backward": "(Tensor grad, Tensor x, Tensor weight, int py, int px, bool input) -> (Tensor, Tensor)",
    "norm_tanh": "(Tensor u, Tensor weight, Tensor bias, Tensor? mean, Tensor? var, float eps)"
    " -> (Tensor, Tensor, Tensor)",
    "norm_tanh_backward": "(Tensor grad, Tensor y, Tensor u, Tensor weight, Tensor mean, Tensor var, float eps, "
    "bool fixed) -> (Tensor, Tensor, Tensor)",
    "vector_bytes": "() -> int",
    "poison_scratch": "(bool on) -> ()",
    "use_winograd": "(bool on) -> bool",
    "sources": "() -> int",
}

MEND = "With torch and a C++ compiler, in a checkout: pip install --no-build-isolation --force-reinstall --no-deps ."


def adaptive_conv2d(
    x: Tensor, alpha: Tensor, bases: Tensor | None, mixing: Tensor, bias: Tensor | None, window: Window, groups: int
) -> Tensor:
    """As reference.adaptive_conv2d; the result has the memory format of the input, or is channels_last in training."""
    rest = (_PixelMajor.apply(alpha), _dense(bases), mixing.contiguous(), _dense(bias), *_numbers(window), groups)
    if x.is_contiguous() and not needs_grad(x, alpha, mixing, bias):
        return torch.ops.acda.adaptive_conv2d_planar(x, *rest)
    return torch.ops.acda.adaptive_conv2d(_PixelMajor.apply(x), *rest).permute(0, 3, 1, 2)


def per_pixel_conv2d(x: Tensor, filters: Tensor, window: Window) -> Tensor:
    """As reference.per_pixel_conv2d; the result is channels_last."""
    filters = _PixelMajor.apply(filters.flatten(2, 3))
    z = torch.ops.acda.adaptive_conv2d(_PixelMajor.apply(x), filters, None, None, None, *_numbers(window), 1)
    return z.permute(0, 3, 1, 2)


def conv2d_tanh(x: Tensor, weight: Tensor, shift: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor:
    """tanh(F.conv2d(…)) without gradients, in one pass; the result is channels_last."""
    dense = x.permute(0, 2, 3, 1).contiguous(), weight.contiguous(), shift.contiguous()
    return torch.ops.acda.conv2d_tanh(*dense, *stride, *padding).permute(0, 3, 1, 2)


def conv2d(x: Tensor, weight: Tensor, padding: tuple[int, int]) -> Tensor:
    """F.conv2d of stride 1 with gradients, padding smaller than the window; the result is channels_last."""
    return torch.ops.acda.conv2d(_PixelMajor.apply(x), weight.contiguous(), *padding).permute(0, 3, 1, 2)


def norm_tanh(
    u: Tensor, weight: Tensor, bias: Tensor, mean: Tensor | None, var: Tensor | None, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """tanh of F.batch_norm with these statistics, or with the batch's own; returns it in channels_last, mean, var."""
    numbers = (_dense(t) for t in (weight, bias, mean, var))
    y, mean, var = torch.ops.acda.norm_tanh(_PixelMajor.apply(u), *numbers, eps)
    return y.permute(0, 3, 1, 2), mean, var


def why_not(x: Tensor, bases: Tensor | None = None, insisted: bool = False) -> str | None:
    """The reason why the kernel cannot take these tensors, or None when it can.

    insisted: the caller asked for this kernel, and so for its operators in an exported program too.
    """
    if x.is_meta:
        return None  # nothing is computed: the operator as one piece tells shapes and costs
    if MISSING:
        return MISSING
    if x.device.type != "cpu":
        return f"it runs on the CPU; the input is on {x.device}"
    if bases is not None and bases.requires_grad and torch.is_grad_enabled():
        return "it has no gradient for learnable bases"
    return why_not_transformed(insisted)


def why_not_transformed(insisted: bool) -> str | None:
    """The reason why no operator of ours can run while torch exports, traces or transforms a function, or None."""
    if torch.compiler.is_exporting() and not insisted:
        return "an exported program consists of standard operations"
    if torch._C._get_tracing_state() is not None:
        return "a traced program consists of standard operations"
    if torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0:
        return "it has no rule for vmap and forward-mode derivatives"
    return None


@contextmanager
def exact_shifts() -> Iterator[None]:
    """Compute Φ's 3×3 convolutions directly, so that shifting the input shifts the output bit for bit.

    Winograd's form, the default in float32, is about three times faster, and shifts to rounding. It also spreads a NaN
    over a tile of 4×4 pixels. The environment variable ACDA_WINOGRAD=0 chooses the direct form for a whole process.
    """
    if MISSING:
        yield
        return
    before = torch.ops.acda.use_winograd(False)
    try:
        yield
    finally:
        torch.ops.acda.use_winograd(before)


def say_once_that_it_is_slow() -> None:
    """One warning a process where the kernel is missing: the results are right, the speed is not what it could be."""
    global _said
    if MISSING and not _said and not torch.compiler.is_compiling():
        _said = True
        warnings.warn(f"acda runs in plain torch, several times slower than its CPU kernel: {MISSING}", stacklevel=5)


class _PixelMajor(torch.autograd.Function):
    """(B, …, P, Q) → (B, P, Q, …), dense; a channels_last tensor is not copied.

    The gradient has the layout of the input. That is more than tidy: torch 2.15's BatchNorm returns wrong gradients
    when a contiguous input meets a gradient in channels_last whose stride along a batch of one is not the usual one,
    and a reshape in between produces such strides.
    """

    # In this form, without setup_context, apply does not inspect the signature of forward at every call.
    @staticmethod
    def forward(ctx: Any, t: Tensor) -> Tensor:
        pixel_major = t.movedim((-2, -1), (1, 2))
        ctx.was_pixel_major = pixel_major.is_contiguous()
        return pixel_major.contiguous()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        grad = grad.movedim((1, 2), (-2, -1))
        return grad if ctx.was_pixel_major else grad.contiguous()


def _dense(t: Tensor | None) -> Tensor | None:
    return None if t is None else t.contiguous()


def _numbers(window: Window) -> tuple[int, ...]:
    return window.side, *window.stride, *window.padding, *window.dilation


def _output_channels(x: Tensor, alpha: Tensor, mixing: Tensor | None) -> int:
    return x.shape[3] * alpha.shape[3] if mixing is None else mixing.shape[0]


def _load() -> str | None:
    """Load the compiled kernel; returns what is wrong when there is none."""
    libraries = sorted(Path(__file__).parent.glob("_native*.so"))
    if not libraries:
        return f"it was not compiled when acda was installed. {MEND}"
    try:
        torch.ops.load_library(libraries[0])
    except OSError as error:
        return f"it does not load ({error}). {MEND}"
    if (sources := Path(__file__).parent / "csrc").is_dir() and not _is_made_from(sources):
        return "it was compiled from other sources than those beside it. In the checkout: make install"
    return None


def _is_made_from(sources: Path) -> bool:
    """Whether the kernel that was loaded is compiled from these files: setup.py tells it their digest."""
    try:
        return bool(torch.ops.acda.sources() == digest_of(sources))
    except NotImplementedError:
        return False  # it is older than the question


def _register() -> None:
    """Tell torch the operators, with a kernel behind them or without: schemas, shapes, gradients, multiply-adds."""
    for name, schema in SCHEMAS.items():
        torch.library.define(f"acda::{name}", schema)
    forward, backward = torch.ops.acda.adaptive_conv2d, torch.ops.acda.adaptive_conv2d_backward

    @torch.library.register_fake("acda::adaptive_conv2d")  # type: ignore[untyped-decorator]
    def _(x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor | None, bias: Any, *numbers: int) -> Tensor:
        return x.new_empty(*alpha.shape[:3], _output_channels(x, alpha, mixing))

    @torch.library.register_fake("acda::adaptive_conv2d_planar")  # type: ignore[untyped-decorator]
    def _(x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor, *rest: Any) -> Tensor:
        return x.new_empty(x.shape[0], mixing.shape[0], *alpha.shape[1:3])

    @torch.library.register_fake("acda::adaptive_conv2d_backward")  # type: ignore[untyped-decorator]
    def _(
        grad: Tensor, x: Tensor, alpha: Tensor, bases: Any, mixing: Tensor | None, *numbers: int
    ) -> tuple[Tensor, ...]:
        C, M, groups = x.shape[3], alpha.shape[3], numbers[-1]
        O = 0 if mixing is None else mixing.shape[0]  # noqa: E741
        return torch.empty_like(x), torch.empty_like(alpha), x.new_empty(O, C // groups, M), x.new_empty(O)

    @torch.library.register_fake("acda::conv2d_tanh")  # type: ignore[untyped-decorator]
    def _(x: Tensor, weight: Tensor, shift: Tensor, sy: int, sx: int, py: int, px: int) -> Tensor:
        (B, H, W, _), (O, _, k, _) = x.shape, weight.shape  # noqa: E741
        return x.new_empty(B, (H + 2 * py - k) // sy + 1, (W + 2 * px - k) // sx + 1, O)

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, alpha, bases, mixing, bias, *ctx.numbers = inputs
        ctx.save_for_backward(x, alpha, bases, mixing)
        ctx.has_bias = bias is not None

    def differentiate(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, alpha, bases, mixing = ctx.saved_tensors
        dx, dalpha, dmixing, dbias = backward(grad.contiguous(), x, alpha, bases, mixing, *ctx.numbers)
        return (
            dx,
            dalpha,
            None,
            None if mixing is None else dmixing,
            dbias if ctx.has_bias else None,
            *[None] * len(ctx.numbers),
        )

    torch.library.register_autograd("acda::adaptive_conv2d", differentiate, setup_context=keep)

    @torch.library.register_fake("acda::conv2d")  # type: ignore[untyped-decorator]
    def _(x: Tensor, weight: Tensor, py: int, px: int) -> Tensor:
        (B, H, W, _), (O, _, k, _) = x.shape, weight.shape  # noqa: E741
        return x.new_empty(B, H + 2 * py - k + 1, W + 2 * px - k + 1, O)

    @torch.library.register_fake("acda::conv2d_backward")  # type: ignore[untyped-decorator]
    def _(grad: Tensor, x: Tensor, weight: Tensor, py: int, px: int, input: bool) -> tuple[Tensor, Tensor]:
        return x.new_empty(x.shape[0] if input else 0, *x.shape[1:]), torch.empty_like(weight)

    def keep_conv(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x, weight, *ctx.padding = inputs
        ctx.save_for_backward(x, weight)

    def differentiate_conv(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        needs_input = ctx.needs_input_grad[0]
        dx, dweight = torch.ops.acda.conv2d_backward(grad.contiguous(), *ctx.saved_tensors, *ctx.padding, needs_input)
        return dx if needs_input else None, dweight, None, None

    torch.library.register_autograd("acda::conv2d", differentiate_conv, setup_context=keep_conv)

    @torch.library.register_fake("acda::norm_tanh")  # type: ignore[untyped-decorator]
    def _(u: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return torch.empty_like(u), torch.empty_like(weight), torch.empty_like(weight)

    @torch.library.register_fake("acda::norm_tanh_backward")  # type: ignore[untyped-decorator]
    def _(grad: Tensor, y: Tensor, u: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor, ...]:
        return torch.empty_like(u), torch.empty_like(weight), torch.empty_like(weight)

    def keep_norm(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        u, weight, _, given, _, ctx.eps = inputs
        y, mean, var = output
        ctx.fixed = given is not None
        ctx.mark_non_differentiable(mean, var)
        ctx.save_for_backward(y, u, weight, mean, var)

    def differentiate_norm(ctx: Any, grad: Tensor, *statistics: Any) -> tuple[Tensor | None, ...]:
        du, dweight, dbias = torch.ops.acda.norm_tanh_backward(
            grad.contiguous(), *ctx.saved_tensors, ctx.eps, ctx.fixed
        )
        return du, dweight, dbias, None, None, None

    torch.library.register_autograd("acda::norm_tanh", differentiate_norm, setup_context=keep_norm)

    def refuse(ctx: Any, *grads: Tensor) -> None:
        raise NotImplementedError(
            "acda's native kernel has first derivatives only. "
            'For second derivatives set layer.backend = "reference", or pass backend="reference" to acda.functional.'
        )

    for name in ("adaptive_conv2d_backward", "conv2d_backward", "norm_tanh_backward"):
        torch.library.register_autograd(f"acda::{name}", refuse, setup_context=lambda ctx, inputs, output: None)

    @register_flop_formula(forward)
    def _(x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        return 2 * _multiply_adds(x, alpha, bases, mixing)

    @register_flop_formula(torch.ops.acda.adaptive_conv2d_planar)
    def _(x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        return 2 * _multiply_adds(x, alpha, bases, mixing, channels=1)

    @register_flop_formula(torch.ops.acda.conv2d_tanh)
    def _(x: Any, weight: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        return int(2 * prod(out_shape[:3]) * prod(weight))

    @register_flop_formula(torch.ops.acda.conv2d)
    def _(x: Any, weight: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        return int(2 * prod(out_shape[:3]) * prod(weight))

    @register_flop_formula(torch.ops.acda.conv2d_backward)
    def _(grad: Any, x: Any, weight: Any, py: int, px: int, input: bool, **_: Any) -> int:
        return int(2 * (1 + input) * prod(grad[:3]) * prod(weight))

    @register_flop_formula(backward)
    def _(grad: Any, x: Any, alpha: Any, bases: Any, mixing: Any, *rest: Any, out_shape: Any = None, **_: Any) -> int:
        # Two products for every one of the forward pass; what is recomputed does not count, as with checkpointing.
        return 4 * _multiply_adds(x, alpha, bases, mixing)


def _multiply_adds(x: Any, alpha: Any, bases: Any, mixing: Any, channels: int = 3) -> int:
    """From shapes: compose the atoms, apply them, mix. `channels` is the dimension of x that holds them."""
    (B, P, Q, M, L), C = alpha, x[channels]
    taps = L if bases is None else bases[1] * bases[2]
    compose = 0 if bases is None else M * L * taps
    mix = 0 if mixing is None else mixing[0] * mixing[1] * M
    return int(B * P * Q * (compose + C * M * taps + mix))


_register()
# What is wrong with the kernel of this installation, or None.
MISSING = _load()
_said = False
