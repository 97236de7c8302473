import importlib
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from acda import __version__
from acda.cli import NEEDED, VERBS, main
from acda.photos.count import PeopleCounter
from acda.photos.restore import PhotoRestorer


def test_help_lists_every_verb(capsys):
    assert main(["--help"]) == 0
    text = capsys.readouterr().out
    assert all(verb in text for verb in VERBS)


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"acda {__version__}\n"


def test_an_unknown_verb_suggests_the_nearest(capsys):
    assert main(["dmo"]) == 2
    assert "Did you mean demo?" in capsys.readouterr().err


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb, capsys):
    try:
        status = main([verb, "--help"])
    except SystemExit as end:  # tyro's own
        status = end.code
    assert status == 0
    assert f"acda {verb}" in capsys.readouterr().out


def test_an_option_that_is_given_twice_is_refused(capsys):
    """The last would win, and nobody would know."""
    assert main(["look", "photo.jpg", "--at", "5,5", "--at=90,9"]) == 2
    assert "--at is given twice. Give its values together." in capsys.readouterr().err


def test_streams_that_are_closed_or_narrow_are_no_reason_to_fail(tmp_path):
    """Without a standard error, and with an output that has no word for a name."""
    command = "from acda.cli import main; raise SystemExit(main(['nobody']))"
    closed = subprocess.run([sys.executable, "-c", command], preexec_fn=lambda: os.close(2), check=False)
    assert closed.returncode == 2
    command = "from acda.cli import main; main(['--version']); print('写真.png')"
    narrow = {**os.environ, "PYTHONIOENCODING": "latin-1:strict"}
    result = subprocess.run([sys.executable, "-c", command], env=narrow, capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "\\u5199\\u771f.png"


@pytest.mark.parametrize("verb", NEEDED)
def test_a_verb_that_needs_an_argument_shows_its_usage_and_fails(verb, capsys):
    assert main([verb]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"usage: acda {verb} {NEEDED[verb]} ")


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"train"}))
def test_usage_agrees_on_what_is_needed(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert ("(required)" in text) == (verb in NEEDED)
    if verb != "evaluate":
        assert not any(word in text for word in (" STR", " PATH", "{None}", " INT", " FLOAT")), "metavars for people"


@pytest.mark.parametrize("verb", ["count", "denoise", "restore", "upscale"])
def test_options_are_no_photos(verb, capsys, monkeypatch):
    module = importlib.import_module(f"acda.cli.{verb}")
    kind, loads = (PeopleCounter, "load_counter") if verb == "count" else (PhotoRestorer, "load_restorer")
    monkeypatch.setattr(module, loads, lambda *_: kind(nn.Identity(), torch.zeros(2, 3), {}))
    assert main([verb, "--weights", "x"]) == 2
    assert capsys.readouterr().err == f"acda {verb}: which photos? Give files, folders or patterns.\n"


def test_alone_it_prints_its_help(capsys):
    assert main([]) == 0
    assert "usage: acda VERB" in capsys.readouterr().out
