"""The folder of a run: held by one training at a time, begun or resumed, never mixed with another run's files."""

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
        raise ValueError(f"{folder} has a run already. Pass --resume to go on with it, or another --out.")
    if is_first_process():
        with written_whole(folder / "recipe.json") as file:
            file.write_text(recipe.to_json())


def checkpoint_to_resume(folder: Path, recipe: Recipe) -> Path | None:
    """The last checkpoint of the run with these settings, which has been read once; None where it had none yet."""
    description = folder / "recipe.json"
    # The data may be somewhere else by now.
    before, now = (json.loads(r.portable().to_json()) for r in (read_recipe(description), recipe))
    changed = [f"{key} {before.get(key)}, now {now.get(key)}" for key in now if before.get(key) != now.get(key)]
    if changed:
        raise ValueError(
            f"{description} is of another recipe ({'; '.join(changed)}): a run is resumed with the settings that it "
            "was started with."
        )
    last = last_of(folder)
    if not last.exists():
        return None
    try:
        check_parts(read_checkpoint(last))  # before minutes of reading images
    except ValueError as error:
        raise CannotResume(folder, error) from error
    return last
