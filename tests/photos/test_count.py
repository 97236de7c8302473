"""A counter takes a photo in any form and returns a number and a map."""

import numpy as np
import pytest
import torch
from PIL import Image

from acda import create_model
from acda.photos.count import PeopleCounter, at_most


@pytest.fixture(scope="module")
def counter():
    torch.manual_seed(0)
    model = create_model("crowd_counter_s")
    model.density.bias.data.fill_(0.1)  # a thousandth of a person in every cell
    return PeopleCounter(model, torch.tensor([[120.0] * 3, [60.0] * 3]), {"model": "crowd_counter_s"})


def test_all_kinds_give_the_same_count(counter):
    array = np.random.default_rng(0).integers(0, 256, (50, 70, 3), dtype=np.uint8)
    of_array, of_image = counter(array), counter(Image.fromarray(array))
    assert of_array.density.shape == (13, 18)
    assert float(of_array) == of_array.count == pytest.approx(float(of_array.density.sum()), rel=1e-5)
    assert of_array.count > 0
    assert of_image.count == of_array.count
    tensor = torch.from_numpy(array.transpose(2, 0, 1).copy())[None]
    both = counter(torch.cat([tensor, tensor.flip(3)]))
    assert both.count.shape == (2,)
    assert both.density.shape == (2, 13, 18)
    assert float(both.count[0]) == pytest.approx(of_array.count, rel=1e-6)
    assert torch.equal(both.density[0], torch.from_numpy(of_array.density))


def test_there_are_never_fewer_than_none(counter):
    counter.model.density.bias.data.fill_(-0.1)
    counted = counter(torch.zeros(1, 3, 16, 16))
    counter.model.density.bias.data.fill_(0.1)
    assert float(counted.density.sum()) < 0
    assert float(counted) == 0


def test_a_tile_without_pixels_is_refused(counter):
    with pytest.raises(ValueError, match="tile needs to be positive; got 0"):
        counter(torch.zeros(1, 3, 16, 16), tile=0)


def test_a_large_photo_is_looked_at_as_the_weights_say(counter):
    photo = torch.randint(256, (1, 3, 60, 120), dtype=torch.uint8)
    limited = PeopleCounter(counter.model, counter.statistics, {"side": "64"})
    assert counter.side is None
    assert counter(photo).density.shape == (1, 15, 30)
    assert limited(photo).density.shape == counter(photo, side=64).density.shape == (1, 8, 16)
    assert torch.equal(limited(photo, side=200).density, counter(photo).density)
    with pytest.raises(ValueError, match="side needs to be positive; got 0"):
        counter(photo, side=0)


def test_a_photo_that_is_made_smaller_keeps_its_colours():
    photo = torch.full((1, 3, 50, 200), 51, dtype=torch.uint8)
    smaller = at_most(photo, 100)
    torch.testing.assert_close(smaller, torch.full((1, 3, 25, 100), 0.2))
    assert at_most(photo, 200) is photo
