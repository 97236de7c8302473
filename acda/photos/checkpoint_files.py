"""Checkpoints of a training as files: compared with their checksums, and read without unpickling objects."""

import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor


def read_checkpoint(path: Path) -> dict[str, Any]:
    """What torch.save wrote, on the CPU. Anything else is refused in one line that names the file."""
    _check_intact(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a pickle of something else can raise anything
        reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
        raise ValueError(f"{path} cannot be read as a checkpoint ({reason}).") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} cannot be read as a checkpoint: it holds {type(content).__name__}, not a dictionary.")
    return content


def read_checkpoint_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and facts of the network in a checkpoint, in the form that a file of weights has."""
    content = read_checkpoint(path)
    tensors, facts = content.get("state_dict"), content.get("facts")
    if not isinstance(tensors, dict) or not all(
        isinstance(name, str) and isinstance(t, Tensor) and _holds_its_numbers(t) for name, t in tensors.items()
    ):
        raise ValueError(f"{path} has no weights: `acda train` did not write it.")
    if not isinstance(facts, dict) or not all(isinstance(x, str) for pair in facts.items() for x in pair):
        raise ValueError(f"{path} does not name its network. Finish its run with --resume, and use its weights.")
    return dict(tensors), facts


def _check_intact(path: Path) -> None:
    """Compare every part with its CRC-32. torch.save writes them, and torch.load does not look at them."""
    try:
        with path.open("rb") as content, zipfile.ZipFile(content) as file:
            parts = file.infolist()
            # torch.save does not compress: a file that does may unpack to any size.
            sound = all(part.compress_type == zipfile.ZIP_STORED for part in parts)
            damaged = file.testzip() if sound and len({part.filename for part in parts}) == len(parts) else ""
    except (FileNotFoundError, IsADirectoryError, PermissionError):
        raise
    except Exception as error:  # zipfile raises its own error for only some of the files that are no zip files
        empty = path.stat().st_size == 0
        raise ValueError(f"{path} {'is empty' if empty else f'is cut off or not a checkpoint ({error})'}.") from error
    if damaged is not None:
        what = f"{damaged} does not match its checksum" if damaged else "torch.save does not write such files"
        raise ValueError(f"{path} is damaged: {what}.")


def _holds_its_numbers(tensor: Tensor) -> bool:
    """Whether a tensor's numbers are all in the file. With stride 0 one number can stand for many."""
    strided = tensor.layout == torch.strided and tensor.device.type == "cpu"
    return strided and tensor.untyped_storage().nbytes() >= tensor.numel() * tensor.element_size()
