"""Broken pictures are read, or refused with one line that names them; a valid photo beside them is written."""

import io
import signal
import tempfile
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from acda.cli import main
from acda.photos.files import read_photo
from acda.photos.restore import PhotoRestorer
from tests.campaigns.frame import Campaign

SECONDS = 300  # after which a case hangs; a busy machine needs some
KINDS = {
    "jpg": {},
    "png": {},
    "webp": {},
    "bmp": {},
    "gif": {"save_all": True, "append_images": [Image.new("L", (30, 20), 90)]},
    "tif": {"compression": "tiff_lzw"},
    "jpeg.tif": {"compression": "jpeg"},
    "deflate.tif": {"compression": "tiff_adobe_deflate"},
    "fax.tif": {"compression": "group4"},
    "plain.tif": {},
}
MODES = ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA"]


class Tiny(nn.Module):
    """The smallest network that restores photos."""

    stride = cell = 1

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)

    def forward(self, x):
        return self.conv(x)


@cache
def whole(kind: str, mode: str) -> bytes:
    """A valid file."""
    pixels = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    exif, buffer = Image.Exif(), io.BytesIO()
    exif[0x0112], exif[0x010F] = 6, "a maker"
    image = Image.fromarray(pixels).convert("1" if kind == "fax.tif" else mode)
    options = {**KINDS[kind], **({} if kind in ("bmp", "gif", "fax.tif") else {"exif": exif})}
    try:
        image.save(buffer, Image.registered_extensions()[f".{kind.split('.')[-1]}"], **options)
    except (OSError, ValueError):  # a mode that the format does not have
        return whole(kind, "RGB")
    return buffer.getvalue()


def broken(random: Random) -> tuple[str, bytes]:
    """The kind of a file, and the damaged file: bits or bytes changed, parts removed, or the beginning of another."""
    kind, other = random.choice(list(KINDS)), random.choice(list(KINDS))
    content = bytearray(whole(kind, random.choice(MODES)))
    how = random.choice(["bits", "bits", "bytes", "cut", "spliced", "hole"])
    # Half of the changes go to the beginning, where a file says what it is.
    at = lambda: random.randrange(min(len(content), random.choice([64, len(content)])))  # noqa: E731
    if how == "bits":
        for _ in range(random.choice([1, 1, 3, 30])):
            content[at()] ^= 1 << random.randrange(8)
    elif how == "bytes":
        for _ in range(random.choice([1, 4, 40])):
            content[at()] = random.choice([0, 255, 127, random.randrange(256)])
    elif how == "cut":
        del content[random.randrange(len(content)) :]
    elif how == "spliced":
        length = random.randrange(1, 200)
        content[:length] = whole(other, random.choice(MODES))[: random.randrange(1, 200)]
    else:
        first = at()
        content[first : first + random.randrange(1, 100)] = b""
    return kind, bytes(content)


@contextmanager
def no_hang():
    def hangs(*_):
        raise AssertionError(f"no end after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def try_case(random: Random) -> str:
    """Some broken files: each through read_photo, and sometimes all of them with a valid one through denoise."""
    with tempfile.TemporaryDirectory() as name, no_hang(), patch.object(Image, "MAX_IMAGE_PIXELS", 100_000):
        folder, refused = Path(name), set()
        for number in range(random.randrange(1, 4)):
            kind, content = broken(random)
            path = folder / f"broken{number}.{kind}"
            path.write_bytes(content)
            if not is_read(path):
                refused.add(path.name)
        if random.random() < 0.7:
            return f"read_photo, {'refused' if refused else 'read'}"
        return denoise(folder, refused)


def is_read(path: Path) -> bool:
    try:
        photo = read_photo(path)
    except ValueError as error:
        if path.name not in str(error):
            raise AssertionError(f"the error does not name the file: {error}") from error
        return False
    assert photo.pixels.dtype == torch.uint8
    assert photo.pixels.ndim == 4
    return True


def denoise(folder: Path, refused: set[str]) -> str:
    (folder / "sound.png").write_bytes(whole("png", "RGB"))
    network = PhotoRestorer(Tiny(), torch.tensor([[0.0] * 3, [255.0] * 3]), {})
    out, err = io.StringIO(), io.StringIO()
    with patch("acda.cli.denoise.load_restorer", lambda *_: network), redirect_stdout(out), redirect_stderr(err):
        status = main(["denoise", str(folder), "--out", str(folder / "out")])
    lines = err.getvalue().splitlines()
    assert all(line.startswith("acda denoise: ") for line in lines), f"a line that is not ours: {lines}"
    assert (folder / "out" / "sound.png").exists(), "the sound photo was not written"
    for name in refused:
        assert sum(name in line for line in lines) == 1, f"{name} is not named once: {lines}"
    assert status == (1 if refused else 0), f"exit status {status}: {lines}"
    assert not list((folder / "out").glob(".*")), "something unfinished is left"
    return f"denoise, {'some refused' if refused else 'all written'}"


@pytest.mark.campaign
def test_broken_pictures_are_named_and_the_others_written(run_campaign):
    run_campaign(Campaign("photos", try_case))


if __name__ == "__main__":
    Campaign("photos", try_case).main()
