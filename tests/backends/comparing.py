"""Comparing the kernel with the reference: relative errors, memory layouts, numbers of threads."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-11}


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_near(ours: Tensor | None, truth: Tensor | None, dtype: torch.dtype) -> None:
    """Relative to the size of the whole tensor, the truth in float64."""
    assert (ours is None) == (truth is None)
    if ours is not None and truth is not None and truth.numel():
        assert ours.shape == truth.shape
        error = (ours.double() - truth.double()).norm() / truth.double().norm().clamp_min(1e-30)
        assert error < TOLERANCE[dtype]


def compare(run, inputs: list[Tensor | None], dtype: torch.dtype, layout) -> None:
    """Values and all gradients of run(…, backend) against the reference in float64."""
    ours, truth = ([None if t is None else t.to(d) for t in inputs] for d in (dtype, torch.float64))
    ours[0] = layout(ours[0])
    wanted = [i for i, t in enumerate(inputs) if t is not None and i != 2]
    for tensors in (ours, truth):
        for i in wanted:
            tensors[i] = tensors[i].detach().requires_grad_()
    y, expected = run(*ours, backend="native"), run(*truth, backend="reference")
    assert_near(y, expected, dtype)
    upstream = torch.randn_like(expected)
    grads = torch.autograd.grad(y, [ours[i] for i in wanted], layout(upstream.to(dtype)))
    for grad, right in zip(grads, torch.autograd.grad(expected, [truth[i] for i in wanted], upstream), strict=True):
        assert_near(grad, right, dtype)


LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "strided": lambda t: torch.stack([t, t], dim=-1)[..., 0],
    "transposed": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
}
