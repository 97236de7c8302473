"""Φ by a backend: each step, convolve, normalise and squash, as one or two operations instead of three modules.

Everything that decides whether this is allowed is in this file. The modules of Φ stay ordinary ones, because pruning,
parametrization, convert_sync_batchnorm and hooks work on those. A fused operation does not call the modules, so this
file checks first that calling them would do nothing else.
"""

from functools import partial

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
    maps = mixing.shape[2] * (window.side**2 if bases is None else bases.shape[0])
    if not isinstance(phi, AtomGenerator) or not _is_two_steps(phi, x, maps, window):
        return None
    if bases is not None and bases.dtype != x.dtype:
        return None
    operands = (bases, mixing, bias, window, groups)
    norms = phi.squeeze_norm, phi.predict_norm
    if not torch.is_grad_enabled():
        if kernels.adaptive_layer is None or norms[0].training or norms[1].training:
            return None
        phi.check_fit(x)
        return kernels.adaptive_layer(x, _fold(phi.squeeze, norms[0]), _fold(phi.predict, norms[1]), *operands)
    if kernels.train_layer is None or not _is_trained_whole(phi, x, window):
        return None
    phi.check_fit(x)
    P, Q = window.output_size(x.shape[2], x.shape[3])
    counts = x.shape[0] * x.shape[2] * x.shape[3], x.shape[0] * P * Q
    steps = [
        _training_step(conv, norm, count)
        for conv, norm, count in zip((phi.squeeze, phi.predict), norms, counts, strict=True)
    ]
    y, *statistics = kernels.train_layer(x, *steps, *operands)
    for norm, used, count in zip(norms, statistics, counts, strict=True):
        if norm.training and count > 1:
            _update(norm, *used, count)
    return y


def _is_two_steps(phi: AtomGenerator, x: Tensor, maps: int, window: Window) -> bool:
    """Whether Φ is two convolutions with zeros around the map, 1×1 and 3×3, each normalised and squashed, unheard.

    maps, window: what the layer needs of Φ
    """
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
        and phi.window == window
        and phi.predict.out_channels == maps
    )


def _is_trained_whole(phi: AtomGenerator, x: Tensor, window: Window) -> bool:
    """Whether Φ is to be differentiated, in the form that backends know: stride 1, one dtype, zeros near the map."""
    parts = (phi.squeeze, phi.squeeze_norm, phi.predict, phi.predict_norm)
    margins = (p - r + 1 for p, r in zip(window.padding, window.reach, strict=True))
    return (
        window.stride == (1, 1)
        and x.numel() > 0
        and max(margins) < 3
        and all(parameter.dtype == x.dtype for part in parts for parameter in part.parameters())
        and any(parameter.requires_grad for part in parts for parameter in part.parameters())
    )


def _training_step(conv: nn.Conv2d, norm: nn.BatchNorm2d, count: int) -> tuple[Tensor | float | None, ...]:
    """Convolution and normalisation; with the running statistics unless it takes those of `count` values."""
    fixed = not (norm.training and count > 1)
    statistics = (norm.running_mean, norm.running_var) if fixed else (None, None)
    return conv.weight, norm.weight, norm.bias, *statistics, norm.eps


@torch.no_grad()
def _update(norm: nn.BatchNorm2d, mean: Tensor, var: Tensor, count: int) -> None:
    """The running statistics, as nn.BatchNorm2d changes them."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.num_batches_tracked.add_(1)
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(var * (count / (count - 1)), norm.momentum)


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
    mean, var, batches, momentum = norm.running_mean, norm.running_var, norm.num_batches_tracked, norm.momentum
    assert mean is not None
    assert var is not None
    assert batches is not None
    assert momentum is not None
    uses_batch = norm.uses_batch(x)
    if uses_batch:
        with torch.no_grad():
            batches.add_(1)
    return kernels.batch_norm_tanh(x, mean, var, norm.weight, norm.bias, uses_batch, momentum, norm.eps)


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
