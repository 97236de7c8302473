"""Φ's steps in the kernel against torch's own: convolution, normalisation and Tanh, in values and gradients."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from acda.backends import BACKENDS, native
from acda.backends.native import norm_tanh as operator
from tests.backends.comparing import DTYPES, LAYOUTS, assert_near, compare, run_with_gradients, threads
from tests.backends.normalising import norm_tanh, summed_in_norm_tanh

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


@given(
    st.tuples(st.integers(0, 2), st.integers(1, 20), st.integers(1, 14), st.integers(1, 14)),
    st.integers(1, 40),
    st.sampled_from([1, 3]),
    st.tuples(st.integers(1, 3), st.integers(1, 3)),
    st.tuples(st.integers(-3, 4), st.integers(-3, 4)),
    st.sampled_from(DTYPES),
    st.sampled_from(sorted(LAYOUTS)),
    st.integers(1, 3),
)
def test_a_step_of_the_generator_equals_conv2d_and_tanh(shape, outputs, side, stride, padding, dtype, layout, count):
    """Negative padding crops, so the map is larger by as much."""
    B, C, H, W = shape
    (py, px), reach = padding, side // 2
    x = torch.randn(B, C, H + 2 * max(reach - py, 0), W + 2 * max(reach - px, 0))
    weight, shift = torch.randn(outputs, C, side, side), torch.randn(outputs)
    padded, *rest = (t.double() for t in (F.pad(x, (px, px, py, py)), weight, shift))
    truth = F.conv2d(padded, *rest, stride).tanh()
    # Tanh passes the error of its argument on as far as it is steep.
    summed = truth.abs() + F.conv2d(padded.abs(), *(t.abs() for t in rest), stride) * (1 - truth.square())
    with threads(count):
        args = (LAYOUTS[layout](x.to(dtype)), weight.to(dtype), shift.to(dtype), stride, padding)
        assert_near(native.conv2d_tanh(*args), truth, dtype, summed)


def test_its_tanh_is_right_everywhere():
    values = torch.cat([torch.linspace(-12, 12, 100_001), torch.logspace(-30, 2, 10_001), torch.tensor([0.0, 1e30])])
    x, one, zero = values[None, None, None], torch.ones(1, 1, 1, 1), torch.zeros(1)
    y = native.conv2d_tanh(x, one, zero, (1, 1), (0, 0)).flatten()
    torch.testing.assert_close(y.double(), values.double().tanh(), rtol=5e-7, atol=0)
    assert y.abs().max() <= 1
    strange = torch.tensor([float("inf"), -float("inf"), float("nan")])[None, None, None]
    y = native.conv2d_tanh(strange, one, zero, (1, 1), (0, 0)).flatten()
    torch.testing.assert_close(y[:2], torch.tensor([1.0, -1.0]), rtol=5e-7, atol=0)
    assert y[2].isnan()


@given(st.data())
def test_a_convolution_of_the_generator_and_its_gradients(data):
    """Any sizes, padding up to the window's side less one, negative padding, one thread or two."""
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    k, (B, C, O) = data.draw(st.sampled_from([1, 3, 5])), (number(1, 2), number(1, 36), number(1, 20))  # noqa: E741
    padding = number(-1, k - 1), number(-2, k - 1)
    H, W = number(k + 2, 12), number(k + 4, 70)
    dtype, layout = (
        data.draw(st.sampled_from([torch.float32, torch.float64])),
        data.draw(st.sampled_from(sorted(LAYOUTS))),
    )
    torch.manual_seed(number(0, 1000))
    run = lambda x, weight, _, backend: BACKENDS[backend].conv2d(x, weight, (1, 1), padding)  # noqa: E731
    with threads(number(1, 2)):
        compare(run, [torch.randn(B, C, H, W), torch.randn(O, C, k, k), None], dtype, LAYOUTS[layout])


@pytest.mark.parametrize(("stride", "padding"), [((2, 1), (1, 1)), ((1, 1), (3, 0))])
def test_a_convolution_that_has_no_gradient_here_takes_torchs(stride, padding):
    x, weight = torch.randn(1, 3, 8, 9), torch.randn(2, 3, 3, 3, requires_grad=True)
    y = native.conv2d(x, weight, stride, padding)
    assert "acda" not in str(y.grad_fn).lower()
    torch.testing.assert_close(y, torch.nn.functional.conv2d(x, weight, None, stride, padding))


@given(st.data())
def test_normalisation_and_tanh_with_their_gradients(data):
    """The batch's own statistics or fixed ones, a mean far from zero, one thread or two."""
    number = lambda low, high: data.draw(st.integers(low, high))  # noqa: E731
    shape = number(1, 3), number(1, 40), number(1, 12), number(2, 90)
    fixed, dtype = data.draw(st.booleans()), data.draw(st.sampled_from(DTYPES))
    layout = data.draw(st.sampled_from(sorted(LAYOUTS)))
    torch.manual_seed(number(0, 1000))
    mean, var = torch.randn(shape[1]), torch.rand(shape[1]) + 0.5
    given = {"fixed": (mean, var) if fixed else None}
    inputs = [torch.randn(shape) + 10 * mean[:, None, None], torch.randn(shape[1]), None, torch.randn(shape[1])]
    with threads(number(1, 2)):
        compare(partial(norm_tanh, **given), inputs, dtype, LAYOUTS[layout], partial(summed_in_norm_tanh, **given))


def test_normalisation_far_from_zero_is_nearly_as_exact_as_torchs_own():
    """Median errors against float64, relative to those of torch's float32, over 4,000 channels with means around ±10.

    Each channel is a case of its own, so that the medians hardly depend on the seed: 1.0 to 1.4 for the result and the
    gradients of u, weight and bias, in four seeds. Sums over 64 pixels in place of 8, means rounded to float32, or u
    and the mean scaled before they are subtracted give 2.2 to 2.8.
    """
    C, shape = 4000, (1, 4000, 6, 8)
    inputs = [torch.randn(shape) + 10 * torch.randn(C)[:, None, None], torch.randn(C), None, torch.randn(C)]
    upstream = torch.randn(shape)

    def results(backend: str, dtype: torch.dtype) -> list[torch.Tensor]:
        given = [None if t is None else t.to(dtype) for t in inputs]
        return run_with_gradients(partial(norm_tanh, backend=backend), given, lambda y: upstream.to(dtype))

    truth = results("reference", torch.float64)

    def median_errors(backend: str) -> list[torch.Tensor]:
        pairs = zip(results(backend, torch.float32), truth, strict=True)
        channels_first = [(one - right).movedim(one.ndim // 3, 0).reshape(C, -1) for one, right in pairs]
        return [error.norm(dim=1).median() for error in channels_first]

    for ours, torchs in zip(median_errors("native"), median_errors("reference"), strict=True):
        assert ours <= 1.8 * torchs


def test_statistics_keep_their_digits_far_from_zero():
    u = torch.randn(4, 9, 50, 60) + 1000
    _, mean, var = operator.norm_tanh(u, torch.ones(9), torch.zeros(9), None, None, 1e-5)
    exact = u.double().var((0, 2, 3), unbiased=False)
    torch.testing.assert_close(mean.double(), u.double().mean((0, 2, 3)), rtol=1e-7, atol=0)
    torch.testing.assert_close(var.double(), exact, rtol=1e-5, atol=0)


def test_torchs_own_checks_of_the_generators_halves():
    x, weight = torch.randn(2, 6, 7, 4, requires_grad=True), torch.randn(5, 4, 3, 3, requires_grad=True)
    torch.library.opcheck(torch.ops.acda.conv2d, (x, weight, 1, 1))
    torch.library.opcheck(torch.ops.acda.conv2d, (x, weight, -1, 0))
    channels = [torch.rand(4, requires_grad=True) for _ in range(2)]
    statistics = torch.randn(4), torch.rand(4)
    torch.library.opcheck(torch.ops.acda.norm_tanh, (x, *channels, None, None, 1e-5))
    torch.library.opcheck(torch.ops.acda.norm_tanh, (x, *channels, *statistics, 1e-5))


def test_torchs_own_checks_of_the_generators_step():
    arguments = (torch.randn(2, 6, 7, 4), torch.randn(5, 4, 3, 3), torch.randn(5), 2, 1, 1, 1)
    torch.library.opcheck(torch.ops.acda.conv2d_tanh, arguments)
