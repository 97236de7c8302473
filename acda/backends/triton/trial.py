"""A trial on a device before the first real call of a process: the kernels against plain torch, in one small call.

The kernels have never run on a GPU. Where they do not compile, do not launch or do not agree, plain torch runs instead.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from acda.backends import reference, triton
from acda.window import Window

# Relative to the norm. Half precision and TF32 round by less than 1 %; a wrong kernel is off by far more.
MOST = 0.03
WINDOW = Window.of(5, stride=(1, 2), padding=2)
# x, coefficients, bases, mixing, bias
SHAPES = ((1, 5, 4, 7), (1, 6, 4, 4, 4), (4, 5, 5), (4, 5, 6), (4,))


def disagreement(device: torch.device, dtype: torch.dtype) -> str | None:
    """What is wrong with the kernels on this device, or None where they agree in values and all gradients."""
    try:
        with _apart():
            errors = _errors(device, dtype)
    except Exception as error:  # of Triton's compiler, of the driver, of the launch
        said = (str(error).splitlines() or [""])[0][:200]
        return f"a trial call failed there ({type(error).__name__}: {said})"
    if all(error <= MOST for error in errors):  # false for NaN
        return None
    return f"a trial call differed from plain torch there, by {max(errors):.1g} of the norm"


@contextmanager
def _apart() -> Iterator[None]:
    """Outside the modes that the first real call may be in: compiling, counting FLOPs, inference."""
    with _disable_current_modes(), torch.inference_mode(False), torch.enable_grad():
        yield


def _errors(device: torch.device, dtype: torch.dtype) -> list[float]:
    """Of the result and of the gradients of all five arguments, relative to their norms."""
    generator = torch.Generator().manual_seed(0)  # its own: the caller's random state does not change
    values = [torch.randn(shape, generator=generator, device="cpu").to(dtype) for shape in SHAPES]
    with torch.autocast(device.type, enabled=False), torch.autocast("cpu", enabled=False):
        ours = _results(triton.adaptive_conv2d, [t.to(device) for t in values])
        truth = _results(reference.adaptive_conv2d, [t.float() for t in values])
    pairs = zip(ours, truth, strict=True)
    return [float((a.cpu().float() - b).norm() / b.norm()) for a, b in pairs]


def _results(run: Callable[..., Tensor], values: list[Tensor]) -> list[Tensor]:
    x, alpha, bases, mixing, bias = (t.requires_grad_() for t in values)
    y = run(x, alpha, bases, mixing, bias, WINDOW, 1)
    return [y.detach(), *torch.autograd.grad(y.square().sum() / 2, values)]
