"""How a fresh layer starts: nearly as a convolution, able to learn, and as robust in training as one."""

import math

import pytest
import torch
import torch.nn.functional as F

from acda import AdaptiveConv2d, AtomGenerator, create_model


def unbiased(layer, x):
    return layer(x) - layer.bias[:, None, None]


def test_with_the_papers_start_a_layer_gives_the_same_for_x_and_minus_x():
    layer, x = AdaptiveConv2d(8, 8, 5, padding=2, adaptivity=1.0), torch.randn(2, 8, 16, 16)
    assert torch.equal(unbiased(layer, x), unbiased(layer, -x))


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
@pytest.mark.parametrize("side", [3, 5, 7])
def test_a_fresh_layer_is_nearly_a_convolution(side, bases):
    """The part of its output that no single filter explains is under a third: 0.17 to 0.28 over ten seeds."""
    layer, x = AdaptiveConv2d(16, 16, side, padding=side // 2, bases=bases), torch.randn(2, 16, 24, 24)
    with torch.no_grad():
        fixed = layer.generator.predict_norm.bias.tanh().view(layer.num_atoms, -1)
        elements = torch.eye(side**2).view(-1, side, side) if layer.bases is None else layer.bases
        filters = torch.einsum("ocm,ml,lij->ocij", layer.mixing, fixed, elements)
        y, conv = unbiased(layer, x), F.conv2d(x, filters, padding=side // 2)
    assert 0.02 < (y - conv).norm() / y.norm() < 0.33


def test_adaptivity_zero_is_a_convolution_and_one_has_no_fixed_part():
    assert not AtomGenerator(4, 36, 3, adaptivity=0.0).predict_norm.weight.any()
    assert not AtomGenerator(4, 36, 3, adaptivity=1.0).predict_norm.bias.any()


def test_what_tanh_sees_has_unit_variance_whatever_the_adaptivity():
    for adaptivity in (0.0, 0.2, 0.6, 1.0):
        norm = AtomGenerator(4, 6000, 3, adaptivity=adaptivity).predict_norm
        variance = norm.weight.square().mean() + norm.bias.var()
        assert abs(float(variance.detach()) - 1) < 0.1, "five standard errors of 6,000 draws"


def test_resetting_starts_in_the_same_way():
    layer = AdaptiveConv2d(4, 4, 3, adaptivity=0.4)
    layer.generator.predict_norm.reset_parameters()
    layer.reset_parameters()
    assert (layer.generator.predict_norm.weight == 0.4).all()
    assert layer.generator.predict_norm.bias.any()


def test_gradients_reach_the_whole_generator_from_the_first_step():
    layer = AdaptiveConv2d(8, 8, 7, padding=3)
    layer(torch.randn(2, 8, 16, 16)).square().mean().backward()
    assert all(bool(p.grad.abs().sum() > 0) for p in layer.parameters())


@pytest.mark.parametrize("adaptivity", [-0.1, 1.1, math.nan])
def test_adaptivity_is_a_share(adaptivity):
    with pytest.raises(ValueError, match="from 0, the same filter everywhere, to 1"):
        AdaptiveConv2d(4, 4, 3, adaptivity=adaptivity)


def two_colours(seed):
    """80 noisy images of two plain colours, standardised."""
    draw, labels = torch.Generator().manual_seed(seed), torch.arange(80) % 2
    colour = torch.tensor([[200.0, 40, 40], [40, 40, 200]])[labels][:, :, None, None]
    images = (colour + 20 * torch.randn(80, 3, 32, 32, generator=draw)).clamp(0, 255)
    return (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True), labels


def highest_and_last_loss(model, seed):
    """In eval mode after each of 12 epochs, by CIFAR's recipe: SGD, rate 0.05, batches of 16."""
    images, labels = two_colours(seed)
    optimiser = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: min(1, (step + 1) / 30))
    losses = []
    for _ in range(12):
        model.train()
        for chosen in torch.randperm(80).split(16):
            optimiser.zero_grad()
            F.cross_entropy(model(images[chosen]), labels[chosen]).backward()
            optimiser.step()
            schedule.step()
        with torch.no_grad():
            losses.append(float(F.cross_entropy(model.eval()(images), labels)))
    return max(losses), losses[-1]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", ["lenet", "lenet_acda"])
def test_two_colours_are_learnt_as_safely_as_with_convolutions(name, seed):
    torch.manual_seed(seed)
    highest, last = highest_and_last_loss(create_model(name, num_classes=2), seed)
    assert last < 0.1
    assert highest < 1, "never far from what it is trained to"
