"""The ways to compute the operator. `reference` is the definition; every other backend is compared with it."""

from types import ModuleType

from torch import Tensor

from acda.backends import native, reference, triton

BACKENDS: dict[str, ModuleType] = {"triton": triton, "native": native, "reference": reference}


def choose(backend: str, x: Tensor, bases: Tensor | None = None) -> ModuleType:
    """The first backend that can run with these tensors, or the one that the caller insists on.

    Every backend but the reference has `why_not`, the reason why it cannot run, or None.
    """
    if backend == "auto":
        if x.device.type == "cpu":
            native.say_once_that_it_is_slow()
        return next((kernels for kernels in (triton, native) if kernels.why_not(x, bases) is None), reference)
    if backend not in BACKENDS:
        raise ValueError(f'backend needs "auto", "triton", "native" or "reference"; got {backend!r}.')
    if backend != "reference" and (reason := BACKENDS[backend].why_not(x, bases, insisted=True)):
        raise ValueError(f'backend="{backend}" cannot run: {reason}. Use backend="auto" or "reference".')
    return BACKENDS[backend]
