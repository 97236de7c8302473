"""The ways to compute the operator, and the one place that chooses among them.

`reference` is the definition; every other backend is compared with it. A backend computes the operators of
acda.functional, and the steps of Φ.
"""

from collections.abc import Callable
from typing import Protocol

from torch import Tensor

from acda.backends import native, reference, triton
from acda.window import Window


class Backend(Protocol):
    """The interface of a backend, a module of this package. `reference` defines what its functions compute."""

    # Whether Φ and the operator are fastest on channels_last maps, so that a layer changes the format once.
    WANTS_CHANNELS_LAST: bool
    # Whether half-precision operands are multiplied as they are, not converted to float32.
    KEEPS_HALF: bool

    # Φ with fixed statistics and the operator in one call, without gradients; None if the backend has no such call.
    @property
    def adaptive_layer(self) -> Callable[..., Tensor] | None: ...

    # The same with gradients, updating the running statistics as in training; None if the backend has no such call.
    @property
    def train_layer(self) -> Callable[..., Tensor] | None: ...

    def why_not(self, x: Tensor, bases: Tensor | None = None, insisted: bool = False) -> str | None: ...

    def adaptive_conv2d(
        self,
        x: Tensor,
        alpha: Tensor,
        bases: Tensor | None,
        mixing: Tensor,
        bias: Tensor | None,
        window: Window,
        groups: int,
    ) -> Tensor: ...

    def per_pixel_conv2d(self, x: Tensor, filters: Tensor, window: Window) -> Tensor: ...

    def conv2d(self, x: Tensor, weight: Tensor, stride: tuple[int, int], padding: tuple[int, int]) -> Tensor: ...

    def conv2d_tanh(
        self, x: Tensor, weight: Tensor, shift: Tensor, stride: tuple[int, int], padding: tuple[int, int]
    ) -> Tensor: ...

    def batch_norm_tanh(
        self,
        u: Tensor,
        running_mean: Tensor,
        running_var: Tensor,
        weight: Tensor,
        bias: Tensor,
        training: bool,
        momentum: float,
        eps: float,
    ) -> Tensor: ...


# In the order in which `choose` tries them.
BACKENDS: dict[str, Backend] = {"triton": triton, "native": native, "reference": reference}


def choose(backend: str, x: Tensor, bases: Tensor | None = None) -> Backend:
    """The first backend that can run with these tensors, or the one that the caller insists on.

    Each has `why_not`, the reason why it cannot run, or None.
    """
    if backend == "auto":
        if x.device.type == "cpu":
            native.say_once_that_it_is_slow()
        return next(kernels for kernels in BACKENDS.values() if kernels.why_not(x, bases) is None)
    if backend not in BACKENDS:
        raise ValueError(f'backend needs "auto", "triton", "native" or "reference"; got {backend!r}.')
    if reason := BACKENDS[backend].why_not(x, bases, insisted=True):
        raise ValueError(f'backend="{backend}" cannot run: {reason}. Use backend="auto" or "reference".')
    return BACKENDS[backend]
