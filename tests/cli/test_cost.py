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
