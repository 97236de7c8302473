"""Φ's steps, computed by the kernel, or by torch where the kernel cannot: in half precision and under autocast."""

import torch
from torch import Tensor

from acda.backends import reference
from acda.backends.calling import autocast_on
from acda.backends.native import conv, conv_tanh
from acda.backends.native.norm_tanh import norm_tanh, update_running

Two = tuple[int, int]


def conv2d_tanh(x: Tensor, weight: Tensor, shift: Tensor, stride: Two, padding: Two) -> Tensor:
    """As reference.conv2d_tanh, in one pass; the result is channels_last."""
    if _takes(x):
        return conv_tanh.conv2d_tanh(x, weight, shift, stride, padding)
    return reference.conv2d_tanh(x, weight, shift, stride, padding)


def conv2d(x: Tensor, weight: Tensor, stride: Two, padding: Two) -> Tensor:
    """As reference.conv2d; the result is channels_last where the stride is 1."""
    if stride == (1, 1) and max(padding) < weight.shape[2] and _takes(x):
        return conv.conv2d(x, weight, padding)
    return reference.conv2d(x, weight, stride, padding)


def batch_norm_tanh(
    u: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    weight: Tensor,
    bias: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """As reference.batch_norm_tanh; the result is channels_last."""
    if not u.numel() or not _takes(u):
        return reference.batch_norm_tanh(u, running_mean, running_var, weight, bias, training, momentum, eps)
    if not training:
        return norm_tanh(u, weight, bias, running_mean, running_var, eps)[0]
    y, mean, var = norm_tanh(u, weight, bias, None, None, eps)
    update_running(running_mean, running_var, mean, var, u.shape[0] * u.shape[2] * u.shape[3], momentum)
    return y


def _takes(x: Tensor) -> bool:
    return x.dtype in (torch.float32, torch.float64) and not autocast_on(x)
