import sys

import pytest

from acda.cli import main


def test_a_network_whole_and_by_layers(capsys):
    assert main(["cost", "lenet_acda", "--input", "3,32,32", "--layers"]) == 0
    out = capsys.readouterr().out
    assert "lenet_acda, input 1 × 3 × 32 × 32" in out
    assert "whole network" in out
    assert "features.0" in out
    assert "AdaptiveConv2d" in out
    assert "generator" not in out


def test_timms_networks_too(capsys):
    assert main(["cost", "resnet18"]) == 0
    assert "11,689,512" in capsys.readouterr().out


def test_time_is_on_request(capsys):
    assert main(["cost", "lenet", "--input", "3,32,32", "--time"]) == 0
    assert "training step: " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["ad_resnet_x"], "Did you mean ad_resnet_s"),
        (["lenet", "--input", "3,32"], "channels, height and width"),
        (["lenet", "--input", "3,32,x"], "whole numbers of at least 1"),
        (["lenet", "--input", "3,28,28"], "needs images of 32×32"),
        (["lenet", "--batch", "0"], "--batch needs whole numbers"),
    ],
)
def test_bad_input_is_one_line(arguments, complaint, capsys):
    assert main(["cost", *arguments]) == 1
    err = capsys.readouterr().err
    assert complaint in err
    assert len(err.strip().splitlines()) == 1


def test_an_input_that_the_network_does_not_take(capsys):
    assert main(["cost", "ad_resnet_s", "--input", "1,224,224"]) == 1
    assert "ad_resnet_s does not take an input of 1,224,224" in capsys.readouterr().err


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A folder with networks that a user wrote."""
    (tmp_path / "my_networks.py").write_text(
        "from torch import nn\n"
        "class Small(nn.Conv2d):\n"
        "    def __init__(self): super().__init__(3, 4, 3)\n"
        "def make(): return Small()\n"
        "ready = Small()\n"
        "def text(): return 'no network'\n"
        "def many(number): return ready\n"
        "number = 5\n"
    )
    (tmp_path / "broken_networks.py").write_text("raise RuntimeError('two\\nlines')")
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_networks", None)


@pytest.mark.parametrize("name", ["my_networks:make", "my_networks:Small", "my_networks:ready"])
def test_networks_of_ones_own(name, own, capsys):
    before = list(sys.path)
    assert main(["cost", name, "--input", "3,8,8"]) == 0
    assert f"{3 * 4 * 9 + 4:,}" in capsys.readouterr().out
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nowhere:make", "ModuleNotFoundError: No module named 'nowhere'"),
        ("my_networks:nobody", "has no attribute 'nobody'"),
        ("my_networks:text", "needs to be a torch.nn.Module or to return one; got str"),
        ("my_networks:number", "needs to be a torch.nn.Module or to return one; got int"),
        ("my_networks:many", "missing 1 required positional argument"),
        ("my_networks:", "It needs to be module:function or module:network."),
        (":make", "It needs to be module:function or module:network."),
        ("broken_networks:make", "RuntimeError: two)"),
    ],
)
def test_what_cannot_be_imported_is_one_line(name, complaint, own, capsys):
    assert main(["cost", name]) == 1
    errors = capsys.readouterr().err
    assert complaint in errors
    assert len(errors.splitlines()) == 1
