"""What has its own filters: every pixel, every image, or nothing."""

import pytest
import torch
from torch import nn

import acda
from acda import AdaptiveConv2d

CASES = [
    {},
    {"stride": 2},
    {"groups": 2},
    {"padding_mode": "reflect"},
    {"dilation": 2},
    {"bases": None},
    {"dtype": torch.float64},
]


@pytest.mark.parametrize("options", CASES, ids=str)
@pytest.mark.parametrize("adapt", ["image", "none"])
def test_it_is_the_operator_with_the_same_coefficients_at_every_pixel(adapt, options):
    layer = AdaptiveConv2d(4, 6, 5, padding=2, adapt=adapt, **options).eval()
    x = torch.randn(3, 4, 12, 11, dtype=options.get("dtype"))
    alpha = layer.coefficients(x)
    assert torch.equal(alpha, alpha[..., :1, :1].expand_as(alpha))
    inner, (_, stride, padding, dilation) = layer.extended(x)
    operands = (inner, alpha, layer.bases, layer.mixing, layer.bias, stride, padding, dilation, layer.groups)
    truth = acda.functional.adaptive_conv2d(*operands, backend="reference")
    torch.testing.assert_close(layer(x), truth, rtol=1e-4, atol=1e-5)


def test_an_images_filters_are_the_mean_of_its_pixels():
    per_pixel, per_image = (AdaptiveConv2d(4, 6, 3, padding=1, adapt=adapt) for adapt in ("pixel", "image"))
    per_image.load_state_dict(per_pixel.state_dict())
    x = torch.randn(2, 4, 9, 9)
    mean = per_pixel.eval().coefficients(x).mean((3, 4)).detach()
    torch.testing.assert_close(per_image.eval().coefficients(x)[..., 0, 0], mean)
    assert float((mean[0] - mean[1]).abs().max()) > 1e-3, "two images have two sets of filters"


def test_without_adaptation_it_is_linear():
    layer, (x, y) = AdaptiveConv2d(4, 6, 3, bias=False, adapt="none"), torch.randn(2, 1, 4, 9, 9)
    torch.testing.assert_close(layer(x) + layer(y), layer(x + y), rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in layer.parameters()) == layer.mixing.numel() + 6 * layer.num_elements


@pytest.mark.parametrize("adapt", ["pixel", "image", "none"])
def test_gradients_reach_every_parameter(adapt):
    layer = AdaptiveConv2d(4, 6, 3, padding=1, adapt=adapt)
    layer(torch.randn(2, 4, 9, 9)).square().sum().backward()
    assert all(p.grad is not None and float(p.grad.abs().max()) > 0 for p in layer.parameters())


@pytest.mark.parametrize("adapt", ["pixel", "image", "none"])
def test_a_trained_convolution_starts_as_itself(adapt):
    conv, x = nn.Conv2d(4, 6, 3, padding=1), torch.randn(2, 4, 9, 9)
    layer = AdaptiveConv2d.from_conv2d(conv, exact=True, adapt=adapt)
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-4, atol=1e-5)
    converted = acda.convert(nn.Sequential(conv), exact=True, adapt=adapt)
    assert converted[0].adapt == adapt


@pytest.mark.parametrize("adapt", ["image", "none"])
def test_a_fresh_layer_has_the_output_variance_of_conv2d(adapt):
    x = torch.randn(2, 16, 40, 40)
    ours = torch.stack([AdaptiveConv2d(16, 16, 7, adapt=adapt)(x).var() for _ in range(20)]).mean()
    theirs = torch.stack([nn.Conv2d(16, 16, 7)(x).var() for _ in range(20)]).mean()
    # Over 20 layers the ratio has a standard deviation of about a hundredth.
    torch.testing.assert_close(ours, theirs, rtol=0.08, atol=0)


@pytest.mark.parametrize("adapt", ["image", "none"])
def test_no_images_in_none_out(adapt):
    assert AdaptiveConv2d(4, 6, 3, adapt=adapt).eval()(torch.randn(0, 4, 9, 9)).shape == (0, 6, 7, 7)


@pytest.mark.parametrize("adapt", ["image", "none"])
def test_copies_state_dicts_and_resetting(adapt):
    layer = AdaptiveConv2d(4, 6, 3, adapt=adapt)
    before = {name: t.clone() for name, t in layer.state_dict().items()}
    layer.reset_parameters()
    assert not torch.equal(layer.mixing, before["mixing"])
    layer.load_state_dict(before)
    assert torch.equal(layer.mixing, before["mixing"])
    assert f"adapt={adapt!r}" in repr(layer)


@pytest.mark.parametrize(("adapt", "generator"), [("channel", None), ("image", nn.Identity())])
def test_other_words_are_refused(adapt, generator):
    with pytest.raises(ValueError, match='adapt needs to be "pixel", "image" or "none"'):
        AdaptiveConv2d(4, 6, 3, adapt=adapt, generator=generator)


def test_a_network_takes_it_as_an_option():
    model = acda.create_model("restorer", adapt="none")
    layers = [layer for layer in model.modules() if isinstance(layer, AdaptiveConv2d)]
    assert {layer.adapt for layer in layers} == {"none"}
