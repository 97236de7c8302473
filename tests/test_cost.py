import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from acda import AdaptiveConv2d, create_model
from acda.cost import count, seconds
from acda.layers import DynamicFilterConv2d, Involution2d, PixelAdaptiveConv2d
from tests.clock import Clock, Takes, one_after_another


def test_a_convolution_is_counted_with_its_bias():
    cost = count(nn.Conv2d(256, 256, 7, padding=3), (1, 256, 100, 100))
    assert cost.multiply_adds == 256 * 256 * 49 * 10_000 + 256 * 10_000
    assert cost.parameters == 256 * 256 * 49 + 256
    bare = count(nn.Conv2d(256, 256, 7, padding=3, bias=False), (1, 256, 100, 100))
    assert cost.multiply_adds - bare.multiply_adds == 256 * 10_000


@pytest.mark.parametrize("side", [3, 5, 7])
def test_an_adaptive_layer_is_counted_exactly(side):
    M, L, pixels = 6, 6 * (side // 2), 2 * 20 * 21
    cost = count(AdaptiveConv2d(32, 48, side, padding=side // 2), (2, 32, 20, 21))
    generator = 32 * 64 + 9 * 64 * M * L
    operator = M * L * side**2 + 32 * M * side**2 + 32 * M * 48 + 48
    assert cost.layers["generator"].multiply_adds == pixels * generator
    assert cost.multiply_adds == pixels * (generator + operator)


def test_the_backend_does_not_matter():
    layer = AdaptiveConv2d(8, 8, 3)
    expected = count(layer, (1, 8, 9, 9))
    layer.backend = "reference"
    assert count(layer, (1, 8, 9, 9)) == expected
    assert layer.backend == "reference"


def test_it_agrees_with_torchs_counter_where_there_is_no_bias():
    model, x = create_model("ad_resnet_s").eval(), torch.randn(1, 3, 64, 64)
    with FlopCounterMode(display=False) as counter:
        model(x)
    assert count(model, x.shape).multiply_adds == counter.get_total_flops() // 2 + 1000  # the last layer's biases


def test_what_is_kept_for_backward():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 4, 1))
    cost = count(model, (2, 3, 10, 10))
    # The input for the first, the ReLU's result for itself and for the second.
    assert cost.kept_bytes == 4 * 200 * (3 + 8)
    assert cost.layers["1"].kept_bytes == 4 * 200 * 8
    assert cost.layers["2"].kept_bytes == 0


def test_an_adaptive_layer_keeps_no_patches():
    cost, numbers = count(AdaptiveConv2d(64, 64, 7, padding=3), (1, 64, 50, 50)), 4 * 2500
    # x; Φ's map before its normalisation, after it and its Tanh; α the same.
    assert cost.kept_bytes <= numbers * (64 + 3 * 64 + 3 * 108)


def test_layers_add_up():
    cost = count(create_model("ad_resnet_s"), (1, 3, 64, 64))
    stages = [cost.layers[name] for name in ("conv1", "layer1", "layer2", "layer3", "layer4", "fc")]
    assert sum(stage.multiply_adds for stage in stages) == cost.multiply_adds
    assert cost.layers["layer3.0.conv2"].kind == "AdaptiveConv2d"


def test_counting_leaves_the_model_alone_and_computes_nothing():
    model = AdaptiveConv2d(4096, 4096, 3, padding=1, device="meta")
    assert count(model, (64, 4096, 512, 512)).multiply_adds > 1e15
    lenet = create_model("lenet").train()
    count(lenet, (1, 3, 32, 32))
    assert lenet.training
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in lenet.modules())


def test_a_layer_used_twice_counts_twice():
    conv = nn.Conv2d(4, 4, 1, bias=False)
    cost = count(nn.Sequential(conv, conv), (1, 4, 5, 5))
    assert cost.multiply_adds == 2 * 16 * 25
    assert cost.parameters == 16


def test_per_pixel_filters_count_their_products():
    layer = Involution2d(32, 32, 3, padding=1, bias=False)
    pixels = 36
    assert count(layer, (1, 32, 6, 6)).multiply_adds == pixels * (32 * 8 + 8 * 18 + 18 + 32 * 9)


@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("kind", [PixelAdaptiveConv2d, DynamicFilterConv2d, Involution2d])
def test_a_bias_added_by_hand_counts(kind, size):
    with_bias, without = (count(kind(8, 8, 3, padding=1, bias=bias), (2, 8, size, size)) for bias in (True, False))
    assert with_bias.multiply_adds - without.multiply_adds == 2 * 8 * size**2


@pytest.mark.parametrize("groups", [1, 2, 8])
def test_full_filters_count_their_products_in_every_group(groups):
    layer, pixels = DynamicFilterConv2d(8, 8, 3, padding=1, groups=groups, bias=False), 36
    cost = count(layer, (1, 8, 6, 6))
    filters = 8 * 8 // groups * 9
    assert cost.multiply_adds == cost.layers["generator"].multiply_adds + pixels * (64 * filters + filters)


@pytest.mark.parametrize(("training", "expected"), [(False, 2), (True, 2 + 4)])
def test_the_time_is_the_median_of_the_passes_after_the_first(monkeypatch, training, expected):
    clock = Clock()
    monkeypatch.setattr("acda.cost.time", clock)
    module = Takes(clock, one_after_another(100, 1, 5, 2), backward=4)
    assert seconds(module, (1, 3), training=training, rounds=3) == expected


def test_timing_leaves_the_model_as_it_was():
    model = create_model("lenet_acda").train()
    before = {name: t.clone() for name, t in model.state_dict().items()}
    for training in (False, True):
        seconds(model, (1, 3, 32, 32), training=training, rounds=2)
    assert model.training
    assert all(torch.equal(before[name], t) for name, t in model.state_dict().items())


def test_modules_that_learn_nothing_or_only_in_part_can_be_timed():
    unused = nn.Sequential(nn.Conv2d(3, 3, 3))
    unused.register_parameter("unused", nn.Parameter(torch.zeros(2)))
    for module in (nn.ReLU(), unused, nn.Conv2d(3, 3, 3).requires_grad_(False)):
        seconds(module, (1, 3, 4, 4), training=True, rounds=1)


def test_shapes_are_needed():
    with pytest.raises(ValueError, match="the shape of each input"):
        count(nn.Conv2d(3, 3, 3))
