"""Checkpoints: checksums are compared, nothing is unpickled, and errors are one line."""

import pickle
import zipfile

import pytest
import torch

from acda.cli import main
from acda.photos.checkpoint_files import read_checkpoint
from acda.photos.weights import find_weights, load
from tests.photos.test_weights import FACTS, tensors


@pytest.fixture
def checkpoint(tmp_path):
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    path.parent.mkdir(parents=True)
    torch.save({"state_dict": tensors(), "facts": FACTS}, path)
    return path


def test_one_flipped_bit_in_a_tensor_is_noticed(checkpoint):
    content = bytearray(checkpoint.read_bytes())
    with zipfile.ZipFile(checkpoint) as file:
        largest = max(file.infolist(), key=lambda part: part.file_size)
    content[largest.header_offset + largest.file_size // 2] ^= 0x40
    checkpoint.write_bytes(content)
    torch.load(checkpoint, weights_only=True)  # torch does not look
    with pytest.raises(ValueError, match=r"best\.ckpt is damaged: .* does not match its checksum"):
        read_checkpoint(checkpoint)


class Stranger:
    def __reduce__(self):
        return exec, ("raise SystemExit('unpickled')",)


def compressed(path):
    with zipfile.ZipFile(path) as old:
        parts = {part: old.read(part) for part in old.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name, data in parts.items():
            new.writestr(name, data)


def pointing_before_itself(path):
    """The directory is larger than the file, in the 64-bit record of its size: zipfile seeks to a negative position."""
    content = bytearray(path.read_bytes())
    content[-58:-54] = b"\xff\xff\xff\x7f"
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (pointing_before_itself, "is cut off or not a checkpoint"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "is cut off or not a checkpoint"),
        (lambda path: path.write_text("weights"), "is cut off or not a checkpoint"),
        (lambda path: path.write_bytes(pickle.dumps({"state_dict": {}})), "is cut off or not a checkpoint"),
        (compressed, "torch.save does not write such files"),
        (lambda path: torch.save(Stranger(), path), "cannot be read as a checkpoint"),
        (lambda path: torch.save([1, 2], path), "it holds list"),
        (lambda path: torch.save({}, path), "has no weights"),
        (lambda path: torch.save({"state_dict": {"a": 1}}, path), "has no weights"),
        (lambda path: torch.save({"state_dict": {"a": torch.zeros(1).expand(10**12)}}, path), "has no weights"),
        (lambda path: torch.save({"state_dict": tensors()}, path), "does not name its network"),
        (lambda path: torch.save({"state_dict": tensors(), "facts": [1]}, path), "does not name its network"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(checkpoint, damage, message):
    damage(checkpoint)
    with pytest.raises(ValueError, match=rf"best\.ckpt .*{message}") as caught:
        load(checkpoint)
    assert "\n" not in str(caught.value)


def test_a_run_that_is_not_complete_is_read_from_its_best_checkpoint(checkpoint, tmp_path, capsys):
    assert find_weights(tmp_path / "run") == checkpoint
    for name in (tmp_path / "run", checkpoint):
        trained = load(name)
        assert trained.facts["model"] == "lenet"
        assert torch.equal(trained.statistics, torch.tensor([[0.0] * 3, [255.0] * 3]))
    nan = tensors()
    nan["model.fc.bias"].fill_(torch.nan)
    torch.save({"state_dict": nan, "facts": FACTS}, checkpoint)
    with pytest.raises(ValueError, match=r"best\.ckpt has non-finite values in model\.fc\.bias"):
        load(tmp_path / "run")
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(tmp_path)]) == 1
    assert "non-finite values in model.fc.bias" in capsys.readouterr().err
