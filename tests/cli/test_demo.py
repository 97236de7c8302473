import json

from acda.cli import main


def test_demo_writes_numbers_and_figure(tmp_path, capsys):
    assert main(["demo", "--seed", "1", "--steps", "20", "--out", str(tmp_path / "new")]) == 0
    numbers = json.loads((tmp_path / "new" / "demo.json").read_text())
    assert {"conv", "acda", "conv_shifted", "acda_shifted", "steps", "seed", "seconds"} <= set(numbers)
    assert (numbers["steps"], numbers["seed"]) == (20, 1)
    assert numbers["acda"] < numbers["curves"]["acda"][0], "it has learnt something"
    assert abs(numbers["acda"] / numbers["acda_shifted"] - 1) < 0.05, "what moves with the image is still found"
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "times lower" in capsys.readouterr().out


def test_demo_repeats_itself(tmp_path):
    for name in ("a", "b"):
        assert main(["demo", "--steps", "2", "--out", str(tmp_path / name)]) == 0
    a, b = (json.loads((tmp_path / name / "demo.json").read_text()) for name in ("a", "b"))
    assert a["acda"] == b["acda"]


def test_no_steps_are_refused(tmp_path, capsys):
    assert main(["demo", "--steps", "0", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "acda demo: --steps needs at least 1; got 0.\n"
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_made_is_told_before_the_training(tmp_path, capsys):
    (tmp_path / "file").write_text("in the way")
    assert main(["demo", "--steps", "1000000", "--out", str(tmp_path / "file")]) == 1
    assert "file" in capsys.readouterr().err
