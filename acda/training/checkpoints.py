"""Checkpoints of a run: the last and the best, written whole, and checked before a run goes on from them."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acda.photos.checkpoint_files import read_checkpoint
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.tasks.task import Task

need("pytorch_lightning", "train")
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO  # noqa: E402
from pytorch_lightning.callbacks import ModelCheckpoint  # noqa: E402


def last_of(folder: Path) -> Path:
    return folder / "checkpoints" / "last.ckpt"


def best_of(folder: Path) -> Path:
    return folder / "checkpoints" / "best.ckpt"


def checkpoints(folder: Path, task: Task) -> list[ModelCheckpoint]:
    """Save the last epoch, tested or not, and the best of the tested ones."""
    common: dict[str, Any] = {"dirpath": folder / "checkpoints", "save_top_k": 1, "enable_version_counter": False}
    return [
        MovableCheckpoint(filename="best", monitor=task.monitored, mode=task.best, **common),
        MovableCheckpoint(filename="last", save_on_train_epoch_end=True, **common),
    ]


class MovableCheckpoint(ModelCheckpoint):
    """Keeps the best score of a run whose folder was moved. Lightning forgets it, and would overwrite the best."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        _check_scores(state_dict)
        before, here = state_dict["dirpath"], str(self.dirpath)

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {moved(path): score for path, score in value.items()}
            return value.replace(before, here, 1) if isinstance(value, str) else value

        super().load_state_dict({key: moved(value) for key, value in state_dict.items()})


def _check_scores(state: dict[str, Any]) -> None:
    """Refuse scores that would fail, or count as the best of all, when they are compared after hours of training."""
    paths = [state[key] for key in ("dirpath", "best_model_path", "kth_best_model_path")] + list(state["best_k_models"])
    scores = [state[key] for key in ("best_model_score", "current_score")] + list(state["best_k_models"].values())
    if not all(isinstance(path, str) for path in paths):
        raise ValueError("its paths of checkpoints are not text")
    if not all(score is None or (isinstance(score, Tensor) and score.numel() == 1) for score in scores):
        raise ValueError("its best scores are not numbers")


class WholeFiles(TorchCheckpointIO):
    """A checkpoint replaces the earlier one when it is complete, and is read without unpickling objects."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        try:
            with written_whole(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # torch raises a RuntimeError on a full disk
            reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(". ")
            raise OSError(
                f"{path} could not be written ({reason}). Is the disk full? What was saved before is intact: "
                "make room, and go on with --resume."
            ) from error

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        # On the CPU first: this machine may not have the devices of the run that wrote it.
        return read_checkpoint(Path(path))


class CannotResume(ValueError):
    """A checkpoint from which the run cannot go on, and what can be done."""

    def __init__(self, folder: Path, error: Exception) -> None:
        reason = (str(error).splitlines() or [""])[0].rstrip(". ")
        reason = reason if isinstance(error, ValueError) else f"{type(error).__name__}: {reason}"
        last, best = last_of(folder), best_of(folder)
        said = reason if str(last) in reason else f"{last} cannot be resumed ({reason[:300]})"
        copy = f"copy {best} over it and pass --resume again, or " if best.exists() else ""
        super().__init__(f"{said}. To go on, {copy}start afresh with another --out.")
