import copy
import io
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from acda import AdaptiveConv2d, AtomGenerator, fourier_bessel
from acda.backends import choose, native
from acda.backends.native import exact_shifts
from acda.layers.generator import TANH_POWER
from tests import naive
from tests.naive import BY_NAME
from tests.operators import Operators
from tests.strategies import Case, cases

MODES = ["zeros", "reflect", "replicate", "circular"]


def layer_for(case: Case, **options) -> AdaptiveConv2d:
    bases = {"bases": None if case.side == 1 else "fourier_bessel", "num_atoms": case.atoms}
    return AdaptiveConv2d(*case.channels, case.side, **case.window, groups=case.groups, **{**bases, **options}).double()


@given(cases(), st.booleans())
def test_output_shape_is_conv2ds(case: Case, training: bool):
    conv = nn.Conv2d(*case.channels, case.side, **case.window, groups=case.groups).double()
    y = layer_for(case).train(training)(case.input())
    assert y.shape == conv(case.input()).shape


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("padding", [0, (2, 1), "same", "valid"])
@pytest.mark.parametrize("side", [1, 3, 7])
def test_padding_modes_have_conv2ds_shape(mode, padding, side):
    x = torch.randn(1, 2, 9, 8)
    conv = nn.Conv2d(2, 3, side, padding=padding, padding_mode=mode)
    layer = AdaptiveConv2d(2, 3, side, padding=padding, padding_mode=mode, bases=None)
    assert layer(x).shape == conv(x).shape


@given(cases(largest_side=7))
def test_it_equals_filtering_every_pixel_with_its_own_full_filter(case: Case):
    """The two-layer implementation against `filters`, in values and in gradients."""
    layer, x = layer_for(case).eval(), case.input().requires_grad_()
    y, K = layer(x), layer.filters(x)
    assert K.shape == (
        case.batch,
        case.channels[1],
        case.channels[0] // case.groups,
        case.side,
        case.side,
        *y.shape[2:],
    )
    slow = apply_full_filters(x, K, layer)
    torch.testing.assert_close(y, slow)
    upstream = case.randn(*y.shape)
    wanted = [x, *layer.parameters()]
    fast_grads = torch.autograd.grad(y, wanted, upstream, allow_unused=True)
    slow_grads = torch.autograd.grad(slow, wanted, upstream, allow_unused=True)
    for fast, expected in zip(fast_grads, slow_grads, strict=True):
        torch.testing.assert_close(fast, expected)


def apply_full_filters(x, K, layer):
    """Unfold the input and contract each window with that pixel's (O, C/groups, k, k) filters."""
    G, (P, Q) = layer.groups, K.shape[-2:]
    columns = nn.functional.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride)
    columns = columns.unflatten(2, (P, Q)).unflatten(1, (G, columns.shape[1] // G))
    y = torch.einsum("bgtpq,bgotpq->bgopq", columns, K.flatten(2, 4).unflatten(1, (G, K.shape[1] // G)))
    return y.flatten(1, 2) + (0 if layer.bias is None else layer.bias[:, None, None])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BY_NAME)
def test_padding_modes_equal_the_definition(mode, backend):
    layer = AdaptiveConv2d(2, 3, 5, stride=2, padding=(2, 1), padding_mode=mode).double()
    layer.backend = backend
    x = torch.randn(1, 2, 9, 8, dtype=torch.float64)
    padded = nn.functional.pad(x, (1, 1, 2, 2), mode="constant" if mode == "zeros" else mode)
    expected = naive.adaptive_conv2d(
        padded, layer.coefficients(x), layer.bases, layer.mixing, layer.bias, (2, 2), (0, 0), (1, 1), 1
    )
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_the_whole_layer_are_exact(bases, training):
    layer = AdaptiveConv2d(2, 2, 3, stride=2, padding=1, bases=bases, num_atoms=2).double().train(training)
    names, values = zip(*layer.named_parameters(), strict=True)
    x = torch.randn(2, 2, 5, 4, dtype=torch.float64, requires_grad=True)

    def run(x, *parameters):
        return torch.func.functional_call(copy.deepcopy(layer), dict(zip(names, parameters, strict=True)), x)

    assert torch.autograd.gradcheck(run, (x, *values), fast_mode=True)


def test_coefficients_atoms_and_filters_fit_together():
    layer, x = AdaptiveConv2d(4, 5, 7, padding=3, groups=1).eval(), torch.randn(2, 4, 6, 5)
    alpha, D, K = layer.coefficients(x), layer.atoms(x), layer.filters(x)
    assert alpha.shape == (2, 6, 18, 6, 5)
    assert D.shape == (2, 6, 7, 7, 6, 5)
    assert layer.bases is not None
    torch.testing.assert_close(D, torch.einsum("bmlpq,lij->bmijpq", alpha, layer.bases))
    torch.testing.assert_close(K, torch.einsum("ocm,bmijpq->bocijpq", layer.mixing, D))


@pytest.mark.parametrize("channels", [1, 8])
def test_shifting_the_input_shifts_the_output_bit_for_bit(channels):
    layer = AdaptiveConv2d(channels, 4, 7, padding=3).eval()
    x = torch.randn(1, channels, 40, 40)
    with torch.no_grad(), exact_shifts():  # Winograd's form shifts to rounding: tests/backends/test_winograd.py
        y, shifted = layer(x), layer(x.roll((5, 9), (2, 3)))
    assert torch.equal(shifted[:, :, 8:-3, 12:-3], y[:, :, 3:-8, 3:-12])


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("window", [{"padding": 3}, {"stride": 2}, {"dilation": 2, "padding": 1, "stride": 3}])
def test_nan_reaches_only_what_sees_it(window, backend):
    """The kernel does not read the taps at which all bases are zero, the corners of the window; plain torch does."""
    layer, x = AdaptiveConv2d(2, 3, 5, **window).eval(), torch.randn(1, 2, 24, 24)
    layer.backend = backend
    corners_count = choose(backend, x) is not native
    x[0, 1, 11, 12] = torch.nan
    with exact_shifts():  # Winograd's form spreads a NaN over its tile
        hit = layer(x).isnan().any(1)[0]
    for p, q in torch.cartesian_prod(*(torch.arange(n) for n in hit.shape)).tolist():
        centre = [
            n * s - a + r for n, s, a, r in zip((p, q), layer.stride, layer.padding, layer.window.reach, strict=True)
        ]
        off = [abs(11 - centre[0]), abs(12 - centre[1])]
        d = layer.dilation[0]
        in_window = all(o <= 2 * d and o % d == 0 for o in off) and (corners_count or off != [2 * d, 2 * d])
        in_generator = max(off) <= 1
        assert bool(hit[p, q]) == (in_window or in_generator)


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
@pytest.mark.parametrize("side", [3, 5, 7])
@pytest.mark.parametrize("channels", [16, 64, 512])
def test_fresh_output_variance_is_conv2ds(side, channels, bases):
    x = torch.randn(2, channels, 20, 20)
    with torch.no_grad():
        ours = AdaptiveConv2d(channels, channels, side, bases=bases)(x).var()
        theirs = nn.Conv2d(channels, channels, side)(x).var()
    assert 1 / 1.3 < ours / theirs < 1.3  # over seeds, 0.90 to 1.15 with 16 channels


def test_gain_scales_the_output():
    layer, x = AdaptiveConv2d(32, 64, 5, bias=False), torch.randn(2, 32, 24, 24)
    layer.reset_parameters(gain=math.sqrt(6))
    with torch.no_grad():
        assert float(layer(x).var()) == pytest.approx(2.0, rel=0.08)  # over seeds, 1.94 to 2.03


def test_coefficient_power_is_what_it_says():
    g, weights = np.polynomial.hermite_e.hermegauss(100)
    assert np.tanh(g) ** 2 @ weights / weights.sum() == pytest.approx(TANH_POWER, abs=1e-6)


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
def test_state_dict_round_trip(bases):
    layer, other = (AdaptiveConv2d(3, 4, 5, bases=bases) for _ in range(2))
    layer(torch.randn(2, 3, 9, 9))
    names = {name.split(".")[0] for name in layer.state_dict()}
    assert names == {"mixing", "bias", "generator"} | ({"bases"} if bases else set())
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True))
    x = torch.randn(1, 3, 9, 9)
    assert torch.equal(layer.eval()(x), other.eval()(x))


def test_copies_and_pickles_compute_the_same():
    layer, x = AdaptiveConv2d(3, 4, 5, stride=2, padding="valid").eval(), torch.randn(1, 3, 9, 9)
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    for twin in (copy.deepcopy(layer), torch.load(file, weights_only=False)):
        assert torch.equal(twin(x), layer(x))
        assert twin.mixing is not layer.mixing


def test_repr_tells_what_was_asked_for():
    layer = AdaptiveConv2d(8, 16, 5, 2, 2, groups=2, bias=False, padding_mode="reflect", num_atoms=4)
    assert layer.extra_repr() == (
        "8, 16, kernel_size=(5, 5), stride=(2, 2), padding=(2, 2), groups=2, bias=False, "
        "padding_mode=reflect, num_atoms=4, bases=(12, 5, 5)"
    )


def test_arguments_are_stored_as_pairs():
    layer = AdaptiveConv2d(2, 2, 3, dilation=2, padding="same")
    assert (layer.kernel_size, layer.stride, layer.padding, layer.dilation) == ((3, 3), (1, 1), (2, 2), (2, 2))


def test_channels_last_in_channels_last_out():
    layer, x = AdaptiveConv2d(16, 8, 3, padding=1).eval(), torch.randn(2, 16, 9, 9)
    y = layer.to(memory_format=torch.channels_last)(x.contiguous(memory_format=torch.channels_last))
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, layer(x))


@pytest.mark.parametrize("training", [True, False])
def test_an_empty_batch_passes_through(training):
    layer = AdaptiveConv2d(3, 4, 3).train(training)
    y = layer(torch.randn(0, 3, 8, 8, requires_grad=True))
    assert y.shape == (0, 4, 6, 6)
    y.sum().backward()
    assert all(p.isfinite().all() for p in layer.state_dict().values())


def test_training_on_a_single_output_pixel_works_as_conv2d_does():
    layer = AdaptiveConv2d(3, 4, 7)
    layer(torch.randn(1, 3, 7, 7)).sum().backward()
    assert layer.mixing.grad is not None
    assert layer.mixing.grad.abs().sum() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    layer, x = AdaptiveConv2d(4, 8, 5, padding=2, dtype=dtype), torch.randn(2, 4, 9, 9, dtype=dtype)
    y = layer(x)
    assert y.dtype == dtype
    y.float().sum().backward()
    assert layer.mixing.grad is not None
    assert layer.mixing.grad.isfinite().all()


def test_autocast_trains():
    layer, x = AdaptiveConv2d(4, 8, 5, padding=2), torch.randn(2, 4, 9, 9)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
        assert y.dtype == nn.Conv2d(4, 8, 1)(x).dtype == torch.bfloat16
    y.float().square().sum().backward()
    assert all(p.grad is not None and p.grad.dtype == torch.float32 for p in layer.parameters())
    with torch.no_grad():
        four_units = 4 * torch.finfo(torch.bfloat16).eps
        torch.testing.assert_close(y.float(), layer(x), rtol=four_units, atol=four_units)


def test_made_on_meta_then_reset_is_a_fresh_layer():
    with torch.device("meta"):
        layer = AdaptiveConv2d(3, 4, 5)
    layer.to_empty(device="cpu").reset_parameters()
    assert layer.bases is not None
    torch.testing.assert_close(layer.bases[6:], fourier_bessel(5))
    assert layer(torch.randn(1, 3, 8, 8)).isfinite().all()


@pytest.mark.parametrize("how", ["argument", "context"])
def test_bases_of_your_own_outlive_meta(how):
    bases = torch.randn(2, 3, 3)
    if how == "argument":
        layer = AdaptiveConv2d(2, 2, 3, bases=bases, device="meta")
    else:
        with torch.device("meta"):
            layer = AdaptiveConv2d(2, 2, 3, bases=bases)
    assert layer.bases is not None
    assert layer.bases.is_meta
    layer.to_empty(device="cpu").reset_parameters()
    assert torch.equal(layer.bases, bases)
    assert layer(torch.randn(1, 2, 5, 5)).isfinite().all()


def test_a_layer_can_be_made_of_fake_tensors():
    with FakeTensorMode():
        layer = AdaptiveConv2d(3, 4, 7, padding=3)
        assert layer.mixing.shape == (4, 3, 6)


def test_numbers_may_be_numpys():
    three = np.int64(3)
    assert AdaptiveConv2d(three, 4, three, (np.int32(1), 1))(torch.randn(1, 3, 5, 5)).shape == (1, 4, 3, 3)


def test_tracing_is_told_what_it_needs():
    model = nn.Sequential(AdaptiveConv2d(3, 4, 3))
    with pytest.raises(TypeError, match=r"got Proxy. Tracing needs the layer as a leaf"):
        torch.fx.symbolic_trace(model)


def test_learnable_bases_stay_learnable():
    bases = nn.Parameter(fourier_bessel(3))
    layer = AdaptiveConv2d(2, 3, 3, bases=bases)
    assert layer.bases is bases
    layer(torch.randn(1, 2, 6, 6)).sum().backward()
    assert bases.grad is not None
    assert AdaptiveConv2d(2, 3, 3, bases=bases.data).bases is not bases.data, "a plain tensor is copied"


def test_a_generator_of_your_own():
    phi = nn.Conv2d(2, 6 * 9, 3, stride=2)
    layer = AdaptiveConv2d(2, 3, 3, stride=2, bases=None, generator=phi)
    assert layer(torch.randn(1, 2, 9, 9)).shape == (1, 3, 4, 4)
    phi = AtomGenerator(2, 6 * 6, 3)
    before = {name: t.clone() for name, t in phi.state_dict().items()}
    AdaptiveConv2d(2, 3, 3, generator=phi).reset_parameters(2.0)
    assert all(torch.equal(before[name], t) for name, t in phi.state_dict().items()), "it is left as it is"
    with pytest.raises(ValueError, match=r"\(1, 54, 4, 4\); got \(1, 54, 7, 7\).*stride"):
        AdaptiveConv2d(2, 3, 3, stride=2, bases=None, generator=nn.Conv2d(2, 54, 3))(torch.randn(1, 2, 9, 9))


LAYER = AdaptiveConv2d(3, 4, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: LAYER(torch.zeros(3, 8, 8)), ValueError, r"4 dimensions.*unsqueeze\(0\)"),
        (lambda: LAYER(torch.zeros(1, 4, 8, 8)), ValueError, "needs 3 channels.* got 4"),
        (lambda: LAYER(torch.zeros(1, 3, 8, 8).byte()), TypeError, "floating-point dtype; got torch.uint8"),
        (
            lambda: LAYER(torch.zeros(1, 3, 8, 8).double()),
            TypeError,
            "input is torch.float64, the layer is torch.float32",
        ),
        (lambda: LAYER(torch.zeros(1, 3, 8, 8, device="meta")), ValueError, "input is on meta, the layer on cpu"),
        (lambda: LAYER(torch.zeros(1, 3, 2, 8)), ValueError, r"at least \(3, 3\) pixels.* got \(2, 8\)"),
        (lambda: AdaptiveConv2d(3, 4, 3, groups=2), ValueError, "groups=2 for 3 in and 4 out"),
        (lambda: AdaptiveConv2d(3, 4, 3, groups=0), ValueError, "groups=0"),
        (lambda: AdaptiveConv2d(3, 4, 2), ValueError, "odd number"),
        (lambda: AdaptiveConv2d(3, 4, (3, 5)), ValueError, "square"),
        (lambda: AdaptiveConv2d(3, 4, 1), ValueError, "bases=None"),
        (lambda: AdaptiveConv2d(0, 4, 3), ValueError, "in_channels needs to be at least 1; got 0"),
        (lambda: AdaptiveConv2d(3, 4.0, 3), TypeError, "out_channels needs an int; got 4.0"),
        (lambda: AdaptiveConv2d(3, 4, 3, num_atoms=0), ValueError, "num_atoms needs to be at least 1"),
        (lambda: AdaptiveConv2d(3, 4, 3, num_bases=9), ValueError, "at most 8"),
        (lambda: AdaptiveConv2d(3, 4, 3, padding_mode="wrap"), ValueError, "got 'wrap'"),
        (lambda: AdaptiveConv2d(3, 4, 3, stride=2, padding="same"), ValueError, "stride 1"),
        (lambda: AdaptiveConv2d(3, 4, 3, bases="fourier"), ValueError, "got 'fourier'"),
        (lambda: AdaptiveConv2d(3, 4, 5, bases=fourier_bessel(3)), ValueError, r"\(L, 5, 5\); got \(6, 3, 3\)"),
        (lambda: AdaptiveConv2d(3, 4, 3, bases=torch.ones(2, 3, 3).long()), TypeError, "got torch.int64"),
        (lambda: AdaptiveConv2d(3, 4, 3, bases=torch.zeros(2, 3, 3)), ValueError, "not all zero"),
        (
            lambda: AdaptiveConv2d(3, 4, 3, bases=nn.Parameter(fourier_bessel(3)), dtype=torch.float64),
            TypeError,
            "torch.float64 on cpu; got torch.float32 on cpu",
        ),
        (lambda: AdaptiveConv2d(3, 4, 3, first_kernel=2), ValueError, "first_kernel needs an odd number"),
        (lambda: AtomGenerator(3, 9, 3)(torch.zeros(1, 3, 8, 8).double()), TypeError, "generator is torch.float32"),
        (lambda: AdaptiveConv2d(3, 4, 3, generator=lambda x: x), TypeError, "nn.Module; got function"),
    ],
)
def test_bad_input_is_refused_with_a_reason(call, error, message):
    with pytest.raises(error, match=message):
        call()


def operators_of(layer: AdaptiveConv2d, x: torch.Tensor) -> set[str]:
    """Those of acda that run in a training step and in inference."""
    with Operators() as seen:
        layer.train()(x).sum().backward()
        with torch.no_grad():
            layer.eval()(x)
    return set(seen.ours)


def test_a_layer_in_plain_torch_is_plain_torch_throughout():
    """backend="reference" reaches Φ too: no operator of the kernel runs."""
    layer, x = AdaptiveConv2d(3, 4, 3), torch.randn(1, 3, 6, 6)
    if native.MISSING is None:
        ours = {"adaptive_layer_training", "adaptive_layer_training_backward", "adaptive_layer"}
        assert ours <= operators_of(layer, x)
    layer.backend = "reference"
    assert not operators_of(layer, x)


class Doubling(AtomGenerator):
    """Its forward takes x alone, as that of a user's own Φ may."""

    def forward(self, x):
        return 2 * super().forward(x)


def test_a_generator_derived_from_ours():
    phi = Doubling(3, 6 * 6, 3)
    layer, x = AdaptiveConv2d(3, 4, 3, generator=phi), torch.randn(2, 3, 8, 8)
    layer(x).sum().backward()
    with torch.no_grad():
        layer.eval()
        single = AdaptiveConv2d(3, 4, 3, generator=AtomGenerator(3, 6 * 6, 3)).eval()
        single.load_state_dict(layer.state_dict())
        torch.testing.assert_close(layer.coefficients(x), 2 * single.coefficients(x))
        torch.testing.assert_close(layer(x) - layer.bias[:, None, None], 2 * (single(x) - single.bias[:, None, None]))


def test_a_generator_whose_forward_was_replaced():
    layer, x = AdaptiveConv2d(3, 4, 3).eval(), torch.randn(2, 3, 8, 8)
    layer.generator.forward = lambda x: torch.ones(2, 36, 6, 6)
    assert layer.bases is not None
    expected = nn.functional.conv2d(x, torch.einsum("ocm,lij->ocij", layer.mixing, layer.bases), layer.bias)
    torch.testing.assert_close(layer(x), expected)


def test_hooks_on_the_generator_see_the_map_alone():
    layer, x, seen = AdaptiveConv2d(3, 4, 3), torch.randn(2, 3, 8, 8), []
    layer.generator.register_forward_hook(lambda module, inputs, y: seen.append((inputs, y.shape)))
    layer(x)
    (((given,), shape),) = seen
    assert torch.equal(given, x)
    assert shape == (2, 36, 6, 6)


@pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch's own vmap rule for addcmul_
def test_gradients_of_each_sample_in_channels_last():
    layer = AdaptiveConv2d(3, 4, 3, padding=1).eval()
    x = torch.randn(3, 3, 6, 6).contiguous(memory_format=torch.channels_last)
    parameters = dict(layer.named_parameters())

    def loss(parameters, sample):
        return torch.func.functional_call(layer, parameters, (sample[None],)).square().sum()

    together = torch.vmap(torch.func.grad(loss), in_dims=(None, 0))(parameters, x)
    for i in range(3):
        alone = torch.autograd.grad(layer(x[i : i + 1]).square().sum(), list(parameters.values()))
        for (name, found), expected in zip(together.items(), alone, strict=True):
            torch.testing.assert_close(found[i], expected, rtol=1e-3, atol=1e-4, msg=name)
