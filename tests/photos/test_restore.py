"""A restorer takes a photo in any form and returns the same form: any size, exact tiles."""

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from acda.photos.restore import PhotoRestorer

UNIT = torch.tensor([[0.0] * 3, [255.0] * 3])


class Sharpens(nn.Module):
    """A small network that sees two pixels far and treats each channel differently."""

    stride = cell = 1

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 3, 5, padding=2, padding_mode="replicate")

    def forward(self, x):
        return x + 0.5 * self.conv(x)


@pytest.fixture
def restorer():
    return PhotoRestorer(Sharpens(), UNIT, {"model": "sharpens"})


def photo(height=23, width=37, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def as_tensor(array):
    return torch.from_numpy(array.transpose(2, 0, 1).copy())[None]


def expected(restorer, pixels):
    with torch.no_grad():
        return restorer.model(pixels / 255).clamp(0, 1)


def test_all_kinds_give_the_same_result(restorer):
    array = photo()
    right = expected(restorer, as_tensor(array))
    floating = restorer(as_tensor(array) / 255)
    torch.testing.assert_close(floating, right, rtol=0, atol=1e-6)  # the division and multiplication by 255
    whole = restorer(as_tensor(array))
    assert torch.equal(whole, (right * 255).round().to(torch.uint8))
    assert np.array_equal(restorer(array), whole[0].permute(1, 2, 0).numpy())
    assert np.array_equal(np.array(restorer(Image.fromarray(array))), restorer(array))


def test_a_batch_is_its_photos(restorer):
    photos = torch.cat([as_tensor(photo(seed=seed)) for seed in range(3)])
    assert torch.equal(restorer(photos), torch.cat([restorer(each[None]) for each in photos]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_floating_point_stays_what_it_is_and_within_its_range(restorer, dtype):
    given = (as_tensor(photo()) / 255).to(dtype).requires_grad_()
    result = restorer(given)
    assert result.dtype == dtype
    assert not result.requires_grad
    assert 0 <= float(result.detach().min()) < float(result.detach().max()) <= 1


@pytest.mark.parametrize("tile", [1, 7, 16])
def test_tiles_do_not_show(restorer, tile):
    given = as_tensor(photo()) / 255
    torch.testing.assert_close(restorer(given, tile=tile), restorer(given), rtol=0, atol=1e-6)


def test_strength(restorer):
    given = as_tensor(photo()) / 255
    assert torch.equal(restorer(given, strength=0.0), given)
    assert float((restorer(given) - given).abs().max()) > 0.1
    assert np.array_equal(restorer(photo(), strength=0.0), photo())


def test_it_enlarges_first(restorer):
    image = Image.fromarray(photo())
    larger = restorer(image, scale=2, strength=0.0)
    assert np.array_equal(np.array(larger), np.array(image.resize((74, 46), Image.Resampling.BICUBIC)))
    assert restorer(as_tensor(photo()) / 255, scale=1.5).shape == (1, 3, 34, 56)
    assert restorer(image, scale=2) != larger


def test_enlarged_floating_point_stays_within_its_range(restorer):
    edge = torch.zeros(1, 3, 8, 8)
    edge[..., 4:] = 1
    larger = restorer(edge, scale=3, strength=0.0)
    assert (float(larger.min()), float(larger.max())) == (0, 1)


def test_the_scale_is_the_weights_own_unless_given():
    restorer = PhotoRestorer(Sharpens(), UNIT, {"scale": "3"})
    assert restorer(photo()).shape == (69, 111, 3)
    assert restorer(photo(), scale=1).shape == (23, 37, 3)


def test_a_network_of_one_scale_is_used_at_that_scale_as_often_as_it_takes():
    class Counts(Sharpens):
        calls = 0

        def forward(self, x):
            Counts.calls += 1
            return super().forward(x)

    restorer = PhotoRestorer(Counts(), UNIT, {"scale": "2"})
    once = PhotoRestorer(Sharpens(), UNIT, {})
    given = as_tensor(photo()) / 255
    twice = once(once(given, scale=2), scale=2)
    torch.testing.assert_close(restorer(given, scale=4), twice, rtol=0, atol=1e-6)
    for scale, calls in ((1, 1), (1.5, 1), (2, 1), (3, 2), (4, 2), (8, 3)):
        restorer(given, scale=1, tile=999)
        Counts.calls = 0
        assert restorer(given, scale=scale, tile=999).shape[2:] == (round(scale * 23), round(scale * 37))
        assert Counts.calls == calls


def test_without_colours_in_none_out(restorer):
    grey = photo()[:, :, 0]
    result = restorer(grey)
    assert result.shape == grey.shape
    for given in (as_tensor(np.stack([grey] * 3, 2)), as_tensor(np.stack([grey] * 3, 2)) / 255):
        channels = restorer(given)[0]
        assert torch.equal(channels[0], channels[1])
        assert torch.equal(channels[0], channels[2])
    assert restorer(Image.fromarray(grey)).mode == "L"


def test_transparency_is_kept(restorer):
    image = Image.fromarray(photo())
    alpha = Image.fromarray(photo(seed=1)[:, :, 0])
    image.putalpha(alpha)
    assert np.array_equal(np.array(restorer(image).getchannel("A")), np.array(alpha))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_near_single(restorer, dtype):
    """Each of the 75 products is rounded to the precision of the dtype, and so is their sum."""
    right = restorer(as_tensor(photo()) / 255)
    half = restorer.to(dtype)(as_tensor(photo()) / 255)
    torch.testing.assert_close(half, right, rtol=0, atol=4 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strength": 1.1}, "strength needs to be from 0 to 1; got 1.1"),
        ({"strength": float("nan")}, "strength needs to be from 0 to 1; got nan"),
        ({"scale": 0.5}, "scale needs to be from 1 to 8; got 0.5"),
        ({"scale": float("inf")}, "scale needs to be from 1 to 8; got inf"),
        ({"tile": 0}, "tile needs to be positive; got 0"),
    ],
)
def test_what_is_wrong_is_said(restorer, options, message):
    with pytest.raises(ValueError, match=message):
        restorer(photo(), **options)


def test_in_training_it_is_refused(restorer):
    with pytest.raises(ValueError, match="is in training mode"):
        restorer.train()(photo())
