"""What happens beside the steps of a run: checkpoints, scores of every epoch, an end that loses nothing."""

import json
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch

from acda.support.environment import describe
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.tasks.task import Task

need("pytorch_lightning", "train")
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO  # noqa: E402
from pytorch_lightning import Callback, Trainer  # noqa: E402
from pytorch_lightning.callbacks import ModelCheckpoint  # noqa: E402


def checkpoints(folder: Path, task: Task) -> list[ModelCheckpoint]:
    """After every epoch the last one, tested or not, and the best of those that were tested."""
    common: dict[str, Any] = {"dirpath": folder / "checkpoints", "save_top_k": 1, "enable_version_counter": False}
    return [
        MovableCheckpoint(filename="best", monitor=task.monitored, mode=task.best, **common),
        MovableCheckpoint(filename="last", save_on_train_epoch_end=True, **common),
    ]


class MovableCheckpoint(ModelCheckpoint):
    """Lightning forgets the best score of a run whose folder was moved, and would write a worse one over it."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        before, here = str(state_dict["dirpath"]), str(self.dirpath)

        def moved(value: Any) -> Any:
            if isinstance(value, dict):
                return {moved(path): score for path, score in value.items()}
            return value.replace(before, here, 1) if isinstance(value, str) else value

        super().load_state_dict({key: moved(value) for key, value in state_dict.items()})


class WholeFiles(TorchCheckpointIO):
    """A checkpoint takes the place of the last one when it is complete, and is read without unpickling objects."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        with written_whole(Path(path)) as file:
            torch.save(checkpoint, file)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        # On the CPU first: the devices of the run that wrote it need not be here, nor be these.
        loaded: dict[str, Any] = torch.load(path, map_location=map_location or "cpu", weights_only=True)
        return loaded


class Stopped(Exception):
    """The run was asked to stop, and has saved."""


class StopAfterSaving(Callback):
    """Ctrl-C ends a run after the step that it is in, with a checkpoint of it; a second one ends it at once."""

    def __init__(self, folder: Path) -> None:
        self.last, self.asked = folder / "checkpoints" / "last.ckpt", False

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self.before = signal.signal(signal.SIGINT, self._ask)

    def teardown(self, trainer: Trainer, module: Any, stage: str) -> None:
        if threading.current_thread() is threading.main_thread() and hasattr(self, "before"):
            signal.signal(signal.SIGINT, self.before)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self.before)
        print("stopping after this step; Ctrl-C again stops at once", file=sys.stderr)

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        # After the last step of an epoch come its test and its checkpoint: it stops after them.
        if not trainer.is_last_batch and self._any_asked(trainer):
            trainer.save_checkpoint(self.last)
            raise Stopped

    def on_train_epoch_start(self, trainer: Trainer, module: Any) -> None:
        if self._any_asked(trainer):
            raise Stopped

    def _any_asked(self, trainer: Trainer) -> bool:
        return bool(trainer.strategy.reduce_boolean_decision(self.asked, all=False))


class History(Callback):
    """The scores of every epoch: in scores.json and log.txt, and where there is no bar, as a plain line.

    Before them, how many images there are. Seconds and commits are those of all sittings of a run.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.epochs: list[dict[str, Any]] = []
        self.commits: list[str] = []
        self.before = 0.0
        self.begun = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "commits": self.commits, "seconds": self._seconds()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epochs = list(state["epochs"])
        self.commits, self.before = list(state.get("commits", [])), state.get("seconds", 0.0)

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        self.begun = time.monotonic()
        self.facts = describe()  # now: the code that runs is this one, whatever is committed meanwhile
        self.commits = list(dict.fromkeys([*self.commits, self.facts["commit"]]))
        if trainer.is_global_zero:
            train, test = module.counts
            size = sum(parameter.numel() for parameter in module.model.parameters()) / 1e6
            begun = f"goes on at step {trainer.global_step}" if trainer.global_step else "begins"
            self._say(
                f"{self.name} {begun}: {train:,} images for training, {test:,} for testing, {size:.2f} M parameters, "
                f"{trainer.estimated_stepping_batches:,.0f} steps"
            )

    def _seconds(self) -> float:
        """Since the last test, or the beginning; pauses do not count."""
        return self.before + time.monotonic() - self.begun

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        # Before the checkpoint of the epoch, which holds it too.
        scores = {k: round(float(v), 6) for k, v in trainer.callback_metrics.items() if k != "loss now"}
        seconds = round(self._seconds(), 1)
        self.before, self.begun = 0.0, time.monotonic()
        self.epochs.append({"epoch": trainer.current_epoch + 1, **scores, "seconds": seconds})
        if not trainer.is_global_zero:
            return
        with written_whole(self.folder / "scores.json") as file:
            facts = {**self.facts, "commit": ", ".join(self.commits), "processes": trainer.world_size}
            file.write_text(json.dumps({"epochs": self.epochs, "circumstances": facts}, indent=1) + "\n")
        shown = ", ".join(f"{k} {v:.4g}" for k, v in scores.items() if k != "images")
        self._say(f"{self.name} epoch {trainer.current_epoch + 1}/{trainer.max_epochs}: {shown}, {seconds:.0f} s")

    def _say(self, line: str) -> None:
        with (self.folder / "log.txt").open("a") as log:
            log.write(line + "\n")
        if not sys.stderr.isatty():
            print(line, flush=True)
