"""libtiff's messages appear in the line with the file's name, not on standard error."""

import io
import threading

import numpy as np
import pytest
from PIL import Image

from acda.photos.files import read_photo
from acda.photos.libtiff import messages_kept


def damaged(compression, at):
    """A TIFF with eight wrong bytes in its pixels."""
    pixels, buffer = np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8), io.BytesIO()
    image = Image.fromarray(pixels).convert("1" if compression == "group4" else "L")
    image.save(buffer, "TIFF", compression=compression)
    content = bytearray(buffer.getvalue())
    content[at : at + 8] = b"\xa5" * 8
    return bytes(content)


def test_an_error_is_told_in_its_own_words(tmp_path, capfd):
    (tmp_path / "a.tif").write_bytes(damaged("tiff_adobe_deflate", 1000))
    with pytest.raises(
        ValueError, match=r"a.tif cannot be read as an image \(ZIPDecode: Decoding error at scanline \d"
    ):
        read_photo(tmp_path / "a.tif")
    assert capfd.readouterr() == ("", "")


def test_the_name_that_pillow_gives_every_file_is_left_out(tmp_path):
    pixels = Image.fromarray(np.random.default_rng(0).integers(0, 255, (40, 50, 3), dtype=np.uint8))
    pixels.save(tmp_path / "a.tif", compression="tiff_lzw")
    content = bytearray((tmp_path / "a.tif").read_bytes())
    content[20] ^= 255
    (tmp_path / "a.tif").write_bytes(content)
    with pytest.raises(ValueError, match=r"a.tif cannot be read as an image \(Using code not yet in table\)"):
        read_photo(tmp_path / "a.tif")


def test_damage_that_can_be_decoded_is_told_too(tmp_path, capfd):
    (tmp_path / "a.tif").write_bytes(damaged("group4", 300))
    assert read_photo(tmp_path / "a.tif").lost.startswith("damage (Fax4Decode: ")
    assert capfd.readouterr() == ("", "")


def test_a_thread_hears_of_its_own_file_alone(capfd):
    def decode():
        with Image.open(io.BytesIO(damaged("group4", 300))) as image:
            image.load()

    with messages_kept() as outer:
        other = threading.Thread(target=decode)
        other.start()
        other.join()
        assert outer == []
        assert "Fax4Decode" in capfd.readouterr().err, "as libtiff does where nobody listens"
        with messages_kept() as inner:
            decode()
        assert inner
        assert outer == []
        decode()
    assert outer == inner
