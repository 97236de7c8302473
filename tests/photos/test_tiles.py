"""Tiles fit together exactly, and how far a network sees is measured."""

import pytest
import torch
from torch import nn

from acda import create_model
from acda.layers import CondConv2d
from acda.models.restorer import RESTORERS
from acda.models.variational import VARIATIONAL
from acda.photos.tiles import apply_in_tiles, farthest_seen, tiles_of


class Plain(nn.Module):
    """Some convolutions, with the attributes that apply_in_tiles needs."""

    def __init__(self, *layers: nn.Module, stride: int, cell: int) -> None:
        super().__init__()
        self.layers, self.stride, self.cell = nn.Sequential(*layers), stride, cell

    def forward(self, x):
        return self.layers(x)


def test_reach_of_known_networks():
    assert farthest_seen(Plain(nn.Conv2d(3, 1, 7, padding=3), stride=1, cell=1).eval()) in (3, 4)
    two = Plain(nn.Conv2d(3, 4, 3, 2, 1), nn.ReLU(), nn.Conv2d(4, 1, 5, padding=2), stride=2, cell=2)
    assert farthest_seen(two.eval()) in (6, 8)
    with pytest.raises(ValueError, match="looks at the whole image"):
        farthest_seen(Plain(nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), stride=1, cell=1).eval())


def test_a_network_in_training_is_refused_and_not_spoilt():
    network = create_model("restorer")
    before = {name: value.clone() for name, value in network.state_dict().items()}
    for side in (32, 100):  # several tiles, and one
        with pytest.raises(ValueError, match="Restorer is in training mode, in which tiles do not meet"):
            apply_in_tiles(network, torch.rand(1, 3, 64, 64), side)
    with pytest.raises(ValueError, match="training mode"):
        farthest_seen(network)
    assert all(value.equal(before[name]) for name, value in network.state_dict().items())


@pytest.mark.parametrize(("height", "width", "side"), [(50, 70, 16), (16, 16, 16), (17, 33, 32)])
def test_tiles_cover_an_image_once(height, width, side):
    seen = torch.zeros(height, width)
    for tile in tiles_of(height, width, side, 16):
        top, bottom, left, right = tile.kept
        seen[top:bottom, left:right] += 1
        assert tile.seen[0] % 16 == tile.seen[2] % 16 == 0
    assert (seen == 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crowd_counter_s", "crowd_counter_s_conv"])
def test_a_count_does_not_depend_on_the_tiles(name):
    torch.manual_seed(0)
    counter = create_model(name).double()
    with torch.no_grad():
        for _ in range(2):  # statistics to normalise with, and shortcuts that are not all there is
            counter(torch.randn(4, 3, 96, 96, dtype=torch.float64))
        for part in counter.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight.normal_(1, 0.2)
    counter.eval()
    image = torch.randn(1, 3, 210, 333, dtype=torch.float64)
    with torch.no_grad():
        whole = counter(image)
    for side in (32, 80, 90, 333, 1000):
        torch.testing.assert_close(apply_in_tiles(counter, image, side), whole, rtol=1e-9, atol=1e-12)


# One of each way to look around; make test-all has them all.
QUICK = ("restorer", "dncnn", "lp_kpn")


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in (*RESTORERS, *VARIATIONAL)]
)
def test_a_photo_of_any_size_does_not_depend_on_the_tiles(name):
    torch.manual_seed(0)
    network = create_model(name).double()
    with torch.no_grad():
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.weight.normal_(1, 0.2)
            elif isinstance(part, nn.Conv2d):
                part.weight.mul_(1.5)
        network(torch.randn(2, 3, 64, 64, dtype=torch.float64))
    network.eval()
    # Narrow, so that tiles differ along one side, and of an odd length.
    image = torch.rand(1, 3, 13, 2 * farthest_seen(network) + 61, dtype=torch.float64)
    with torch.no_grad():
        whole = network(image)
    assert float((whole - image).abs().mean()) > 1e-3
    for side in (50, 96):
        torch.testing.assert_close(apply_in_tiles(network, image, side), whole, rtol=1e-9, atol=1e-9)


def test_a_network_that_looks_at_everything_needs_one_tile():
    network = Plain(nn.Conv2d(3, 4, 3, 4, 1), CondConv2d(4, 2, 3, padding=1), stride=4, cell=4).eval()
    image = torch.randn(1, 3, 40, 50)
    with torch.no_grad():
        torch.testing.assert_close(apply_in_tiles(network, image, 50), network(image))
    with pytest.raises(ValueError, match="cannot be applied in tiles"):
        apply_in_tiles(network, image, 32)
