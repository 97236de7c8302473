"""Dtypes, autocast and memory formats around every call of a backend."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def call(
    operator: Callable[..., Tensor], tensors: Sequence[Tensor | None], *rest: Any, keeps_half: bool = False
) -> Tensor:
    """operator(*tensors, *rest) outside autocast: float64 in float64, everything else in float32.

    The result has the dtype of the first tensor, x; under autocast it has autocast's, as a convolution's would.
    keeps_half: compute in the dtype of the result
    """
    x = tensors[0]
    assert x is not None
    autocast = autocast_on(x)
    result = torch.get_autocast_dtype(x.device.type) if autocast and x.dtype != torch.float64 else x.dtype
    compute = result if keeps_half or result == torch.float64 else torch.float32
    args = [None if t is None else t.to(compute) for t in tensors]
    if not autocast:
        return operator(*args, *rest).to(result)
    with torch.autocast(x.device.type, enabled=False):
        return operator(*args, *rest).to(result)


def autocast_on(x: Tensor) -> bool:
    """Whether autocast chooses the dtypes on this tensor's device."""
    device = x.device.type
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def like_input(y: Tensor, x: Tensor) -> Tensor:
    """Return y in channels_last if x is channels_last, and contiguous otherwise, as convolutions do."""
    if torch._C._are_functorch_transforms_active():
        return y  # vmap has no memory formats
    if not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        return y.contiguous(memory_format=torch.channels_last)
    return y.contiguous()
