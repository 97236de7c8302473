import pytest

from acda import __version__
from acda.cli import VERBS, main


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
    with pytest.raises(SystemExit) as stop:
        main([verb, "--help"])
    assert stop.value.code == 0
    assert f"acda {verb}" in capsys.readouterr().out


def test_an_option_that_is_given_twice_is_refused(capsys):
    """The last would win, and nobody would know."""
    assert main(["look", "photo.jpg", "--at", "5,5", "--at=90,9"]) == 2
    assert "--at is given twice. Give its values together." in capsys.readouterr().err
