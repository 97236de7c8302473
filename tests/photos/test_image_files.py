"""Reading pictures: nothing but our own line is printed."""

import os
import struct
import subprocess
import sys

import numpy as np
from PIL import Image


def test_what_pillow_logs_is_not_printed(tmp_path):
    """In a process of its own: pytest sets up logging, and Python prints only where nobody does."""
    path = tmp_path / "a.tif"
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(path)
    entry = struct.pack("<HHI", 277, 3, 1)
    content = path.read_bytes()
    assert content.count(entry) == 1
    path.write_bytes(content.replace(entry + struct.pack("<H", 3), entry + struct.pack("<H", 1028)))
    command = (
        "import sys, pathlib; from acda.photos.batch import each_photo; from acda.photos.files import read_photo; "
    )
    command += "each_photo('count', [pathlib.Path(sys.argv[1])], read_photo)"
    result = subprocess.run(
        [sys.executable, "-c", command, path], capture_output=True, text=True, check=True, env=os.environ
    )
    assert result.stderr.splitlines() == [
        f"acda count: {path} cannot be read as an image: it has no format that Pillow knows."
    ]
