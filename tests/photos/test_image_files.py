"""Reading pictures: nothing but our own line is printed."""

import logging
import struct

import numpy as np
from PIL import Image

from acda.photos.batch import each_photo
from acda.photos.files import read_photo


def test_what_pillow_logs_is_not_printed(tmp_path, monkeypatch, capsys):
    """Without the handlers of pytest: Python prints log messages only where no handler is set up."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    path = tmp_path / "a.tif"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    entry = struct.pack("<HHI", 277, 3, 1)
    content = path.read_bytes()
    assert content.count(entry) == 1
    path.write_bytes(content.replace(entry + struct.pack("<H", 3), entry + struct.pack("<H", 1028)))
    assert each_photo("count", [path], read_photo) == 1
    assert capsys.readouterr().err.splitlines() == [
        f"acda count: {path} cannot be read as an image: it has no format that Pillow knows."
    ]
