"""Photo files: which are found, and which parts of a file are copied to the result."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from acda.photos.files import Photo, read_photo, revealed, write_photo


def plain(path, colour=(200, 50, 50), **options):
    Image.new("RGB", (40, 28), colour).save(path, **options)
    return path


@pytest.mark.parametrize(
    "tags", [{262: 6}, {256: 80, 257: 56}, {262: 1}, {284: 2}, {338: 1}, {339: 3}, {277: 1, 258: 16}], ids=str
)
def test_how_one_file_keeps_a_photo_does_not_reach_another(tmp_path, tags):
    """Tags about the storage of pixels, copied from the EXIF of a JPEG, would make a TIFF unreadable."""
    exif = Image.Exif()
    exif.update({**tags, 0x010F: "a maker of cameras"})
    exif.get_ifd(0x8769).update({0xA002: 40, 0xA003: 28, 0x829A: 0.01})
    write_photo(read_photo(plain(tmp_path / "a.jpg", exif=exif, quality=98)), tmp_path / "b.tif")
    with Image.open(tmp_path / "b.tif") as image:
        assert np.abs(np.array(image).astype(int) - (200, 50, 50)).max() < 6
        assert image.getexif()[0x010F] == "a maker of cameras"
        about = image.getexif().get_ifd(0x8769)
        assert float(about[0x829A]) == pytest.approx(0.01)
        assert not {0xA002, 0xA003} & set(about), "sizes, which may be others now"


def test_what_the_result_has_not_is_told(tmp_path):
    Image.new("CMYK", (40, 28)).save(tmp_path / "print.jpg", icc_profile=b"\0" * 16 + b"CMYK" + b"\0" * 108)
    assert read_photo(tmp_path / "print.jpg").lost == (
        "the colours of a printer (CMYK), for which the result has RGB and "
        "a profile of other colours than RGB, which the result has not"
    )
    assert read_photo(plain(tmp_path / "plain.jpg")).lost == ""


def test_a_band_named_a_is_not_always_transparency(tmp_path):
    Image.new("LAB", (40, 28), (128, 128, 128)).save(tmp_path / "lab.tif")
    assert read_photo(tmp_path / "lab.tif").alpha is None


def test_colours_of_a_jpeg_have_its_whole_resolution(tmp_path):
    stripes = torch.zeros(1, 3, 16, 16, dtype=torch.uint8)
    stripes[:, 0, :, ::2], stripes[:, 2, :, 1::2] = 255, 255
    write_photo(Photo(stripes, None, {}), tmp_path / "a.jpg")
    assert (read_photo(tmp_path / "a.jpg").pixels.int() - stripes.int()).abs().max() < 40


def test_what_is_hidden_is_replaced_by_what_is_near(tmp_path):
    pixels = torch.randint(256, (1, 3, 9, 11), dtype=torch.uint8)
    alpha = torch.full((1, 1, 9, 11), 255, dtype=torch.uint8)
    alpha[..., :4] = 0
    alpha[..., 4] = 3
    result = revealed(Photo(pixels, alpha, {}))
    assert torch.equal(result[..., 4:], pixels[..., 4:])
    assert torch.equal(result[..., :4], pixels[..., 4:5].expand(-1, -1, -1, 4))
    for one in (Photo(pixels, None, {}), Photo(pixels, alpha * 0, {}), Photo(pixels, alpha * 0 + 1, {})):
        assert torch.equal(revealed(one), pixels), "where there is nothing near, or nothing hidden"


@pytest.mark.parametrize("mode", ["L", "LA", "1", "I;16"])
@pytest.mark.parametrize("suffix", [".png", ".tif", ".jpg", ".bmp"])
def test_greyscale_in_greyscale_out(mode, suffix, tmp_path):
    shades = np.arange(40 * 28, dtype=np.uint16).reshape(28, 40) % 256
    image = Image.fromarray(shades * 257 if mode == "I;16" else shades.astype(np.uint8))
    if mode in ("1", "LA"):
        image = image.convert(mode)
    image.save(tmp_path / "a.png")
    photo = read_photo(tmp_path / "a.png")
    # What a network does: channels that are no longer equal, and their mean is the photo.
    apart = torch.stack([photo.pixels[0, 0].clamp(3, 252) + step for step in (-3, 0, 3)]).to(torch.uint8)[None]
    write_photo(replace(photo, pixels=apart), tmp_path / f"b{suffix}")
    with Image.open(tmp_path / f"b{suffix}") as result:
        assert result.mode == ("LA" if mode == "LA" and suffix in (".png", ".tif") else "L")
        if suffix != ".jpg":
            assert np.array_equal(np.array(result.getchannel("L")), photo.pixels[0, 0].clamp(3, 252).numpy())
