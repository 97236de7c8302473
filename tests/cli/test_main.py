import importlib
import io
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import acda.cli
from acda import __version__
from acda.cli import NEEDED, VERBS, main
from acda.photos.count import PeopleCounter
from acda.photos.restore import PhotoRestorer


def test_help_lists_every_file_of_a_verb(capsys):
    assert main(["--help"]) == 0
    files = {path.stem for path in Path(acda.cli.__file__).parent.glob("*.py")} - {"__init__", "arguments"}
    lines = capsys.readouterr().out.splitlines()
    assert {line.split()[0] for line in lines if line.startswith("  ")} == files


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
    """The last value would be used silently."""
    assert main(["look", "photo.jpg", "--at", "5,5", "--at=90,9"]) == 2
    assert "--at is given twice. Give its values together." in capsys.readouterr().err


def test_streams_that_are_closed_or_narrow_are_no_reason_to_fail(monkeypatch):
    """Where sys.stderr is None, and where standard output cannot encode a name."""
    monkeypatch.setattr(sys, "stderr", None)
    assert main(["nobody"]) == 2
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "latin-1", "strict"))
    assert main(["--version"]) == 0
    print("写真.png", flush=True)
    assert written.getvalue().splitlines()[-1] == b"\\u5199\\u771f.png"


@pytest.mark.parametrize("verb", NEEDED)
def test_a_verb_that_needs_an_argument_shows_its_usage_and_fails(verb, capsys):
    assert main([verb]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"usage: acda {verb} ")


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"train"}))
def test_usage_agrees_on_what_is_needed(verb, capsys):
    with pytest.raises(SystemExit):
        main([verb, "--help"])
    text = capsys.readouterr().out
    assert ("(required)" in text) == (verb in NEEDED)
    for word in NEEDED.get(verb, "").replace("[", "").replace("]", "").replace(" ...", "").split():
        assert word in text, "what the usage of main names is an argument of the verb"
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
