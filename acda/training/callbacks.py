"""Callbacks of a run: write the scores of every epoch, save when it is stopped, stop it when it diverges."""

import json
import math
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acda.support.environment import describe
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.checkpoint_form import check_form
from acda.training.checkpoints import best_of, last_of

need("pytorch_lightning", "train")
need("tqdm", "cli")
from pytorch_lightning import Callback, Trainer  # noqa: E402
from pytorch_lightning.callbacks import TQDMProgressBar  # noqa: E402
from tqdm import tqdm  # noqa: E402


class Stopped(Exception):
    """The run was asked to stop, and has saved."""


class StopAfterSaving(Callback):
    """Ctrl-C or SIGTERM ends a run after the step that it is in, with a checkpoint of it; a second one ends it at once.

    SIGTERM is how `kill`, containers and schedulers ask a process to end.
    """

    def __init__(self, folder: Path) -> None:
        self.last, self.asked = last_of(folder), False

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        if threading.current_thread() is threading.main_thread():
            self.before = {number: signal.signal(number, self._ask) for number in (signal.SIGINT, signal.SIGTERM)}

    def teardown(self, trainer: Trainer, module: Any, stage: str) -> None:
        if threading.current_thread() is threading.main_thread() and hasattr(self, "before"):
            for number, handler in self.before.items():
                signal.signal(number, handler)

    def _ask(self, number: int, frame: Any) -> None:
        self.asked = True
        signal.signal(signal.SIGINT, self.before[signal.SIGINT])
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # Lightning's own handler would wait for the step
        again = "Ctrl-C again" if number == signal.SIGINT else "another SIGTERM"
        print(f"stopping after this step; {again} stops at once", file=sys.stderr)

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


class Diverged(ValueError):
    """The loss, the weights or the scores are not finite any more."""


class StopWhenDiverged(Callback):
    """End a run whose numbers are not finite before it tests, saves or reports them; all processes at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        finite = bool(torch.isfinite(outputs["loss"]).all())
        self._need(finite, trainer, f"the loss is {float(outputs['loss']):g}")

    def on_validation_start(self, trainer: Trainer, module: Any) -> None:
        name = next((name for name, t in module.state_dict().items() if not _all_finite(t)), None)
        self._need(name is None, trainer, f"the weights {name} are not finite")

    def on_save_checkpoint(self, trainer: Trainer, module: Any, checkpoint: dict[str, Any]) -> None:
        self.on_validation_start(trainer, module)  # a checkpoint would replace an earlier one with finite numbers

    def on_validation_end(self, trainer: Trainer, module: Any) -> None:
        scores = {name: float(value) for name, value in trainer.callback_metrics.items()}
        wrong = [f"{name} is {value:g}" for name, value in scores.items() if not _sound(name, value)]
        self._need(not wrong, trainer, f"the score {' and '.join(wrong)}")

    def _need(self, finite: bool, trainer: Trainer, what: str) -> None:
        if trainer.strategy.reduce_boolean_decision(finite, all=True):
            return
        rate = trainer.optimizers[0].param_groups[0]["lr"]
        best = best_of(self.folder)
        kept = f"The best weights from before are in {best}." if best.exists() else "No checkpoint was saved before."
        raise Diverged(
            f"training diverged: {what} at step {trainer.global_step}, epoch {trainer.current_epoch + 1} of "
            f"{trainer.max_epochs}, learning rate {rate:.3g}. {kept} Try a lower --learning-rate or more "
            "--warmup-steps, with another --out."
        )


def _sound(name: str, value: float) -> bool:
    """Two equal images have an infinite PSNR; every other score is finite."""
    return math.isfinite(value) or (name == "PSNR" and value == math.inf)


def _all_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


class EpochBar(TQDMProgressBar):
    """Lightning's bar, which counts epochs from 1 and says how many there are."""

    def on_train_epoch_start(self, trainer: Trainer, *rest: Any) -> None:
        # Not after Lightning's own, which shows its number first.
        self.train_progress_bar.reset(self.total_train_batches)
        self.train_progress_bar.initial = 0
        self.train_progress_bar.set_description(f"Epoch {trainer.current_epoch + 1} of {trainer.max_epochs}")


class History(Callback):
    """The scores of every epoch: in scores.json and log.txt, and as a line, above the bar where there is one.

    The first line says how many images there are. Seconds and commits include those before a run was resumed.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.epochs: list[dict[str, Any]] = []
        self.commits: list[str] = []
        self.before = 0.0
        self.begun = time.monotonic()
        self.steps = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epochs": self.epochs, "commits": self.commits, "seconds": self._seconds()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_form(state, {"epochs": list(state["epochs"]), "seconds": 0.0}, "the history")
        for epoch in state["epochs"]:
            check_form(epoch, {}, "the scores")
            check_form(epoch, {**dict.fromkeys(epoch, 0.0), "epoch": 0}, "the scores")
        self.epochs = list(state["epochs"])
        self.commits, self.before = [str(commit) for commit in state.get("commits", [])], state.get("seconds", 0.0)

    def on_train_batch_end(self, trainer: Trainer, module: Any, outputs: Any, batch: Any, index: int) -> None:
        self.steps += 1

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        self.begun = time.monotonic()
        self.facts = describe()  # now, because commits may be made while it runs
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
        tqdm.write(line)  # above the bar, where there is one
        sys.stdout.flush()
