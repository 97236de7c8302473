"""Compare a kernel with the reference in float64: errors, memory layouts, numbers of threads.

The rule for tolerances: an error is relative to the norm of what was summed, not of what is left of it. A sum of n
products has a rounding error in proportion to the products, however nearly they cancel; how nearly depends on the seed
and on the machine's order of summation. What was summed is the same expression with the absolute values of its inputs.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

# In units of the dtype's precision. Half precision is computed in float32 and rounded once, to half a unit.
TOLERANCE = {
    torch.float32: 16 * torch.finfo(torch.float32).eps,
    torch.float64: 16 * torch.finfo(torch.float64).eps,
    torch.bfloat16: torch.finfo(torch.bfloat16).eps,
    torch.float16: torch.finfo(torch.float16).eps,
}
DTYPES = [torch.float32, torch.float64]


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def assert_near(ours: Tensor, truth: Tensor, dtype: torch.dtype, summed: Tensor | None = None) -> None:
    """Check the error of the whole tensor, relative to what was summed for it; by default, to the truth itself."""
    assert ours.shape == truth.shape
    assert ours.isfinite().all(), "NaN or infinity, where the truth is finite"
    error = float((ours.double() - truth.double()).norm())
    size = float((truth if summed is None else summed).detach().double().norm())
    assert error <= TOLERANCE[dtype] * size, f"error {error:.2e} of {size:.2e} summed in {dtype}, {tuple(truth.shape)}"


def run_with_gradients(run: Callable[..., Tensor], inputs: list[Tensor | None], upstream: Callable) -> list[Tensor]:
    """The result of run(*inputs), then the gradient of each input but the third, which is for bases."""
    given = [t if t is None or i == 2 else t.detach().requires_grad_() for i, t in enumerate(inputs)]
    y = run(*given)
    wanted = [t for i, t in enumerate(given) if t is not None and i != 2]
    return [y.detach(), *torch.autograd.grad(y, wanted, upstream(y))]


def compare(run, inputs: list[Tensor | None], dtype: torch.dtype, layout, what_was_summed=None) -> None:
    """Values and all gradients of run(…, backend) against the reference in float64.

    what_was_summed: of run(…) and its gradients, from the inputs and the upstream gradient in float64. By default run
    takes products and sums alone, so it is the same with absolute values.
    """
    # Rounded to dtype first: the truth has the same inputs.
    ours = [None if t is None else t.to(dtype) for t in inputs]
    exact = [None if t is None else t.double() for t in ours]
    truth = run_with_gradients(lambda *t: run(*t, backend="reference"), exact, lambda y: _upstream(y, dtype).double())
    upstream = _upstream(truth[0], dtype)
    if what_was_summed is not None:
        summed = what_was_summed(exact, upstream.double())
    else:
        absolute = [None if t is None else t.abs() for t in exact]
        summed = run_with_gradients(
            lambda *t: run(*t, backend="reference"), absolute, lambda y: upstream.double().abs()
        )
    ours[0] = layout(ours[0])
    found = run_with_gradients(lambda *t: run(*t, backend="native"), ours, lambda y: layout(upstream))
    for one, right, size in zip(found, truth, summed, strict=True):
        assert one.dtype == dtype
        assert_near(one, right, dtype, size)


def compare_without_gradients(run, inputs: list[Tensor | None], dtype: torch.dtype, layout) -> None:
    """Compare the values alone: the kernel takes another path where no gradient is needed."""
    ours = [None if t is None else t.to(dtype) for t in inputs]
    exact = [None if t is None else t.double() for t in ours]
    ours[0] = layout(ours[0])
    with torch.no_grad():
        truth = run(*exact, backend="reference")
        summed = run(*(None if t is None else t.abs() for t in exact), backend="reference")
        assert_near(run(*ours, backend="native"), truth, dtype, summed)


def _upstream(like: Tensor, dtype: torch.dtype) -> Tensor:
    """The same numbers for the same shape, in the precision that is tested."""
    generator = torch.Generator().manual_seed(torch.initial_seed() % 2**31)
    return torch.randn(like.shape, generator=generator).to(dtype)


LAYOUTS = {
    "contiguous": lambda t: t.contiguous(),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "strided": lambda t: torch.stack([t, t], dim=-1)[..., 0],
    "transposed": lambda t: t.transpose(2, 3).contiguous().transpose(2, 3),
}
