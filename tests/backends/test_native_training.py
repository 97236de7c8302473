"""A layer in training is one operator, with the results of Φ's steps and the operator called separately."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.profiler import profile
from torch.utils.flop_counter import FlopCounterMode

from acda import AdaptiveConv2d
from acda.backends import native

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


def unheard(*event):
    """A hook that does nothing. With it on Φ, the steps are separate operators."""


def results(layer, x, grad, in_steps=False):
    """Output, gradients of the input and of every parameter, and the statistics after a step of training."""
    layer, x = copy.deepcopy(layer), x.clone().requires_grad_()
    if in_steps:
        layer.generator.register_forward_hook(unheard)
    y = layer(x)
    y.backward(grad)
    named = {"y": y.detach(), "x": x.grad}
    named |= {name: p.grad for name, p in layer.named_parameters()}
    return named | {name: t for name, t in layer.named_buffers() if t is not None}


def operators_of(layer, x):
    with torch.profiler.profile() as profile:
        layer(x).sum().backward()
    return {event.name for event in profile.events() if event.name.startswith("acda::")}


WHOLE = {"acda::adaptive_layer_training", "acda::adaptive_layer_training_backward"}


@settings(max_examples=40, deadline=None)
@given(
    k=st.sampled_from([1, 3, 5, 7]),
    more_padding=st.sampled_from([-9, 0, 0, 1]),
    dilation=st.sampled_from([1, 1, 2]),
    groups=st.sampled_from([1, 1, 2, 6]),
    hidden=st.sampled_from([5, 16, 64]),
    batch=st.integers(1, 3),
    size=st.tuples(st.integers(1, 30), st.integers(1, 45)),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float64]),
    channels_last=st.booleans(),
    winograd=st.booleans(),
    fixed=st.tuples(st.booleans(), st.booleans()),
    bias=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bit_for_bit_what_its_parts_compute(
    k, more_padding, dilation, groups, hidden, batch, size, dtype, channels_last, winograd, fixed, bias, seed
):
    torch.manual_seed(seed)
    padding = max(0, dilation * (k // 2) + more_padding)
    room = dilation * (k - 1) + 1 - 2 * padding
    height, width = (max(length, room) for length in size)
    bases = None if k == 1 else "fourier_bessel"
    layer = AdaptiveConv2d(
        6, 12, k, 1, padding, dilation, groups, bias, dtype=dtype, hidden=hidden, bases=bases, num_atoms=3
    )
    layer.generator.squeeze_norm.train(not fixed[0])
    layer.generator.predict_norm.train(not fixed[1])
    x = torch.randn(batch, 6, height, width, dtype=dtype)
    x = x.contiguous(memory_format=torch.channels_last) if channels_last else x
    with torch.no_grad():
        grad = torch.randn_like(copy.deepcopy(layer)(x))
    torch.ops.acda.poison_scratch(True)
    before = torch.ops.acda.use_winograd(winograd)
    try:
        whole, parts = results(layer, x, grad), results(layer, x, grad, in_steps=True)
    finally:
        torch.ops.acda.use_winograd(before)
        torch.ops.acda.poison_scratch(False)
    assert whole.keys() == parts.keys()
    for name, found in whole.items():
        assert torch.equal(found, parts[name]), name
    assert whole["y"].stride() == parts["y"].stride()


@pytest.mark.parametrize("frozen", [False, True])
def test_values_and_gradients_are_those_of_plain_torch(frozen):
    torch.manual_seed(0)
    layer, x = AdaptiveConv2d(5, 7, 5, padding=2, dtype=torch.float64), torch.randn(2, 5, 9, 11, dtype=torch.float64)
    if frozen:
        layer.generator.eval()
    grad = torch.randn(2, 7, 9, 11, dtype=torch.float64)
    found = results(layer, x, grad)
    layer.backend = "reference"
    for name, expected in results(layer, x, grad).items():
        torch.testing.assert_close(found[name], expected, rtol=1e-9, atol=1e-9, msg=name)


def test_one_operator_forward_and_one_backward():
    layer, x = AdaptiveConv2d(4, 4, 3, padding=1), torch.randn(2, 4, 12, 12)
    assert operators_of(layer, x) == WHOLE


def make(case):
    options = {"padding_mode": "reflect"} if case == "reflect" else {"stride": 2} if case == "stride" else {}
    layer = AdaptiveConv2d(4, 4, 3, padding=1, first_kernel=3 if case == "wider Φ" else 1, **options)
    x = torch.randn(2, 4, 12, 12)
    if case.startswith("hook"):
        part = layer.generator if case == "hook on Φ" else layer.generator.predict_norm
        part.register_forward_hook(unheard)
    if case == "frozen Φ":
        layer.generator.requires_grad_(False)
    if case == "parametrized":
        nn.utils.parametrizations.weight_norm(layer.generator.predict)
    return (layer.bfloat16(), x.bfloat16()) if case == "half precision" else (layer, x)


@pytest.mark.parametrize(
    "case",
    ["hook on Φ", "hook within Φ", "frozen Φ", "reflect", "stride", "wider Φ", "half precision", "parametrized"],
)
def test_in_steps_where_one_operator_would_not_do_the_same(case):
    assert not operators_of(*make(case)) & WHOLE


def test_an_input_without_gradient_gets_none():
    layer, x = AdaptiveConv2d(4, 4, 3, padding=1), torch.randn(2, 4, 12, 12)
    layer(x).sum().backward()
    assert x.grad is None
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.parametrize("options", [{}, {"groups": 2}, {"bases": None}])
@pytest.mark.parametrize("needs_input", [False, True])
def test_counts_the_multiply_adds_of_its_parts(options, needs_input):
    layer, x = AdaptiveConv2d(4, 6, 5, padding=2, **options), torch.randn(2, 4, 12, 9, requires_grad=needs_input)
    counts = []
    for in_steps in (False, True):
        if in_steps:
            layer.generator.register_forward_hook(unheard)
        with FlopCounterMode(display=False) as counter:
            layer(x).sum().backward()
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


def test_shapes_without_numbers():
    layer, x = AdaptiveConv2d(4, 6, 5, padding=2), torch.randn(2, 4, 12, 9)
    real, meta = layer(x), layer.to("meta")(x.to("meta"))
    assert (meta.shape, meta.stride()) == (real.shape, real.stride())


def test_keeps_two_maps_of_phi():
    """The maps before the normalisations; the separate operators keep four."""
    kept = []
    layer, x = AdaptiveConv2d(4, 6, 7, padding=3), torch.randn(1, 4, 20, 20)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: (kept.append(tuple(t.shape)), t)[1], lambda t: t):
        layer(x)
    maps = [shape for shape in kept if shape[:3] == (1, 20, 20)]
    assert sorted(maps) == [(1, 20, 20, 4), (1, 20, 20, 64), (1, 20, 20, 108)]


def test_fills_no_maps_of_zeros_for_gradients_that_nobody_reads():
    """Autograd would, for every result that has no gradient: the maps of Φ, at a tenth of a step's time."""
    layer, x = AdaptiveConv2d(4, 6, 7, padding=3), torch.randn(1, 4, 20, 20)
    y = layer(x)
    with profile(record_shapes=True) as seen:
        y.backward(torch.ones_like(y))
    zeroed = [event.input_shapes[0] for event in seen.events() if event.name == "aten::zero_"]
    assert zeroed  # sums over the pixels begin so
    assert not [shape for shape in zeroed if shape[1:3] == [20, 20]]


def test_second_derivatives_are_refused():
    layer, x = AdaptiveConv2d(2, 2, 3, padding=1), torch.randn(1, 2, 6, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        gradient.sum().backward()
