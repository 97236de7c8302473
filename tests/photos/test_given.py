"""Photos as Python objects: each kind is converted to Photos and back, and what cannot be kept is refused."""

import numpy as np
import pytest
import torch
from PIL import Image

from acda.photos.given import as_given, photos_of

RANDOM = np.random.default_rng(0).integers(0, 256, (5, 7, 4), dtype=np.uint8)


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA"])
def test_an_image_comes_back_as_it_was(mode):
    image = Image.fromarray(RANDOM).convert(mode)
    image.info = {"icc_profile": b"a profile", "exif": b"Exif"}
    back = as_given(image, photos_of(image))
    assert (back.mode, back.size, back.info) == (mode, (7, 5), image.info)
    assert np.array_equal(np.array(back), np.array(image))


@pytest.mark.parametrize("array", [RANDOM[:, :, :3], RANDOM[:, :, 0], RANDOM[::-1, ::-2, 2::-1]])
def test_an_array_comes_back_as_it_was(array):
    back = as_given(array, photos_of(array))
    assert back.dtype == np.uint8
    assert np.array_equal(back, array)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_tensor_comes_back_as_it_was(dtype):
    numbers = torch.rand(2, 3, 5, 7)
    given = (numbers * 255).to(dtype) if dtype == torch.uint8 else numbers.to(dtype)
    back = as_given(given, photos_of(given))
    assert torch.equal(back, given)
    assert back.dtype == dtype


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("photo.jpg", "got str. A file is opened with PIL.Image.open"),
        (Image.new("P", (4, 4)), "got the mode P. Convert it first"),
        (Image.new("CMYK", (4, 4)), "got the mode CMYK. Convert it first"),
        (Image.new("I;16", (4, 4)), "got the mode I;16. Convert it first"),
        (Image.new("RGB", (0, 4)), "at least one pixel; got 0×4"),
        (np.zeros((4, 4, 3)), r"\(H, W, 3\) or \(H, W\) of uint8; got \(4, 4, 3\) of float64"),
        (np.zeros((4, 4, 4), np.uint8), r"of uint8; got \(4, 4, 4\) of uint8"),
        (np.zeros((1, 4, 4, 3), np.uint8), r"of uint8; got \(1, 4, 4, 3\) of uint8"),
        (np.zeros((0, 4), np.uint8), "at least one pixel; got 4×0"),
        (torch.zeros(3, 4, 4), r"\(B, 3, H, W\) with at least one photo; got \(3, 4, 4\)"),
        (torch.zeros(1, 1, 4, 4), r"got \(1, 1, 4, 4\)"),
        (torch.zeros(0, 3, 4, 4), "at least one photo"),
        (torch.zeros(1, 3, 4, 0), "at least one pixel; got 0×4"),
        (torch.zeros(1, 3, 4, 4, dtype=torch.int64), "of uint8, or floating point from 0 to 1; got torch.int64"),
        (torch.full((1, 3, 4, 4), 255.0), "from 0 to 1; got 255 to 255. Divide values from 0 to 255 by 255"),
        (torch.full((1, 3, 4, 4), -0.1), "from 0 to 1; got -0.1"),
        (torch.full((1, 3, 4, 4), torch.nan), "from 0 to 1; got nan"),
        (torch.full((1, 3, 4, 4), torch.inf), "from 0 to 1; got inf"),
    ],
)
def test_what_cannot_be_a_photo_is_refused(given, message):
    with pytest.raises((ValueError, TypeError), match=message):
        photos_of(given)


def test_one_transparent_colour_cannot_be_kept():
    image = Image.new("RGB", (4, 4))
    image.info["transparency"] = (0, 0, 0)
    with pytest.raises(ValueError, match="the mode RGB with one transparent colour"):
        photos_of(image)
