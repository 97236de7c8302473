"""fit(recipe): the Lightning Trainer, set up; a run is a folder that says all about itself and can be resumed.

runs/NAME/ has recipe.json, log.txt, TensorBoard events, checkpoints/last.ckpt and best.ckpt, scores.json with those
of every epoch that was tested, curves.png, and when it is done weights.safetensors.
"""

import json
import logging
import math
import signal
import sys
import threading
import time
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from acda.drawing import GREEN, INDIGO, new_figure, save
from acda.environment import describe
from acda.extras import need
from acda.files import written_whole
from acda.recipe import Classification, Counting, Recipe, Restoration, recipe_from_json
from acda.tasks.classification import ClassificationTask
from acda.tasks.counting import CountingTask
from acda.tasks.restoration import RestorationTask
from acda.tasks.task import Task
from acda.weights import fill, find_weights, read_weights, write_weights

need("pytorch_lightning", "train")
from lightning_fabric.plugins.io.torch_io import TorchCheckpointIO  # noqa: E402  after need
from pytorch_lightning import Callback, Trainer, seed_everything  # noqa: E402
from pytorch_lightning.callbacks import ModelCheckpoint, TQDMProgressBar  # noqa: E402
from pytorch_lightning.loggers import TensorBoardLogger  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where and on what a recipe is run: none of it decides the result."""

    out: Path | None = None
    """folder of the run; runs/RECIPE unless given"""
    resume: bool = False
    """go on where the run in that folder stopped"""
    accelerator: Literal["auto", "cpu", "gpu", "mps"] = "auto"
    """what to compute on"""
    devices: int = 1
    """processes on this machine, one for each GPU, or for a share of the CPU"""
    nodes: int = 1
    """machines, each started with the same command by torchrun or SLURM"""
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    """number format"""
    sync_batchnorm: bool = False
    """normalise over the batches of all processes together; GPUs only"""
    threads: int | None = None
    """that each process may use on a CPU"""
    download: bool = False
    """fetch the dataset into the data folder where it is missing; CIFAR only"""
    workers: int = 0
    """processes that read images for each of them, where the images stay in their files"""

    def __post_init__(self) -> None:
        for name, least in (("devices", 1), ("nodes", 1), ("workers", 0), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} needs to be at least {least}; got {value}.")
        gpus = torch.cuda.device_count()
        if self.accelerator == "gpu" and self.devices > gpus:
            raise ValueError(f"--devices {self.devices} with --accelerator gpu needs so many GPUs; torch sees {gpus}.")
        if self.sync_batchnorm and (self.accelerator in ("cpu", "mps") or not gpus):
            raise ValueError("--sync-batchnorm needs GPUs: torch's SyncBatchNorm does not run on CPUs.")


def fit(recipe: Recipe, name: str, run: Run) -> dict[str, Any]:
    """Train as the recipe says, and return the last epoch's scores, which are in scores.json too."""
    folder = run.out or Path("runs", name)
    checkpoint = _prepare(folder, recipe, run)
    if run.threads:
        torch.set_num_threads(run.threads)
    _quieten()
    seed_everything(recipe.seed, verbose=False)
    task = task_of(recipe, run)
    history = History(folder, name)
    callbacks: list[Callback] = [history, StopAfterSaving(folder), *_checkpoints(folder, task)]
    if sys.stderr.isatty():
        callbacks.append(TQDMProgressBar())
    trainer = Trainer(
        accelerator=run.accelerator,
        devices=run.devices,
        num_nodes=run.nodes,
        strategy="ddp" if run.devices * run.nodes > 1 else "auto",
        precision=run.precision,
        sync_batchnorm=run.sync_batchnorm,
        max_epochs=recipe.epochs,
        check_val_every_n_epoch=math.gcd(recipe.epochs, recipe.test_every),
        logger=TensorBoardLogger(folder, name="", version=""),
        callbacks=callbacks,
        plugins=[WholeFiles()],
        enable_progress_bar=sys.stderr.isatty(),
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=20,
        use_distributed_sampler=False,
        deterministic="warn",
    )
    try:
        trainer.fit(task, ckpt_path=checkpoint, weights_only=True)
    except Stopped:
        raise KeyboardInterrupt from None
    if trainer.is_global_zero:
        facts = {"model": recipe.model, "options": json.dumps(recipe.options), "recipe": recipe.portable().to_json()}
        facts.update(task.facts)
        write_weights(folder / "weights.safetensors", task.state_dict(), facts)
        draw_curves(history.epochs, task.monitored, folder / "curves.png")
    return history.epochs[-1]


def task_of(recipe: Recipe, run: Run) -> Task:
    """The Lightning module of a recipe, with its data, which were checked already where a run is resumed."""
    if isinstance(recipe, Counting):
        return CountingTask.of(recipe, run.workers)
    if isinstance(recipe, Restoration):
        return RestorationTask.of(recipe, run.workers)
    if isinstance(recipe, Classification):
        return ClassificationTask.of(recipe, run.workers, run.download, check=not run.resume)
    raise TypeError(f"there is no task for a recipe of type {type(recipe).__name__}.")


def task_for_evaluation(recipe: Recipe, facts: dict[str, str]) -> Task:
    """The same for its test data. facts: those that were saved with the weights."""
    if isinstance(recipe, Counting):
        return CountingTask.for_evaluation(recipe, facts)
    if isinstance(recipe, Restoration):
        return RestorationTask.for_evaluation(recipe, facts)
    assert isinstance(recipe, Classification)
    return ClassificationTask.for_evaluation(recipe, facts)


def _quieten() -> None:
    """Lightning's advice and advertisements are not about this run."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module=name)


def _prepare(folder: Path, recipe: Recipe, run: Run) -> Path | None:
    """Make the run's folder, or check that it holds the run to go on with; returns the checkpoint."""
    description, last = folder / "recipe.json", folder / "checkpoints" / "last.ckpt"
    if run.resume:
        if not description.exists():
            raise ValueError(
                f"{folder} has no run to resume (recipe.json is missing). Leave --resume out to start one."
            )
        # The data may be somewhere else by now.
        before, now = (json.loads(r.portable().to_json()) for r in (recipe_from_json(description.read_text()), recipe))
        changed = [f"{key} {before.get(key)}, now {now.get(key)}" for key in now if before.get(key) != now.get(key)]
        if changed:
            raise ValueError(
                f"{description} is of another recipe ({'; '.join(changed)}): a run is resumed with the settings that "
                "it was started with."
            )
        return last if last.exists() else None
    # Another process of the same run may have made the folder a moment ago.
    if any(path.exists() for path in (last, folder / "scores.json", folder / "weights.safetensors")):
        raise ValueError(f"{folder} has a run already. Pass --resume to go on with it, or another --out.")
    folder.mkdir(parents=True, exist_ok=True)
    with written_whole(description) as file:
        file.write_text(recipe.to_json())
    return None


def _checkpoints(folder: Path, task: Task) -> list[ModelCheckpoint]:
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


def evaluate(name: str | Path, data: Path) -> dict[str, float]:
    """Score the network of a run, of its weights.safetensors, or a packaged one, on the test images of a folder."""
    weights = find_weights(name)
    tensors, facts = read_weights(weights)
    beside = weights.with_name("recipe.json")  # of a run that was made before weights told their recipe
    if "recipe" not in facts and not beside.exists():
        raise ValueError(f"{weights} does not tell its recipe: it was not written by `acda train`.")
    recipe = replace(recipe_from_json(facts.get("recipe") or beside.read_text()), data=data)
    _quieten()
    task = task_for_evaluation(recipe, facts)
    fill(task, tensors, weights, recipe.model)
    trainer = Trainer(accelerator="cpu", devices=1, logger=False, enable_progress_bar=False, enable_checkpointing=False)
    (scores,) = trainer.validate(task, verbose=False)
    return {name: round(value, 6) for name, value in scores.items()}


def draw_curves(epochs: list[dict[str, Any]], monitored: str, path: Path) -> None:
    """The monitored metric and the losses over the epochs."""
    figure = new_figure(9, 3.2)
    left, right = figure.subplots(1, 2)
    numbers = [e["epoch"] for e in epochs]
    left.plot(numbers, [e[monitored] for e in epochs], color=INDIGO, marker=".")
    left.set(xlabel="epoch", ylabel=f"{monitored}, test", title=f"{monitored}: {epochs[-1][monitored]:.4g} at the end")
    for key, colour in (("train loss", GREEN), ("loss", INDIGO)):
        if key in epochs[-1]:
            right.plot(
                numbers,
                [e.get(key) for e in epochs],
                color=colour,
                marker=".",
                label="test loss" if key == "loss" else key,
            )
    right.set(xlabel="epoch", ylabel="loss")
    for axes in (left, right):
        axes.xaxis.get_major_locator().set_params(integer=True)
    if right.lines:
        right.legend()
    save(figure, path)
