"""All 16 bits of a photo are read and written: compared with tifffile, an independent reader and writer."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageOps

from acda.cli import main
from acda.photos import sixteen_bits
from acda.photos.files import Photo, has_sixteen_bits, read_photo, resized_photo, write_photo

RANDOM = np.random.default_rng(0)
PROFILE = b"\0" * 16 + b"RGB " + b"\0" * 108


def values(channels=3):
    return RANDOM.integers(0, 65536, (21, 34, channels), dtype=np.uint16)


def exif():
    about = Image.Exif()
    about[0x0110] = "a camera"
    about.get_ifd(0x8769)[0x829A] = 0.02
    return about.tobytes()


def read(path):
    """(H, W, C) from 0 to 65535."""
    photo = read_photo(path, deep=True)
    assert has_sixteen_bits(photo)
    planes = photo.pixels if photo.alpha is None else torch.cat([photo.pixels, photo.alpha], 1)
    return (planes[0].double() * 65535).round().permute(1, 2, 0).numpy()


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize(("suffix", "kind"), [(".png", "PNG"), (".tif", "TIFF")])
def test_what_is_written_is_read_again(tmp_path, suffix, kind, channels):
    expected, path = values(channels), tmp_path / f"a{suffix}"
    sixteen_bits.write(path, expected, kind, {"exif": exif(), "icc_profile": PROFILE})
    assert np.array_equal(read(path)[:, :, : channels if channels > 1 else 1], expected)
    with Image.open(path) as image:
        assert image.mode == {1: "I;16", 3: "RGB", 4: "RGBA"}[channels]
        assert image.getexif()[0x0110] == "a camera"
        assert dict(image.getexif().get_ifd(0x8769)) == {0x829A: 0.02}
        assert image.info["icc_profile"] == PROFILE
    if kind == "TIFF":
        assert np.array_equal(tifffile.imread(path).reshape(expected.shape), expected)


@pytest.mark.parametrize(
    "options",
    [{}, {"byteorder": ">"}, {"compression": "zlib"}, {"compression": "zlib", "predictor": True}, {"tile": (16, 16)}],
    ids=str,
)
def test_tiffs_of_others(tmp_path, options):
    expected = values()
    tifffile.imwrite(tmp_path / "a.tif", expected, photometric="rgb", **options)
    assert np.array_equal(read(tmp_path / "a.tif"), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_it_is_turned_as_pillow_turns(tmp_path, orientation):
    about = Image.Exif()
    about[0x0112] = orientation
    sixteen_bits.write(tmp_path / "a.png", values(), "PNG", {"exif": about.tobytes()})
    with Image.open(tmp_path / "a.png") as image:
        expected = np.array(ImageOps.exif_transpose(image))
    assert np.array_equal(read(tmp_path / "a.png").astype(int) >> 8, expected)


def test_enlarging_keeps_the_depth(tmp_path):
    write_photo(Photo(torch.rand(1, 3, 20, 30), torch.rand(1, 1, 20, 30), {}), tmp_path / "a.png")
    larger = resized_photo(read_photo(tmp_path / "a.png", deep=True), 40, 60)
    assert larger.alpha is not None
    for part in (larger.pixels, larger.alpha):
        assert 0 <= float(part.min()) < float(part.max()) <= 1
        assert len(part.unique()) > 256


@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_a_photo_that_is_left_as_it_is_keeps_every_value(weights, tmp_path, suffix, capsys):
    """Strength 0: nothing but the restoration changes values."""
    expected = values(4)
    expected[..., 3] |= 1  # nothing hidden
    path = tmp_path / f"a{suffix}"
    sixteen_bits.write(path, expected, sixteen_bits.KINDS[suffix == ".tif"], {"icc_profile": PROFILE})
    assert main(["restore", str(path), "--weights", weights, "--strength", "0"]) == 0
    assert not capsys.readouterr().err
    assert np.array_equal(read(tmp_path / f"a_restored{suffix}"), expected)


def test_other_formats_get_eight_bits(tmp_path):
    photo = Photo(torch.rand(1, 3, 20, 30), torch.rand(1, 1, 20, 30), {})
    for suffix in (".jpg", ".webp", ".bmp"):
        write_photo(photo, tmp_path / f"a{suffix}")
        assert not has_sixteen_bits(read_photo(tmp_path / f"a{suffix}", deep=True))
    with pytest.raises(ValueError, match="16 bits are written as PNG or TIFF; got JPEG"):
        sixteen_bits.write(tmp_path / "a.jpg", values(), "JPEG", {})


@pytest.fixture
def weights(tmp_path):
    from acda import create_model
    from acda.photos.weights import write_weights

    tensors = {f"model.{name}": t for name, t in create_model("dncnn", depth=3, width=4).state_dict().items()}
    tensors["statistics"] = torch.tensor([[0.0] * 3, [255.0] * 3])
    (tmp_path / "w").mkdir()
    path = tmp_path / "w" / "w.safetensors"
    write_weights(path, tensors, {"model": "dncnn", "options": '{"depth": 3, "width": 4}'})
    return str(path)
