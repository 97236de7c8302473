"""Files of weights: any other file is refused with its name and the reason."""

import pytest
import torch

from acda import create_model
from acda.cli import main
from acda.photos.weights import load, write_weights

FACTS = {"model": "lenet", "options": '{"num_classes": 10}'}


def tensors():
    model = create_model("lenet", num_classes=10)
    state = {f"model.{name}": t for name, t in model.state_dict().items()}
    return {**state, "statistics": torch.tensor([[0.0] * 3, [255.0] * 3])}


def test_what_was_written_is_read(tmp_path):
    write_weights(tmp_path / "w.safetensors", tensors(), FACTS)
    trained = load(tmp_path / "w.safetensors")
    assert torch.equal(trained.normalised(torch.full((1, 3, 2, 2), 255)), torch.ones(1, 3, 2, 2))


@pytest.mark.parametrize(
    ("changes", "facts", "message"),
    [
        ({}, {"model": ""}, "names a network that cannot be made here"),
        ({}, {"options": "no JSON"}, "names a network that cannot be made here"),
        ({}, {"options": "[1]"}, "names a network that cannot be made here"),
        ({}, {"options": '{"colour": 3}'}, "names a network that cannot be made here"),
        ({"statistics": torch.zeros(3)}, {}, "needs mean and standard deviation"),
        ({"statistics": torch.zeros(2, 3)}, {}, "needs mean and standard deviation"),
        ({"statistics": torch.tensor([[torch.nan] * 3, [1.0] * 3])}, {}, "non-finite values in statistics"),
        ({"model.extra": torch.zeros(3)}, {}, "are not the weights of lenet"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, changes, facts, message):
    path = tmp_path / "w.safetensors"
    write_weights(path, {**tensors(), **changes}, {**FACTS, **facts})
    with pytest.raises(ValueError, match=f"w.safetensors .*{message}"):
        load(path)


def test_weights_that_are_not_finite_are_refused(tmp_path):
    broken = tensors()
    next(iter(broken.values())).fill_(torch.inf)
    write_weights(tmp_path / "w.safetensors", broken, FACTS)
    with pytest.raises(ValueError, match="non-finite values in model"):
        load(tmp_path / "w.safetensors")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.fc.bias": torch.full((10,), torch.nan)}, "non-finite values in model.fc.bias"),
        ({"model.fc.bias": torch.full((10,), 1e300, dtype=torch.float64)}, "non-finite values in model.fc.bias"),
        ({"statistics": torch.tensor([[0.0] * 3, [0.0] * 3])}, "needs mean and standard deviation"),
    ],
)
def test_evaluation_and_loading_have_one_door(tmp_path, capsys, changes, message):
    path = tmp_path / "w.safetensors"
    write_weights(path, {**tensors(), **changes}, FACTS)
    with pytest.raises(ValueError, match=message):
        load(path)
    assert main(["evaluate", str(path), "--data", str(tmp_path)]) == 1
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("options", ['{"num_classes": 60000}', '{"num_classes": 1000000000000}', "[" * 100_000])
def test_options_of_any_size_take_no_memory(tmp_path, options):
    write_weights(tmp_path / "w.safetensors", tensors(), {**FACTS, "options": options})
    with pytest.raises(ValueError, match=r"w\.safetensors (are not the weights|names a network that cannot be made)"):
        load(tmp_path / "w.safetensors")
