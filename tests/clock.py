"""A fake clock that only certain modules advance, so that tests know all durations."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


class Clock:
    """Replaces the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now


class Takes(nn.Module):
    """The identity. Its forward and backward passes advance the clock by these seconds."""

    def __init__(self, clock: Clock, forward: Callable[[Tensor], float], backward: float = 0.0) -> None:
        super().__init__()
        self.clock, self.taken, self.backward = clock, forward, backward

    def forward(self, x: Tensor) -> Tensor:
        self.clock.now += self.taken(x)
        return _Backward.apply(x, self)

    def __deepcopy__(self, memo: Any) -> "Takes":
        return Takes(self.clock, self.taken, self.backward)


class _Backward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, module: Takes) -> Tensor:
        ctx.module = module
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        ctx.module.clock.now += ctx.module.backward
        return gradient, None


def one_after_another(*seconds: float) -> Callable[[Tensor], float]:
    left: Iterator[float] = iter(seconds)
    return lambda x: next(left)
