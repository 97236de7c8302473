"""The alternative layers, each against a loop over the pixels of its paper's equation."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.layers import (
    CondConv2d,
    DynamicConv2d,
    DynamicFilterConv2d,
    Involution2d,
    KernelPrediction2d,
    LaplacianKernelPrediction2d,
    PixelAdaptiveConv2d,
    anneal,
)
from acda.layers.kernel_prediction import collapse, laplacian_pyramid

WINDOWS = [
    {"kernel_size": 3},
    {"kernel_size": 3, "padding": 1},
    {"kernel_size": 5, "stride": (2, 1), "padding": (1, 3)},
    {"kernel_size": 3, "stride": 2, "padding": 2, "dilation": (1, 2)},
    {"kernel_size": 1},
    {"kernel_size": 3, "padding": 2, "padding_mode": "reflect"},
    {"kernel_size": 3, "padding": "same", "padding_mode": "circular"},
]
CONVS = [CondConv2d, DynamicConv2d, DynamicFilterConv2d, PixelAdaptiveConv2d]


def conv_of(layer) -> nn.Conv2d:
    """nn.Conv2d with the layer's arguments, which gives the output shape and does the padding."""
    return nn.Conv2d(
        layer.in_channels,
        layer.out_channels,
        layer.kernel_size,
        layer.stride,
        layer.padding,
        layer.dilation,
        layer.groups,
        padding_mode=layer.padding_mode,
    )


def windows_of(layer, x: Tensor):
    """Every output pixel with the (C, k, k) that its window sees."""
    (py, px), (sy, sx), (dy, dx), k = layer.padding, layer.stride, layer.dilation, layer.kernel_size[0]
    mode = "constant" if layer.padding_mode == "zeros" else layer.padding_mode
    padded = F.pad(x, (px, px, py, py), mode=mode)
    P, Q = conv_of(layer)(torch.zeros(1, layer.in_channels, *x.shape[2:])).shape[2:]
    for p in range(P):
        for q in range(Q):
            rows = [p * sy + i * dy for i in range(k)]
            columns = [q * sx + j * dx for j in range(k)]
            yield p, q, padded[:, :, rows][:, :, :, columns]


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("kind", CONVS)
def test_output_size_is_conv2ds(kind, groups, window):
    layer, x = kind(4, 6, groups=groups, **window), torch.randn(2, 4, 9, 8)
    assert layer(x).shape == conv_of(layer)(x).shape
    assert layer(x[:0]).shape == conv_of(layer)(x[:0]).shape
    assert layer(x.contiguous(memory_format=torch.channels_last)).is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("kind", [CondConv2d, DynamicConv2d])
def test_one_filter_per_image_is_a_convolution_per_image(kind, window):
    layer, x = kind(4, 6, groups=2, **window).double(), torch.randn(3, 4, 9, 8, dtype=torch.float64)
    shares, conv = layer.shares(x), conv_of(layer).double()
    for image, share, y in zip(x, shares, layer(x), strict=True):
        with torch.no_grad():
            conv.weight.copy_(sum(s * w for s, w in zip(share, layer.experts(), strict=True)))
            conv.bias.copy_(sum(s * b for s, b in zip(share, layer.bias, strict=True)))
        torch.testing.assert_close(y, conv(image[None])[0])


def test_cond_convs_shares_are_sigmoids_of_the_mean():
    layer, x = CondConv2d(3, 4, 3, num_experts=5), torch.randn(2, 3, 6, 6)
    for image, shares in zip(x, layer.shares(x), strict=True):
        mean = torch.stack([channel.sum() / 36 for channel in image])
        logits = layer.routing.weight @ mean + layer.routing.bias
        torch.testing.assert_close(shares, 1 / (1 + torch.exp(-logits)))


def test_dynamic_convs_shares_are_a_softmax_that_sharpens():
    layer, x = DynamicConv2d(8, 4, 3), torch.randn(2, 8, 6, 6)
    hot = layer.shares(x)
    anneal(nn.Sequential(layer), 1)
    cool = layer.shares(x)
    logits = layer.attend(F.relu(layer.squeeze(x.mean((2, 3)))))
    for shares, temperature in ((hot, 30), (cool, 1)):
        weights = torch.exp(logits / temperature)
        torch.testing.assert_close(shares, weights / weights.sum(1, keepdim=True))
    assert cool.std() > 5 * hot.std()
    assert layer.state_dict()["temperature"] == 1


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_dynamic_filters_equal_the_loop(groups, window):
    layer, x = DynamicFilterConv2d(4, 6, groups=groups, **window).double(), torch.randn(2, 4, 7, 6).double()
    layer.eval()
    filters, y = layer.filters(x), layer(x)
    expected = torch.full_like(y, torch.nan)
    for p, q, seen in windows_of(layer, x):
        for o in range(6):
            mine = seen.unflatten(1, (groups, -1))[:, o * groups // 6]
            expected[:, o, p, q] = (filters[:, o, :, :, :, p, q] * mine).sum((1, 2, 3)) + layer.bias[o]
    torch.testing.assert_close(y, expected)


def test_dynamic_filters_that_do_not_fit_are_refused_with_the_figure():
    layer = DynamicFilterConv2d(64, 64, 3, padding=1, memory_limit=2**30)
    x = torch.randn(2, 64, 100, 100)
    with pytest.raises(MemoryError, match=r"36,864 numbers each, needs 5.5 GiB.*there are 1.0"):
        layer(x)
    with torch.no_grad(), pytest.raises(MemoryError, match=r"needs 2\.7 GiB"):
        layer(x)
    assert layer(x[:, :, :4, :4]).shape == (2, 64, 4, 4)


def test_dynamic_filters_know_what_the_machine_has():
    layer = DynamicFilterConv2d(256, 256, 7, padding=3, device="meta")
    x = torch.empty(64, 256, 512, 512, device="meta")
    assert layer.bytes_needed(x) == 2 * 4 * 64 * 512 * 512 * 256 * 256 * 49
    layer, x = DynamicFilterConv2d(2, 2, 3), torch.empty(1).expand(1, 2, 2_000_000, 2_000_000)
    with pytest.raises(MemoryError, match="AdaptiveConv2d"):
        layer(x)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("guided", [False, True])
def test_pixel_adaptive_equals_the_loop(guided, groups, window):
    options = {"guide_channels": 3} if guided else {}
    layer = PixelAdaptiveConv2d(4, 6, groups=groups, **window, **options).double()
    x, guide = torch.randn(2, 4, 7, 6).double(), torch.randn(2, 3, 7, 6).double()
    guide = guide if guided else x
    y, centre = layer(x, guide) if guided else layer(x), layer.kernel_size[0] // 2
    scaled = guide / math.sqrt(guide.shape[1])
    like = PixelAdaptiveConv2d(guide.shape[1], 6, **window)
    expected = torch.full_like(y, torch.nan)
    for (p, q, seen), (_, _, f) in zip(windows_of(layer, x), windows_of(like, scaled), strict=True):
        alike = torch.exp(-0.5 * (f - f[:, :, centre : centre + 1, centre : centre + 1]).square().sum(1))
        for o in range(6):
            mine = seen.unflatten(1, (groups, -1))[:, o * groups // 6]
            expected[:, o, p, q] = (layer.weight[o] * alike[:, None] * mine).sum((1, 2, 3)) + layer.bias[o]
    torch.testing.assert_close(y, expected)


def test_pixel_adaptive_on_a_flat_guide_is_a_convolution():
    layer, x = PixelAdaptiveConv2d(4, 6, 3, guide_channels=2), torch.randn(2, 4, 8, 8)
    torch.testing.assert_close(layer(x, torch.ones(2, 2, 8, 8)), F.conv2d(x, layer.weight, layer.bias))
    with pytest.raises(ValueError, match=r"the guide needs \(2, 2, 8, 8\)"):
        layer(x, torch.ones(2, 3, 8, 8))


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("groups", [1, 2])
def test_involution_equals_the_loop(groups, window):
    layer, x = Involution2d(4, 4, groups=groups, **window).double().eval(), torch.randn(2, 4, 7, 6).double()
    nn.init.normal_(layer.bias)
    filters, y = layer.filters(x), layer(x)
    assert y.shape == conv_of(layer).double()(x).shape
    centre = layer.kernel_size[0] // 2
    kernels, expected = torch.full_like(filters, torch.nan), torch.full_like(y, torch.nan)
    for p, q, seen in windows_of(layer, x):
        alone = layer.norm(layer.squeeze(seen[:, :, centre : centre + 1, centre : centre + 1])).relu()
        kernels[..., p, q] = layer.span(alone).view(2, groups, *layer.kernel_size)
        for c in range(4):
            expected[:, c, p, q] = (filters[:, c * groups // 4, :, :, p, q] * seen[:, c]).sum((1, 2)) + layer.bias[c]
    torch.testing.assert_close(filters, kernels)
    torch.testing.assert_close(y, expected)


def test_involution_keeps_the_channels():
    assert Involution2d(64, 64, 7).groups == 4
    assert Involution2d(100, 100, 3).groups == 5
    with pytest.raises(ValueError, match="in and out need to be equal; got 4, 8"):
        Involution2d(4, 8, 3)


def test_kernel_prediction_equals_the_loop():
    layer, features, image = KernelPrediction2d(6, 5), torch.randn(2, 6, 7, 6), torch.randn(2, 3, 7, 6)
    filters, y = layer.predict(features), layer(features, image)
    padded = F.pad(image, (2, 2, 2, 2))
    for p in range(7):
        for q in range(6):
            expected = (filters[:, None, :, p, q].unflatten(2, (5, 5)) * padded[:, :, p : p + 5, q : q + 5]).sum((2, 3))
            torch.testing.assert_close(y[:, :, p, q], expected)
    with pytest.raises(ValueError, match="the image needs the features' batch and size"):
        layer(features, image[:, :, 1:])


@pytest.mark.parametrize("size", [(9, 8), (1, 1), (2, 5), (64, 48)])
def test_a_laplacian_pyramid_collapses_to_the_image(size):
    image = torch.randn(2, 3, *size, dtype=torch.float64)
    pyramid = laplacian_pyramid(image, 3)
    torch.testing.assert_close(collapse(pyramid), image)
    assert pyramid[-1].shape[2:] == tuple(-(-n // 4) for n in size)


def test_a_flat_image_has_no_detail():
    *details, coarsest = laplacian_pyramid(torch.full((1, 1, 20, 17), 0.7, dtype=torch.float64), 4)
    for level in details:
        torch.testing.assert_close(level, torch.zeros_like(level))
    torch.testing.assert_close(coarsest, torch.full_like(coarsest, 0.7))


def test_a_slope_has_no_detail_away_from_the_border():
    """It would have some if the levels were shifted against each other by a fraction of a pixel."""
    y, x = torch.meshgrid(*(torch.arange(n, dtype=torch.float64) for n in (64, 50)), indexing="ij")
    fine, coarse, _ = laplacian_pyramid((2 * y - 3 * x)[None, None], 3)
    for level, border in ((fine, 8), (coarse, 6)):
        inner = level[:, :, border:-border, border:-border]
        torch.testing.assert_close(inner, torch.zeros_like(inner))


def test_laplacian_kernel_prediction_filters_each_level():
    layer, features, image = LaplacianKernelPrediction2d(6, 5), torch.randn(2, 6, 13, 10), torch.randn(2, 3, 13, 10)
    levels = laplacian_pyramid(image, 3)
    maps = [features, *(laplacian_pyramid(features, n)[-1] for n in (2, 3))]
    filtered = [predict(own, level) for predict, own, level in zip(layer.levels, maps, levels, strict=True)]
    torch.testing.assert_close(layer(features, image), collapse(filtered))
    for predict in layer.levels:
        nn.init.zeros_(predict.predict[-1].weight)
    torch.testing.assert_close(layer(features, image), image)


@pytest.mark.parametrize("kind", CONVS)
def test_gradients_reach_every_parameter(kind):
    layer, x = kind(4, 6, 3, padding=1), torch.randn(2, 4, 6, 6, requires_grad=True)
    layer(x).square().sum().backward()
    assert x.grad is not None
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all()


@pytest.mark.parametrize("kind", CONVS)
def test_wrong_input_is_refused(kind):
    layer = kind(4, 6, 3)
    with pytest.raises(ValueError, match="needs 4 channels"):
        layer(torch.randn(1, 3, 8, 8))
    with pytest.raises(ValueError, match="at least"):
        layer(torch.randn(1, 4, 2, 2))


@pytest.mark.parametrize("kind", [CondConv2d, DynamicConv2d, DynamicFilterConv2d])
def test_a_fresh_layer_has_conv2ds_variance(kind):
    torch.manual_seed(0)
    layers = [kind(32, 64, 3, padding=1) for _ in range(6)]
    x = torch.randn(4, 32, 8, 8)
    ours = torch.stack([layer(x).var() for layer in layers]).mean()
    theirs = nn.Conv2d(32, 64, 3, padding=1)(x).var()
    assert 1 / 1.5 < ours / theirs < 1.5


def test_autocast_gives_what_conv2d_gives():
    x = torch.randn(1, 4, 8, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert PixelAdaptiveConv2d(4, 4, 3)(x).dtype == torch.bfloat16


@pytest.mark.parametrize("kind", [*CONVS, Involution2d])
def test_a_model_can_be_moved_to_channels_last(kind):
    layer, x = kind(4, 4, 3, padding=1).eval(), torch.randn(2, 4, 8, 9)
    expected = layer(x)
    layer.to(memory_format=torch.channels_last)
    torch.testing.assert_close(layer(x.to(memory_format=torch.channels_last)), expected)


def test_the_temperature_starts_again():
    layer = DynamicConv2d(4, 4, 3, temperature=7)
    assert layer.temperature.dtype == torch.float32
    layer.temperature.fill_(float("nan"))
    layer.reset_parameters()
    assert float(layer.temperature) == 7
