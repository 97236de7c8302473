"""A layer in inference is one operator, with the results of Φ's steps and the operator called separately."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

import acda.functional
from acda import AdaptiveConv2d
from acda.backends import native

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


def trained(layer: AdaptiveConv2d) -> AdaptiveConv2d:
    """The layer in eval mode, with running statistics that differ from a fresh layer's."""
    for norm in layer.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2)
    return layer.eval()


def in_steps(layer: AdaptiveConv2d, x: torch.Tensor) -> torch.Tensor:
    window = {"stride": layer.stride, "padding": layer.padding, "dilation": layer.dilation, "groups": layer.groups}
    alpha = layer.coefficients(x)
    return acda.functional.adaptive_conv2d(x, alpha, layer.bases, layer.mixing, layer.bias, backend="native", **window)


def operators_of(layer: AdaptiveConv2d, x: torch.Tensor) -> set[str]:
    with torch.profiler.profile() as profile:
        layer(x)
    return {event.name for event in profile.events() if event.name.startswith("acda::")}


@settings(max_examples=60, deadline=None)
@given(
    k=st.sampled_from([1, 3, 5, 7]),
    stride=st.sampled_from([1, 1, 2, 3]),
    more_padding=st.sampled_from([-9, 0, 0, 1, 4]),
    dilation=st.sampled_from([1, 1, 2]),
    groups=st.sampled_from([1, 1, 2]),
    hidden=st.sampled_from([5, 16, 64]),
    batch=st.integers(0, 3),
    size=st.tuples(st.integers(1, 40), st.integers(1, 60)),
    dtype=st.sampled_from([torch.float32, torch.float32, torch.float64]),
    planar=st.booleans(),
    winograd=st.booleans(),
    seed=st.integers(0, 99),
)
def test_bit_for_bit_what_its_parts_compute(
    k, stride, more_padding, dilation, groups, hidden, batch, size, dtype, planar, winograd, seed
):
    torch.manual_seed(seed)
    padding = max(0, dilation * (k // 2) + more_padding)
    room = dilation * (k - 1) + 1 - 2 * padding
    height, width = (max(length, room) for length in size)
    bases = None if k == 1 else "fourier_bessel"
    layer = AdaptiveConv2d(
        6, 4, k, stride, padding, dilation, groups, dtype=dtype, hidden=hidden, bases=bases, num_atoms=3
    )
    x = torch.randn(batch, 6, height, width, dtype=dtype)
    x = x if planar else x.contiguous(memory_format=torch.channels_last)
    torch.ops.acda.poison_scratch(True)
    before = torch.ops.acda.use_winograd(winograd)
    try:
        with torch.no_grad():
            whole, parts = trained(layer)(x), in_steps(layer, x)
    finally:
        torch.ops.acda.use_winograd(before)
        torch.ops.acda.poison_scratch(False)
    assert torch.equal(whole, parts)
    assert whole.stride() == parts.stride()


@torch.no_grad()
def test_one_operator_in_inference():
    layer, x = trained(AdaptiveConv2d(4, 4, 3, padding=1)), torch.randn(1, 4, 12, 12)
    assert operators_of(layer, x) == {"acda::adaptive_layer"}


@torch.no_grad()
@pytest.mark.parametrize("case", ["hook on Φ", "hook within Φ", "training", "reflect", "wider Φ", "half precision"])
def test_in_steps_where_one_operator_would_not_do_the_same(case):
    options = {"padding_mode": "reflect"} if case == "reflect" else {}
    layer = trained(AdaptiveConv2d(4, 4, 3, padding=1, first_kernel=3 if case == "wider Φ" else 1, **options))
    x, heard = torch.randn(1, 4, 12, 12), []
    if case.startswith("hook"):
        part = layer.generator if case == "hook on Φ" else layer.generator.predict_norm
        part.register_forward_hook(lambda *event: heard.append(event))
    if case == "training":
        layer.train()
    if case == "half precision":
        layer, x = layer.bfloat16(), x.bfloat16()
    assert "acda::adaptive_layer" not in operators_of(layer, x)
    assert bool(heard) == case.startswith("hook")


def test_in_steps_where_gradients_are_wanted():
    layer, x = trained(AdaptiveConv2d(4, 4, 3, padding=1)), torch.randn(1, 4, 12, 12, requires_grad=True)
    assert "acda::adaptive_layer" not in operators_of(layer, x)
    layer(x).sum().backward()
    assert x.grad is not None


@torch.no_grad()
@pytest.mark.parametrize("options", [{}, {"stride": 2}, {"groups": 2}, {"bases": None}])
def test_counts_the_multiply_adds_of_its_parts(options):
    layer, x = trained(AdaptiveConv2d(4, 6, 5, padding=2, **options)), torch.randn(2, 4, 12, 9)
    counts = []
    for compute in (layer, lambda x: in_steps(layer, x)):
        with FlopCounterMode(display=False) as counter:
            compute(x)
        counts.append(counter.get_total_flops())
    assert counts[0] == counts[1] > 0


@torch.no_grad()
@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("stride", [1, 2])
def test_shapes_without_numbers(memory_format, stride):
    layer, x = trained(AdaptiveConv2d(4, 6, 5, stride, 2)), torch.randn(2, 4, 12, 9).to(memory_format=memory_format)
    real, meta = layer(x), layer.to("meta")(x.to("meta"))
    assert (meta.shape, meta.stride()) == (real.shape, real.stride())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"squeeze": torch.randn(8, 5, 1, 1)}, "squeeze needs"),
        ({"predict": torch.randn(7, 8, 3, 3)}, "squeeze needs"),
        ({"predict_shift": torch.randn(3)}, "predict's shift needs"),
        ({"mixing": torch.randn(4, 3, 2)}, "mixing needs"),
        ({"bias": torch.randn(3)}, "bias needs"),
        ({"k": 5}, "bases need"),
        ({"x": torch.randn(1, 4, 1, 1)}, "room for one window"),
        ({"x": torch.randn(1, 4, 8, 8, dtype=torch.float64)}, "dense"),
    ],
)
def test_the_operator_refuses_what_does_not_fit(change, message):
    tensors = {
        "x": torch.randn(1, 4, 8, 8),
        "squeeze": torch.randn(8, 4, 1, 1),
        "squeeze_shift": torch.randn(8),
        "predict": torch.randn(2 * 5, 8, 3, 3),
        "predict_shift": torch.randn(2 * 5),
        "bases": torch.randn(5, 3, 3),
        "mixing": torch.randn(4, 4, 2),
        "bias": torch.randn(4),
        "k": 3,
    }
    assert torch.ops.acda.adaptive_layer(*tensors.values(), 1, 1, 0, 0, 1, 1, 1, True).shape == (1, 4, 6, 6)
    with pytest.raises(RuntimeError, match=message):
        torch.ops.acda.adaptive_layer(*(tensors | change).values(), 1, 1, 0, 0, 1, 1, 1, True)
