"""The folder of a run: locked by one training at a time, started or resumed, never mixed with another run's files."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from acda.photos.checkpoint_files import read_checkpoint
from acda.support.files import remove_unfinished, written_whole
from acda.support.locks import locked
from acda.training.checkpoint_form import check_parts
from acda.training.checkpoints import CannotResume, best_of, last_of
from acda.training.recipe import Recipe, read_recipe

# Where launchers say which of several processes this is: torchrun, Lightning, SLURM, LSF.
RANKS = ("RANK", "LOCAL_RANK", "NODE_RANK", "GROUP_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
FILES = ("recipe.json", "scores.json", "curves.png", "weights.safetensors")


def is_first_process() -> bool:
    """Whether this is the process that writes, where several share a run."""
    return all(os.environ.get(name, "0") == "0" for name in RANKS)


@contextmanager
def held(folder: Path, resume: bool) -> Iterator[None]:
    """Hold the folder for the length of a training. The first process holds it for the others of its run."""
    if resume and not (folder / "recipe.json").exists():
        raise ValueError(f"{folder} has no run to resume (recipe.json is missing). Leave --resume out to start one.")
    if not is_first_process():
        yield
        return
    with locked(folder, "a training"):
        remove_unfinished(*(folder / name for name in FILES), last_of(folder), best_of(folder))
        yield


def begin(folder: Path, recipe: Recipe) -> None:
    """Write the recipe into a folder that has no run yet."""
    if any(path.exists() for path in (last_of(folder), folder / "scores.json", folder / "weights.safetensors")):
        raise ValueError(f"{folder} has a run already. Pass --resume to continue it, or another --out.")
    if is_first_process():
        with written_whole(folder / "recipe.json") as file:
            file.write_text(recipe.to_json())


def resumed(folder: Path, recipe: Recipe) -> Recipe:
    """The recipe of the run in a folder, which needs to be this one. Initial weights need not be given again."""
    description = folder / "recipe.json"
    started = read_recipe(description)
    before, now = (json.loads(each.to_json()) for each in (started, recipe))
    given = {key: value for key, value in now.items() if (key, value) != ("initial_sha256", None)}
    changed = [f"{key} {before.get(key)}, now {value}" for key, value in given.items() if before.get(key) != value]
    if changed:
        raise ValueError(
            f"{description} is from another recipe ({'; '.join(changed)}): a run is resumed with the settings that it "
            "was started with."
        )
    return started


def checkpoint_to_resume(folder: Path) -> Path | None:
    """The last checkpoint of a run, which has been read once; None where it has none yet."""
    last = last_of(folder)
    if not last.exists():
        return None
    try:
        check_parts(read_checkpoint(last))  # now, and not after minutes of reading images
    except ValueError as error:
        raise CannotResume(folder, error) from error
    return last
