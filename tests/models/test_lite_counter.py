"""The counter on EfficientNet-lite0: any size, no negative density, one layer that differs between its variants."""

import pytest
import torch
from torch import nn

from acda import create_model
from acda.layers import AdaptiveConv2d, CondConv2d
from acda.photos.tiles import apply_in_tiles

KINDS = {"": AdaptiveConv2d, "_conv": nn.Conv2d, "_condconv": CondConv2d}


@pytest.mark.parametrize("size", [(64, 64), (17, 90), (33, 48)])
@pytest.mark.parametrize("kind", KINDS)
def test_any_size(kind, size):
    counter = create_model(f"lite_counter{kind}").eval()
    with torch.no_grad():
        density = counter(torch.randn(1, 3, *size))
    assert density.shape == (1, 1, -(-size[0] // 8), -(-size[1] // 8))
    assert float(density.min()) >= 0


def test_kinds_differ_in_one_layer():
    kinds = {kind: create_model(f"lite_counter{kind}").decoder.blocks[0][1] for kind in KINDS}
    assert {kind: type(block.conv2) for kind, block in kinds.items()} == KINDS
    assert len({tuple(block.conv1.weight.shape) for block in kinds.values()}) == 1


@pytest.mark.parametrize("adapt", ["image", "none"])
def test_what_adapts_is_an_option(adapt):
    counter = create_model("lite_counter", adapt=adapt)
    assert {part.adapt for part in counter.modules() if isinstance(part, AdaptiveConv2d)} == {adapt}


def test_every_map_reaches_the_density():
    torch.manual_seed(0)
    decoder = create_model("lite_counter_conv").decoder
    maps = [torch.randn(2, width, side, side, requires_grad=True) for width, side in ((40, 8), (112, 4), (320, 2))]
    decoder(tuple(maps)).sum().backward()
    assert all(float(each.grad.abs().max()) > 0 for each in maps)


def test_a_fresh_one_predicts_about_the_density_of_crowds():
    torch.manual_seed(0)
    counter = create_model("lite_counter")
    with torch.no_grad():
        assert 0.3 * counter.unit < float(counter(torch.rand(2, 3, 64, 64)).mean()) < 3 * counter.unit


def test_tiles_meet():
    torch.manual_seed(0)
    counter = create_model("lite_counter").eval()
    photo = torch.rand(1, 3, 40, 2400) * 2 - 1
    whole = apply_in_tiles(counter, photo, 2400)
    parts = apply_in_tiles(counter, photo, 512)
    torch.testing.assert_close(parts, whole, rtol=1e-4, atol=1e-6)
