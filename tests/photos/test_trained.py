"""A trained network is a module like others, with its statistics, facts and card."""

import pytest
import torch
from torch import nn

from acda.photos.trained import Trained

STATISTICS = torch.tensor([[100.0, 110.0, 120.0], [50.0, 60.0, 70.0]])


@pytest.fixture
def trained():
    return Trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), STATISTICS, {"model": "small"}, "# a card")


def test_it_is_ready_for_use(trained):
    assert not any(module.training for module in trained.modules())
    assert (trained.facts, trained.card) == ({"model": "small"}, "# a card")


def test_its_state_is_that_of_the_file(trained):
    names = {f"model.{name}" for name in trained.model.state_dict()}
    assert set(trained.state_dict()) == {*names, "statistics"}


def test_it_moves_as_a_whole(trained):
    moved = trained.to("meta")
    assert {t.device.type for t in moved.state_dict().values()} == {"meta"}
    assert moved.normalised(torch.zeros(1, 3, 2, 2)).device.type == "meta"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_photos_take_the_precision_of_the_network(trained, dtype):
    assert trained.to(dtype).normalised(torch.zeros(1, 3, 2, 2, dtype=torch.uint8)).dtype == dtype


def test_uint8_and_the_range_from_0_to_1_mean_the_same(trained):
    pixels = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(1, 3, 16, 16)
    right = (pixels.double() - STATISTICS[0, :, None, None]) / STATISTICS[1, :, None, None]
    torch.testing.assert_close(trained.normalised(pixels), right.float())
    torch.testing.assert_close(trained.normalised(pixels / 255), right.float(), rtol=0, atol=1e-6)
