"""fit(recipe): train with the Lightning Trainer; a run is a folder that describes itself and can be resumed.

runs/NAME/ has recipe.json, log.txt, TensorBoard events, checkpoints/last.ckpt and best.ckpt, scores.json with the
scores of every tested epoch, curves.png, and weights.safetensors when the run is complete.
"""

import hashlib
import json
import logging
import math
import sys
import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch

from acda.photos.weights import Weights, fill, filled, open_weights, write_weights
from acda.support.arguments import Count, Folder, MaybeCount, MaybeFile, MaybeFolder
from acda.support.devices import Device, device_named
from acda.support.extras import need
from acda.training.callbacks import EpochBar, History, StopAfterSaving, Stopped, StopWhenDiverged
from acda.training.checkpoints import CannotResume, WholeFiles, checkpoints
from acda.training.curves import draw_curves
from acda.training.data.loading import OtherData
from acda.training.recipe import Classification, Counting, Recipe, Restoration, read_recipe, recipe_from_json
from acda.training.run_folder import begin, checkpoint_to_resume, held, resumed
from acda.training.tasks.classification import ClassificationTask
from acda.training.tasks.counting import CountingTask
from acda.training.tasks.restoration import RestorationTask
from acda.training.tasks.task import Task

need("pytorch_lightning", "train")
from pytorch_lightning import Callback, Trainer, seed_everything  # noqa: E402
from pytorch_lightning.loggers import TensorBoardLogger  # noqa: E402
from pytorch_lightning.utilities.exceptions import SIGTERMException  # noqa: E402


@dataclass(frozen=True, kw_only=True)
class Run:
    """Where a recipe is run: its data, the initial weights, the output folder, the processes.

    The batch of a step grows with the number of processes. Only that, the data, the initial weights and sync_batchnorm
    change the result by more than rounding errors.
    """

    data: Folder = Path("data")
    """folder of the dataset"""
    initial: MaybeFile = None
    """weights to start from: of a classifier of the same kind to count people, of the same network to restore photos"""
    out: MaybeFolder = None
    """folder of the run; runs/RECIPE unless given"""
    resume: bool = False
    """continue the run in that folder from where it stopped"""
    device: Device = "auto"
    """what to compute on; auto is the first of cuda, mps and cpu that is available"""
    devices: Count = 1
    """processes on this machine, one for each GPU, or for a share of the CPU"""
    nodes: Count = 1
    """machines, each started with the same command by torchrun or SLURM"""
    precision: Literal["32-true", "16-mixed", "bf16-mixed", "64-true"] = "32-true"
    """number format"""
    sync_batchnorm: bool = False
    """normalise over the batches of all processes together; GPUs only"""
    threads: MaybeCount = None
    """CPU threads of each process"""
    download: bool = False
    """fetch the dataset into the data folder where it is missing; CIFAR only"""
    workers: Count = 0
    """processes that read images, for each training process; for images that stay in their files"""

    def __post_init__(self) -> None:
        for name, least in (("devices", 1), ("nodes", 1), ("workers", 0), ("threads", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name} needs to be at least {least}; got {value}.")
        kind, gpus = device_named(self.device).type, torch.cuda.device_count()
        if kind == "cuda" and self.devices > gpus:
            raise ValueError(f"--devices {self.devices} with --device cuda needs as many GPUs; torch sees {gpus}.")
        if self.sync_batchnorm and kind != "cuda":
            raise ValueError("--sync-batchnorm needs GPUs: torch's SyncBatchNorm does not run on CPUs.")


def fit(recipe: Recipe, name: str, run: Run) -> dict[str, Any]:
    """Train as the recipe says, and return the last epoch's scores, which are in scores.json too."""
    folder = run.out or Path("runs", name)
    _find_data(recipe, run)
    recipe = _with_digest(recipe, run.initial)
    with held(folder, run.resume):
        checkpoint = None
        if run.resume:
            recipe, checkpoint = resumed(folder, recipe), checkpoint_to_resume(folder)
        if checkpoint is None:
            _find_initial(recipe, run)
        if not run.resume:
            begin(folder, recipe)
        return _fit(recipe, name, run, folder, checkpoint)


def _fit(recipe: Recipe, name: str, run: Run, folder: Path, checkpoint: Path | None) -> dict[str, Any]:
    if run.threads:
        torch.set_num_threads(run.threads)
    _quieten()
    seed_everything(recipe.seed, verbose=False)
    task = task_of(recipe, run)
    history = History(folder, name)
    callbacks: list[Callback] = [StopWhenDiverged(folder), history, StopAfterSaving(folder)]
    callbacks += checkpoints(folder, task)
    if sys.stderr.isatty():
        callbacks.append(EpochBar())
    trainer = Trainer(
        accelerator=_accelerator(run.device),
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
    except (Stopped, SIGTERMException):  # Lightning's where the signal came before the first step
        raise KeyboardInterrupt from None
    except (OtherData, OSError):
        raise
    except Exception as error:
        # What fails before the first step is due to the checkpoint.
        if checkpoint is None or history.steps:
            raise
        raise CannotResume(folder, error) from error
    if not history.epochs:
        raise CannotResume(folder, ValueError("it has more epochs than the recipe, and no scores"))
    if trainer.is_global_zero:
        write_weights(folder / "weights.safetensors", task.state_dict(), task.described())
        draw_curves(history.epochs, task.monitored, folder / "curves.png")
    return history.epochs[-1]


def _accelerator(device: str) -> str:
    """What Lightning calls a device."""
    kind = device_named(device).type
    return "gpu" if kind == "cuda" else kind


def _find_data(recipe: Recipe, run: Run) -> None:
    if run.download or run.data.is_dir():
        return
    dataset = getattr(recipe, "dataset", None)
    fetched = f", or pass --download to fetch {dataset} into it" if dataset else ""
    where = run.data.absolute()
    raise ValueError(f"there is no folder {where}. Give the folder of the dataset with --data DIR{fetched}.")


def _with_digest(recipe: Recipe, initial: Path | None) -> Recipe:
    """The recipe with the SHA-256 of the weights that the run starts from: their content decides, not their path."""
    if initial is None:
        return recipe
    if not isinstance(recipe, Counting | Restoration):
        raise ValueError(
            f"--initial is for recipes that count people or restore photos; this one is {type(recipe).__name__}."
        )
    with initial.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if recipe.initial_sha256 not in (None, found):
        raise ValueError(f"the recipe needs weights with the SHA-256 {recipe.initial_sha256}; {initial} has {found}.")
    return replace(recipe, initial_sha256=found)


def _find_initial(recipe: Recipe, run: Run) -> None:
    if isinstance(recipe, Counting | Restoration) and recipe.initial_sha256 and run.initial is None:
        raise ValueError(
            f"the recipe starts from weights with the SHA-256 {recipe.initial_sha256}. Give their file with --initial."
        )


def task_of(recipe: Recipe, run: Run) -> Task:
    """The Lightning module of a recipe, with its data; where a run is resumed, they were checked before."""
    if isinstance(recipe, Counting):
        return CountingTask.of(recipe, run.data, run.initial, run.workers)
    if isinstance(recipe, Restoration):
        return RestorationTask.of(recipe, run.data, run.initial, run.workers)
    if isinstance(recipe, Classification):
        return ClassificationTask.of(recipe, run.data, run.workers, run.download, check=not run.resume)
    raise TypeError(f"there is no task for a recipe of type {type(recipe).__name__}.")


def task_for_evaluation(recipe: Recipe, data: Path, facts: dict[str, str]) -> Task:
    """The same with the test data alone. facts: those that were saved with the weights."""
    if isinstance(recipe, Counting):
        return CountingTask.for_evaluation(recipe, data)
    if isinstance(recipe, Restoration):
        return RestorationTask.for_evaluation(recipe, data)
    assert isinstance(recipe, Classification)
    return ClassificationTask.for_evaluation(recipe, data, facts)


def _quieten() -> None:
    """Silence Lightning's advice and advertisements."""
    for name in ("pytorch_lightning", "lightning_fabric"):
        logging.getLogger(name).setLevel(logging.WARNING)
        warnings.filterwarnings("ignore", module=name)


def evaluate(name: str | Path, data: Path, device: str = "cpu") -> dict[str, float]:
    """Score the network of a run, of a weights file, or a trained one by name, on the test images of a folder."""
    accelerator = _accelerator(device)
    weights = open_weights(name)
    recipe = _recipe_of(weights)
    _quieten()
    if "model" in weights.facts:  # made without memory first: weights and recipe may name any size
        facts = {**weights.facts, "model": recipe.model, "options": json.dumps(recipe.options)}
        state = {key.removeprefix("model."): t for key, t in weights.tensors.items() if key != "statistics"}
        filled(facts, state, weights.path)
    task = task_for_evaluation(recipe, data, weights.facts)
    fill(task, weights.tensors, weights.path, recipe.model)
    trainer = Trainer(
        accelerator=accelerator, devices=1, logger=False, enable_progress_bar=False, enable_checkpointing=False
    )
    (scores,) = trainer.validate(task, verbose=False)
    if wrong := [name for name, value in scores.items() if math.isnan(value)]:
        raise ValueError(f"{weights.path} gives scores that are not numbers ({', '.join(wrong)}) on {data}.")
    return {name: round(value, 6) for name, value in scores.items()}


def _recipe_of(weights: Weights) -> Recipe:
    if "recipe" in weights.facts:
        return recipe_from_json(weights.facts["recipe"], f"the metadata of {weights.path}")
    beside = weights.path.with_name("recipe.json")  # earlier versions wrote it only there
    if not beside.exists():
        raise ValueError(f"{weights.path} has no recipe: it was not written by `acda train`.")
    return read_recipe(beside)
