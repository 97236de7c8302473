"""`acda train` on the command line: usage, messages, where the data are looked for, lines on a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
from dataclasses import replace

import pytest

from acda.cli import main
from tests.training.conftest import pictures, recipe  # noqa: F401
from tests.training.runs import command


def test_without_a_recipe_usage_goes_to_stderr(capsys):
    assert main(["train"]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith("usage: acda train RECIPE")
    assert main(["train", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: acda train RECIPE")


def test_evaluation_shows_what_is_required(capsys):
    assert main(["evaluate"]) == 2
    assert "acda evaluate RUN --data DIR" in capsys.readouterr().err


def test_metavars_are_words_for_people(capsys):
    with pytest.raises(SystemExit):
        main(["train", "shanghaitech_a_crowd_counter_s", "--help"])
    shown = capsys.readouterr().out
    for option in ("--data DIR", "--out DIR", "--initial FILE", "--epochs N", "--norm-momentum X", "--threads N"):
        assert option in shown
    for word in ("{None}", "PATH", "INT", "FLOAT", "STR"):
        assert word not in shown


def test_missing_data_are_told_with_the_place_and_a_way_to_get_them(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "cifar10_lenet"]) == 1
    assert capsys.readouterr().err == (
        f"acda train: there is no folder {tmp_path / 'data'}. Give the folder of the dataset with --data DIR, "
        "or pass --download to fetch CIFAR10 into it.\n"
    )
    assert main(["train", "shanghaitech_a_crowd_counter_s"]) == 1
    assert "--download" not in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "data").mkdir()
    assert main(["train", "cifar10_lenet"]) == 1
    assert "--download fetches CIFAR10 into it." in capsys.readouterr().err


@pytest.mark.slow
def test_on_a_terminal_epochs_count_from_one_and_scores_stay(recipe, pictures, tmp_path):  # noqa: F811
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 200, 0, 0))  # a bar needs room
    arguments = command(replace(recipe, epochs=2), pictures, tmp_path / "run")
    with subprocess.Popen(arguments, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 65536):
                shown += part
        except OSError:  # how a terminal says that the other end is closed
            pass
    os.close(ours)
    assert process.returncode == 0
    text = shown.decode()
    assert "Epoch 1 of 2" in text
    assert "Epoch 2 of 2" in text
    assert "Epoch 0" not in text
    assert "cifar10_lenet epoch 1/2: train loss" in text
    assert "cifar10_lenet epoch 2/2: train loss" in text
