import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from torch import Tensor

from acda import fourier_bessel, functional, multiscale_fourier_bessel
from acda.functional import adaptive_conv2d, per_pixel_conv2d
from tests import naive
from tests.naive import BY_NAME
from tests.strategies import Case, cases


def operands(case: Case, *, with_bases: bool = True) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """x, coefficients, bases, mixing, bias for a case."""
    C, O = case.channels  # noqa: E741
    L = case.elements if with_bases else case.side**2
    return (
        case.input(),
        case.randn(case.batch, case.atoms, L, *case.conv2d_size()),
        case.randn(L, case.side, case.side) if with_bases else None,
        case.randn(O, C // case.groups, case.atoms),
        case.randn(O),
    )


@pytest.mark.parametrize("backend", BY_NAME)
@given(case=cases())
def test_adaptive_conv2d_equals_the_definition(case: Case, backend: str):
    tensors = operands(case)
    y = adaptive_conv2d(*tensors, **case.window, groups=case.groups, backend=backend)
    torch.testing.assert_close(y, naive.adaptive_conv2d(*tensors, **case.window, groups=case.groups))


@pytest.mark.parametrize("backend", BY_NAME)
@given(case=cases(largest_side=7))
def test_without_bases_the_coefficients_are_the_atoms(case: Case, backend: str):
    tensors = operands(case, with_bases=False)
    y = adaptive_conv2d(*tensors, **case.window, groups=case.groups, backend=backend)
    torch.testing.assert_close(y, naive.adaptive_conv2d(*tensors, **case.window, groups=case.groups))


@pytest.mark.parametrize("backend", BY_NAME)
@given(case=cases(largest_side=9))
def test_per_pixel_conv2d_equals_the_definition(case: Case, backend: str):
    filters = case.randn(case.batch, case.atoms, case.side, case.side, *case.conv2d_size())
    y = per_pixel_conv2d(case.input(), filters, **case.window, backend=backend)
    torch.testing.assert_close(y, naive.per_pixel_conv2d(case.input(), filters, **case.window))


@pytest.mark.parametrize("backend", BY_NAME)
@pytest.mark.parametrize("batch", [0, 1, 2])
def test_groups_of_channels_have_filters_of_their_own(backend: str, batch: int):
    x, filters = torch.randn(batch, 6, 7, 8), torch.randn(batch, 3 * 4, 3, 3, 4, 4)
    y = per_pixel_conv2d(x, filters, stride=2, padding=1, groups=3, backend=backend)
    pairs = zip(x.chunk(3, 1), filters.chunk(3, 1), strict=True)
    torch.testing.assert_close(y, torch.cat([per_pixel_conv2d(*pair, stride=2, padding=1) for pair in pairs], 1))


def test_the_public_names_are_the_two_operators():
    assert set(functional.__all__) == {"adaptive_conv2d", "per_pixel_conv2d"}


def test_equal_filters_everywhere_are_an_ordinary_convolution():
    x, weight = torch.randn(2, 4, 9, 10), torch.randn(1, 4, 5, 5)
    filters = weight[0, :1].expand(2, 1, 5, 5)[..., None, None].expand(2, 1, 5, 5, 9, 10)
    expected = F.conv2d(x, weight[:, :1].expand(4, 1, 5, 5), padding=2, groups=4)
    torch.testing.assert_close(per_pixel_conv2d(x, filters, padding="same"), expected)


@pytest.mark.parametrize("channels", [1, 2, 12], ids=["bases first", "bases first, two", "atoms first"])
@pytest.mark.parametrize(
    ("groups", "window"),
    [(1, {"padding": 1}), (1, {"stride": 2, "padding": (2, 0), "dilation": (1, 2)})],
    ids=["plain", "strided"],
)
def test_gradients_of_every_argument_are_exact(channels, groups, window):
    options = {"dtype": torch.float64, "requires_grad": True}
    x = torch.randn(2, channels, 6, 7, **options)
    P, Q = F.conv2d(x[:, :1], torch.zeros(1, 1, 3, 3, dtype=torch.float64), **window).shape[2:]
    alpha = torch.randn(2, 3, 4, P, Q, **options)
    bases = torch.randn(4, 3, 3, **options)
    mixing = torch.randn(2, channels, 3, **options)
    bias = torch.randn(2, **options)

    def run(*tensors: Tensor) -> Tensor:
        return adaptive_conv2d(*tensors, **window, groups=groups)

    assert torch.autograd.gradcheck(run, (x, alpha, bases, mixing, bias), fast_mode=channels > 1)
    assert torch.autograd.gradgradcheck(run, (x, alpha, bases, mixing, bias), fast_mode=True)


def test_gradients_with_groups_without_bases_and_without_bias():
    options = {"dtype": torch.float64, "requires_grad": True}
    x, alpha, mixing = (torch.randn(*s, **options) for s in ((1, 4, 5, 4), (1, 2, 9, 3, 2), (6, 2, 2)))
    assert torch.autograd.gradcheck(lambda *t: adaptive_conv2d(t[0], t[1], None, t[2], groups=2), (x, alpha, mixing))


def test_gradients_of_per_pixel_conv2d():
    options = {"dtype": torch.float64, "requires_grad": True}
    x, filters = torch.randn(2, 2, 5, 6, **options), torch.randn(2, 3, 3, 3, 3, 3, **options)
    assert torch.autograd.gradcheck(lambda *t: per_pixel_conv2d(*t, stride=2, padding=1), (x, filters))


@pytest.mark.parametrize("padding", [3, (3, 1), "same", "valid"])
@pytest.mark.parametrize("backend", BY_NAME)
def test_paddings(padding, backend):
    x, mixing = torch.randn(1, 2, 9, 11), torch.randn(3, 2, 4)
    size = F.conv2d(x, torch.zeros(1, 2, 7, 7), padding=padding).shape[2:]
    alpha = torch.randn(1, 4, 18, *size)
    y = adaptive_conv2d(x, alpha, multiscale_fourier_bessel(7), mixing, padding=padding, backend=backend)
    numbers = {3: (3, 3), "same": (3, 3), "valid": (0, 0)}.get(padding, padding)
    expected = naive.adaptive_conv2d(
        x, alpha, multiscale_fourier_bessel(7), mixing, None, (1, 1), numbers, (1, 1), groups=1
    )
    torch.testing.assert_close(y.double(), expected, rtol=1e-5, atol=1e-5)


def example(dtype: torch.dtype = torch.float32, channels: int = 16) -> list[Tensor]:
    shapes = [(2, channels, 12, 10), (2, 6, 6, 12, 10), (6, 3, 3), (8, channels, 6), (8,)]
    return [torch.randn(*shape).to(dtype) for shape in shapes]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [1, 16])
def test_half_precision_is_accumulated_in_float32(dtype, channels):
    tensors = example(dtype, channels)
    y = adaptive_conv2d(*tensors, padding=1)
    assert y.dtype == dtype
    assert torch.equal(y, adaptive_conv2d(*(t.float() for t in tensors), padding=1).to(dtype))
    filters = torch.randn(2, 2, 3, 3, 12, 10).to(dtype)
    z = per_pixel_conv2d(tensors[0], filters, padding=1)
    assert torch.equal(z, per_pixel_conv2d(tensors[0].float(), filters.float(), padding=1).to(dtype))


def test_autocast_takes_mixed_dtypes_and_returns_what_a_convolution_would():
    x, alpha, bases, mixing, bias = example()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = adaptive_conv2d(x, alpha.bfloat16(), bases, mixing, bias, padding=1)
    assert y.dtype == torch.bfloat16
    exact = adaptive_conv2d(x, alpha.bfloat16().float(), bases, mixing, bias, padding=1)
    assert torch.equal(y, exact.bfloat16())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert adaptive_conv2d(*(t.double() for t in (x, alpha, bases, mixing, bias)), padding=1).dtype == torch.float64


@pytest.mark.parametrize("channels", [1, 16])
def test_memory_format_follows_the_input(channels):
    x, *rest = example(channels=max(2, channels))
    y = adaptive_conv2d(x.contiguous(memory_format=torch.channels_last), *rest, padding=1)
    assert y.is_contiguous(memory_format=torch.channels_last)
    plain = adaptive_conv2d(x, *rest, padding=1)
    assert plain.is_contiguous()
    torch.testing.assert_close(y, plain)


def test_other_devices_are_served_by_the_same_code():
    tensors = [t.to("meta") for t in example()]
    assert adaptive_conv2d(*tensors, padding=1).shape == (2, 8, 12, 10)
    assert per_pixel_conv2d(tensors[0], torch.empty(2, 3, 3, 3, 12, 10, device="meta"), padding=1).shape == (
        2,
        48,
        12,
        10,
    )


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own vmap rule for addcmul_
def test_vmap_and_forward_derivatives():
    x, alpha, bases, mixing, bias = (t.double() for t in example(channels=3))

    def run(x: Tensor) -> Tensor:
        return adaptive_conv2d(x, alpha, bases, mixing, bias, padding=1)

    stacked = torch.stack([x, 2 * x])
    torch.testing.assert_close(torch.vmap(run)(stacked), torch.stack([run(x), run(2 * x)]))
    tangent = torch.randn_like(x)
    _, derivative = torch.func.jvp(run, (x,), (tangent,))
    torch.testing.assert_close(derivative, run(tangent) - run(torch.zeros_like(x)))


X, ALPHA, PSI, MIX = (1, 4, 8, 8), (1, 2, 6, 6, 6), (6, 3, 3), (5, 4, 2)


def zeros(*shapes: tuple[int, ...]) -> list[Tensor]:
    return [torch.zeros(shape) for shape in shapes]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: adaptive_conv2d(*zeros(X[1:], ALPHA, PSI, MIX)), ValueError, r"4 dimensions.*unsqueeze\(0\)"),
        (lambda: adaptive_conv2d([[1.0]], *zeros(ALPHA, PSI, MIX)), TypeError, "needs to be a tensor.* got list"),
        (
            lambda: adaptive_conv2d(torch.zeros(X).long(), *zeros(ALPHA, PSI, MIX)),
            TypeError,
            r"got torch.int64.*float\(\)",
        ),
        (lambda: adaptive_conv2d(torch.zeros(X) * 1j, *zeros(ALPHA, PSI, MIX)), TypeError, "got torch.complex64"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA[:4], PSI, MIX)), ValueError, r"\(B, M, L, P, Q\); got \(1, 2, 6, 6\)"),
        (lambda: adaptive_conv2d(*zeros(X, (1, 2, 6, 5, 6), PSI, MIX)), ValueError, r"\(1, 2, 6, 6, 6\); got.*stride"),
        (lambda: adaptive_conv2d(*zeros(X, (2, 2, 6, 6, 6), PSI, MIX)), ValueError, "one set per output pixel"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, (5, 3, 3), MIX)), ValueError, r"\(6, k, k\); got \(5, 3, 3\)"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, (6, 3, 5), MIX)), ValueError, "square"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, (6, 4, 4), MIX)), ValueError, "odd"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA), None, *zeros(MIX)), ValueError, "square number; got L = 6"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI, (5, 3, 2))), ValueError, r"\(O, 4, 2\).* got \(5, 3, 2\)"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI, (5, 4))), ValueError, r"mixing needs .* got \(5, 4\)"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI, MIX, (4,))), ValueError, r"\(5,\); got \(4,\)"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI, MIX), groups=3), ValueError, "groups=3 for 4 in and 5 out"),
        (lambda: adaptive_conv2d(*zeros((1, 4, 2, 8), ALPHA, PSI, MIX)), ValueError, r"at least \(3, 3\) pixels"),
        (
            lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI), torch.zeros(MIX).double()),
            TypeError,
            "mixing is torch.float64",
        ),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI), torch.zeros(MIX, device="meta")), ValueError, "mixing on meta"),
        (lambda: adaptive_conv2d(*zeros(X, ALPHA, PSI, MIX), backend="fast"), ValueError, "'fast'"),
        (lambda: per_pixel_conv2d(*zeros(X, ALPHA)), ValueError, r"\(B, M, k, k, P, Q\); got"),
        (lambda: per_pixel_conv2d(*zeros(X, (1, 2, 3, 3, 5, 6))), ValueError, r"\(1, 2, 3, 3, 6, 6\); got"),
        (lambda: per_pixel_conv2d(*zeros(X, (1, 2, 2, 2, 7, 7))), ValueError, "odd"),
        (lambda: per_pixel_conv2d(*zeros(X, (1, 2, 3, 3, 6, 6)), groups=4), ValueError, "4 channels and 2 filters"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_nan_reaches_only_the_windows_that_see_it():
    for channels in (1, 16):
        x, alpha, _, mixing, bias = example(channels=channels)
        x[0, 0, 5, 4] = torch.nan
        y = adaptive_conv2d(x, alpha, fourier_bessel(3), mixing, bias, padding=1)
        hit = y.isnan().any(1)
        assert hit[0, 4:7, 3:6].all()
        assert hit.sum() == 9
