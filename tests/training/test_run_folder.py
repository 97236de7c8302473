"""One training at a time in a folder; files of a killed one are removed."""

import signal
import subprocess
import time
from dataclasses import replace

import pytest

from acda.training.run import fit
from acda.training.run_folder import RANKS, held, is_first_process
from tests.training.runs import command


@pytest.mark.slow
def test_a_second_training_in_the_folder_is_refused_until_the_first_is_killed(recipe, tmp_path, run_in, pictures):
    recipe, run = replace(recipe, epochs=500), tmp_path / "run"
    first = subprocess.Popen(command(recipe, pictures, run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 120
        while not (run / "log.txt").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        described = (run / "recipe.json").read_text()
        for resume in (False, True):
            with pytest.raises(ValueError, match=f"run is in use by a training: process {first.pid} on .*, since"):
                fit(replace(recipe, seed=1), "other", run_in(run, resume=resume))
        assert (run / "recipe.json").read_text() == described
    finally:
        first.send_signal(signal.SIGKILL)
        first.wait(60)
    with held(run, resume=True):
        pass


def test_the_other_processes_of_a_run_do_not_ask_for_it(tmp_path, monkeypatch):
    for name in RANKS:
        monkeypatch.delenv(name, raising=False)
    assert is_first_process()
    with held(tmp_path, resume=False):
        for name in RANKS:
            monkeypatch.setenv(name, "1")
            assert not is_first_process()
            with held(tmp_path, resume=False):
                pass
            monkeypatch.setenv(name, "0")
        with pytest.raises(ValueError, match="is in use"), held(tmp_path, resume=False):
            pass


def test_what_a_killed_run_left_is_removed_at_the_next_start(recipe, tmp_path):
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    left = [run / ".curves-abc12_xy.png", run / ".weights-abcdefgh.safetensors", run / ".scores-abcdefgh.json"]
    left += [run / "checkpoints" / ".last-abcdefgh.ckpt", run / "checkpoints" / ".best-abcdefgh.ckpt"]
    kept = [run / ".notes-abcdefgh.png", run / ".curves-mine.png"]
    for file in (*left, *kept):
        file.write_bytes(b"half")
    with held(run, resume=False):
        assert not any(file.exists() for file in left)
        assert all(file.exists() for file in kept)
