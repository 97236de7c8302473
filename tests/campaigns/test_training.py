"""Files of a training with bytes or values changed: used, or refused with a ValueError; never weights that are not
finite. And runs that are killed at random moments, which end with the weights of one that was not."""

import contextlib
import io
import json
import os
import shutil
import subprocess
import tempfile
import time
import warnings
import zipfile
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from acda.photos.weights import load, write_weights
from acda.training.data.crowds import _ann_points, _image_info, _mat
from acda.training.recipe import Classification, read_recipe
from acda.training.run import Run, fit
from acda.training.tasks.task import Task
from tests.campaigns.frame import Campaign
from tests.photos.test_weights import FACTS, tensors
from tests.training.runs import assert_same, command, weights

ODD = (None, True, -1, 10**12, 10**400, 0.5, float("nan"), float("inf"), "", "x" * 300, [], {}, [[]], {"a": {}})


def changed_bytes(content: bytes, random: Random) -> bytes:
    """Some bytes changed, a part lost, doubled or zeroed."""
    changed = bytearray(content)
    at = random.randrange(len(changed))
    size = random.choice((1, 8, 512))
    kind = random.randrange(5)
    if kind == 0:
        del changed[at:]
    elif kind == 1:
        del changed[at : at + size]
    elif kind == 2:
        changed[at:at] = changed[at : at + size]
    else:
        for _ in range(random.choice((1, 1, 1, 4))):
            place = random.randrange(min(len(changed), random.choice((600, len(changed)))))
            changed[place] = changed[place] ^ (1 << random.randrange(8)) if kind == 3 else random.randrange(256)
    return bytes(changed)


def changed_value(content: Any, random: Random) -> Any:
    """One value somewhere in a tree of dictionaries and lists replaced or removed."""
    if isinstance(content, dict) and content and random.random() < 0.95:
        key = random.choice(list(content))
        if random.random() < 0.1:
            return {k: v for k, v in content.items() if k != key}
        return {**content, key: changed_value(content[key], random)}
    if isinstance(content, list) and content and random.random() < 0.95:
        at = random.randrange(len(content))
        return [changed_value(value, random) if i == at else value for i, value in enumerate(content)]
    if isinstance(content, torch.Tensor) and random.random() < 0.8:
        return random.choice((content * torch.nan, content[None], content.double(), content.flatten()[:1], "tensor"))
    return random.choice(ODD)


@cache
def workspace() -> Path:
    return Path(tempfile.mkdtemp(prefix="campaign-training-"))


@cache
def annotations() -> list[bytes]:
    inner = np.zeros((1, 1), dtype=[("location", object), ("number", object)])
    inner[0, 0] = (np.arange(10.0).reshape(5, 2), np.array([[5]]))
    info = np.empty((1, 1), dtype=object)
    info[0, 0] = inner
    files, points = [io.BytesIO(), io.BytesIO()], np.arange(8.0).reshape(4, 2)
    for file, compressed in zip(files, (False, True), strict=True):
        scipy.io.savemat(file, {"image_info": info, "annPoints": points}, do_compression=compressed)
    return [file.getvalue() for file in files]


def refused(use: Any, *arguments: Any) -> bool:
    """Whether `use` raised a ValueError of one line; any other exception is a defect."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            use(*arguments)
    except ValueError as error:
        if "\n" in str(error):
            raise AssertionError(f"more than a line: {error!r}") from error
        return True
    return False


def try_annotation(random: Random) -> str:
    path = workspace() / "a.mat"
    path.write_bytes(changed_bytes(random.choice(annotations()), random))
    answers = [refused(_mat, path, points) for points in (_image_info, _ann_points)]
    return "annotation refused" if any(answers) else "annotation read"


def try_recipe(random: Random) -> str:
    path = workspace() / "recipe.json"
    text = Classification(model="lenet", epochs=3).to_json()
    if random.random() < 0.5:
        path.write_bytes(changed_bytes(text.encode(), random))
    else:
        path.write_text(json.dumps(changed_value(json.loads(text), random)))
    return "recipe refused" if refused(read_recipe, path) else "recipe read"


@cache
def files_of_weights() -> tuple[bytes, bytes]:
    write_weights(workspace() / "w.safetensors", tensors(), FACTS)
    torch.save({"state_dict": tensors(), "facts": FACTS}, workspace() / "w.ckpt")
    return (workspace() / "w.safetensors").read_bytes(), (workspace() / "w.ckpt").read_bytes()


def load_finite(path: Path) -> None:
    trained = load(path)
    values = [*trained.model.state_dict().values(), trained.statistics]
    assert all(bool(t.isfinite().all()) for t in values), "weights that are not finite were accepted"


def try_weights(random: Random) -> str:
    kind = random.randrange(2)
    path = workspace() / ("w.safetensors", "w.ckpt")[kind]
    path.write_bytes(changed_bytes(files_of_weights()[kind], random))
    return f"{path.suffix} {'refused' if refused(load_finite, path) else 'read'}"


@cache
def pictures() -> Path:
    generator = np.random.default_rng(0)
    for split in ("train", "test"):
        for name, level in (("dark", 60), ("light", 180)):
            (workspace() / "pictures" / split / name).mkdir(parents=True)
            for i in range(10):
                pixels = generator.normal(level, 5, (32, 32, 3)).clip(0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(workspace() / "pictures" / split / name / f"{i}.png")
    return workspace() / "pictures"


def small(epochs: int) -> Classification:
    return Classification(model="lenet", epochs=epochs, batch_size=5, learning_rate=0.01)


class Stop(Exception):
    pass


@cache
def begun() -> Path:
    """A run of two epochs as it was after the first."""
    folder, original = workspace() / "begun", Task.training_step

    def stops(self: Task, batch: Any, index: int) -> Any:
        if self.current_epoch == 1:
            raise Stop
        return original(self, batch, index)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(Stop):
        patch.setattr(Task, "training_step", stops)
        fit(small(2), "run", Run(data=pictures(), out=folder, device="cpu"))
    return folder


@cache
def completed() -> Path:
    """The same run, resumed from its intact checkpoint."""
    shutil.copytree(begun(), workspace() / "completed")
    fit(small(2), "run", Run(data=pictures(), out=workspace() / "completed", device="cpu", resume=True))
    return workspace() / "completed"


def try_checkpoint(random: Random) -> str:
    """Resume from a changed checkpoint: refused, or finite weights; with changed bytes, those of the intact one."""
    folder = workspace() / "resumed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(begun(), folder)
    last = folder / "checkpoints" / "last.ckpt"
    by_bytes = random.random() < 0.5
    if by_bytes:
        last.write_bytes(changed_bytes(last.read_bytes(), random))
    else:
        torch.save(changed_value(torch.load(last, weights_only=True), random), last)
    kept = last.read_bytes()
    kind = "bytes" if by_bytes else "values"

    def resume() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Lightning's advice
            fit(small(2), "run", Run(data=pictures(), out=folder, device="cpu", resume=True))

    if refused(resume):
        assert last.read_bytes() == kept, "the checkpoint was written over"
        return f"checkpoint with changed {kind} refused"
    load_finite(folder)
    if by_bytes:  # they were of no importance
        assert_same(weights(folder), weights(completed()))
    return f"checkpoint with changed {kind} read"


@cache
def uninterrupted() -> tuple[Path, float]:
    """A run of 25 epochs and the seconds that it took."""
    folder, start = workspace() / "whole", time.monotonic()
    subprocess.run(command(small(25), pictures(), folder), check=True, capture_output=True)
    return folder, time.monotonic() - start


def try_kill(random: Random) -> str:
    whole, seconds = uninterrupted()
    folder = workspace() / "killed"
    shutil.rmtree(folder, ignore_errors=True)
    kills = 0
    for _ in range(random.randint(1, 3)):
        resume = ["--resume"] if (folder / "recipe.json").exists() else []
        process = subprocess.Popen(
            command(small(25), pictures(), folder, *resume), stderr=subprocess.PIPE, stdout=subprocess.DEVNULL
        )
        try:
            _, said = process.communicate(timeout=seconds * random.uniform(0.3, 1))
            assert process.returncode == 0, said.decode()[-500:]
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
    resume = ["--resume"] if (folder / "recipe.json").exists() else []
    ended = subprocess.run(command(small(25), pictures(), folder, *resume), capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-500:]
    assert_same(weights(folder), weights(whole))
    assert not list(folder.rglob(".*-????????.*")), "unfinished files were left"
    return f"{kills} kills"


def try_case(random: Random) -> str:
    """Kinds of cases by how long they take: thousands of files, hundreds of checkpoints."""
    tries = {try_annotation: 300, try_recipe: 300, try_weights: 150, try_checkpoint: 20}
    (chosen,) = random.choices(list(tries), list(tries.values()))
    return chosen(random)


@pytest.mark.campaign
def test_broken_files_lose_nothing(run_campaign):
    run_campaign(Campaign("training", try_case))


@pytest.mark.campaign
def test_kills_lose_nothing(run_campaign):
    run_campaign(Campaign("kills", try_kill))


def test_changed_bytes_of_a_zip_are_noticed_by_its_checksums():
    """What the campaign relies on: torch.save writes a CRC-32 for every part."""
    file = io.BytesIO()
    torch.save({"a": torch.zeros(100)}, file)
    assert all(part.CRC for part in zipfile.ZipFile(file).infolist() if part.file_size)


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    Campaign("training", try_case).main()
