"""Φ by a backend: each step, convolve, normalise and squash, as one or two operations instead of three modules.

Everything that decides whether this is allowed is in this file. The modules of Φ stay ordinary ones, because pruning,
parametrization, convert_sync_batchnorm and hooks work on those. A fused operation does not call the modules, so this
file checks first that calling them would do nothing else.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from acda.backends import Backend
from acda.backends.calling import autocast_on
from acda.layers.batch_norm import ForgivingBatchNorm2d
from acda.layers.conv_like import has_hooks
from acda.layers.generator import AtomGenerator, plain_step
from acda.window import Window

# Weight and shift of a convolution that includes its normalisation.
Folded = tuple[Tensor, Tensor]
# Running mean, running variance, weight, bias, whether to use the statistics of the batch, momentum, eps.
Normalisation = tuple[Tensor, Tensor, Tensor, Tensor, bool, float, float]


def predict(phi: nn.Module, x: Tensor, kernels: Backend) -> Tensor:
    """phi(x), with the steps of an AtomGenerator computed by the backend. Any other Φ is called with x alone."""
    return phi(x, step=partial(fused_step, kernels=kernels)) if _is_ours(phi) else phi(x)


def whole_layer(
    phi: nn.Module,
    x: Tensor,
    bases: Tensor | None,
    mixing: Tensor,
    bias: Tensor | None,
    window: Window,
    groups: int,
    kernels: Backend,
) -> Tensor | None:
    """Φ and the operator as one operation of the backend; None where it has none for this Φ or these tensors."""
    if not isinstance(phi, AtomGenerator) or not _is_standard(phi, x):
        return None
    maps = mixing.shape[2] * (window.side**2 if bases is None else bases.shape[0])
    if phi.window != window or phi.predict.out_channels != maps or (bases is not None and bases.dtype != x.dtype):
        return None
    run = _trained_whole if torch.is_grad_enabled() else _inferred_whole
    return run(phi, x, (bases, mixing, bias, window, groups), kernels)


def _inferred_whole(phi: AtomGenerator, x: Tensor, operands: tuple[Any, ...], kernels: Backend) -> Tensor | None:
    if kernels.adaptive_layer is None or phi.squeeze_norm.training or phi.predict_norm.training:
        return None
    phi.check_fit(x)
    steps = _fold(phi.squeeze, phi.squeeze_norm), _fold(phi.predict, phi.predict_norm)
    return kernels.adaptive_layer(x, *steps, *operands)


def _trained_whole(phi: AtomGenerator, x: Tensor, operands: tuple[Any, ...], kernels: Backend) -> Tensor | None:
    if kernels.train_layer is None or not _is_trainable_whole(phi, x):
        return None
    phi.check_fit(x)
    B, _, H, W = x.shape
    P, Q = phi.window.output_size(H, W)
    squeeze = phi.squeeze.weight, *_as_called(phi.squeeze_norm, B * H * W)
    predict = phi.predict.weight, *_as_called(phi.predict_norm, B * P * Q)
    return kernels.train_layer(x, squeeze, predict, *operands)


def _is_standard(phi: AtomGenerator, x: Tensor) -> bool:
    """Whether Φ has the form that whole layers have: two steps, 1×1 and 3×3, with zeros around the map; no hooks."""
    return (
        _is_ours(phi)
        and not has_hooks(phi)
        and x.dtype in (torch.float32, torch.float64)
        and not autocast_on(x)
        and _as_made(phi.squeeze, phi.squeeze_norm)
        and _as_made(phi.predict, phi.predict_norm)
        and not phi.per_image
        and phi.padding_mode == "zeros"
        and phi.squeeze.kernel_size == (1, 1)
    )


def _is_trainable_whole(phi: AtomGenerator, x: Tensor) -> bool:
    """Whether a parameter of Φ needs a gradient, and stride, padding and dtypes are those of train_layer."""
    parameters = list(phi.parameters())
    # How far outside the map the 3×3 windows begin.
    margins = (p - r + 1 for p, r in zip(phi.window.padding, phi.window.reach, strict=True))
    return (
        phi.window.stride == (1, 1)
        and max(margins) < 3
        and x.numel() > 0
        and all(parameter.dtype == x.dtype for parameter in parameters)
        and any(parameter.requires_grad for parameter in parameters)
    )


def fused_step(x: Tensor, conv: nn.Module, norm: nn.Module, padding: tuple[int, int], kernels: Backend) -> Tensor:
    """plain_step by the backend, or plain_step itself where the modules were changed or have hooks.

    The backend reads the parameters of the two modules. It passes over the map once if the statistics are fixed and
    there is nothing to differentiate, otherwise twice.
    """
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, ForgivingBatchNorm2d) or not _as_made(conv, norm):
        return plain_step(x, conv, norm, padding)
    stride = conv.stride[0], conv.stride[1]
    if norm.training or not _may_fold():
        return _norm_tanh(kernels.conv2d(x, conv.weight, stride, padding), norm, kernels)
    return kernels.conv2d_tanh(x, *_fold(conv, norm), stride, padding)


def _norm_tanh(x: Tensor, norm: ForgivingBatchNorm2d, kernels: Backend) -> Tensor:
    """The Tanh of norm(x), with the effects of that call on the running statistics."""
    return kernels.batch_norm_tanh(x, *_as_called(norm, x.shape[0] * x.shape[2] * x.shape[3]))


def _as_called(norm: ForgivingBatchNorm2d, values: int) -> Normalisation:
    """What norm passes to F.batch_norm for a map with so many values per channel. Counts the batch, as norm does."""
    mean, var, batches, momentum = norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.momentum
    assert mean is not None
    assert var is not None
    assert batches is not None
    assert momentum is not None
    uses_batch = norm.uses_batch(values)
    if uses_batch:
        with torch.no_grad():
            batches.add_(1)
    return mean, var, norm.weight, norm.bias, uses_batch, momentum, norm.eps


def _is_ours(phi: nn.Module) -> bool:
    """Whether phi computes what AtomGenerator.forward says. A class derived from it may take nothing but the map."""
    return type(phi) is AtomGenerator and "forward" not in vars(phi)


def _as_made(conv: nn.Module, norm: nn.Module) -> bool:
    """Whether the two are as AtomGenerator makes them, and have no hooks.

    Parametrizations change a module's type; pruning and the older weight norms are hooks.
    """
    return (
        type(conv) is nn.Conv2d
        and type(norm) is ForgivingBatchNorm2d
        and conv.bias is None
        and (conv.padding, conv.dilation, conv.groups) == ((0, 0), (1, 1), 1)
        and norm.weight is not None
        and norm.bias is not None
        and norm.track_running_stats
        and norm.running_var is not None
        and norm.momentum is not None
        and not has_hooks(conv)
        and not has_hooks(norm)
        and not ("forward" in vars(conv) or "forward" in vars(norm))
    )


def _may_fold() -> bool:
    """Whether a step may be one operation: nothing is differentiated, or torch.jit records plain torch, which can be.

    torch.jit.trace checks its graph against a second one without gradients: both have to be the same.
    """
    return not torch.is_grad_enabled() or torch._C._get_tracing_state() is not None


def _fold(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> Folded:
    """The one convolution that equals conv followed by norm with its running statistics."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    dtype = conv.weight.dtype  # normalisations may be kept in a wider one
    return (conv.weight * scale[:, None, None, None]).to(dtype), (norm.bias - norm.running_mean * scale).to(dtype)
