"""Weights by name: from a given folder or from a checkout; otherwise one line says where they are."""

import re
from pathlib import Path

import pytest
import torch

import acda
from acda import create_model
from acda.cli import main
from acda.photos import weight_folders
from acda.photos.weight_folders import PACKAGED, named_weights
from acda.photos.weights import find_weights, write_weights

# What is installed with the package.
FREE = {path.stem: path for path in PACKAGED.glob("*.safetensors")}


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """As without a checkout: a folder of packages, with something of our name beside them."""
    packages = tmp_path / "packages"
    (packages / "weights" / "research").mkdir(parents=True)
    (packages / "weights" / "research" / "camera_denoiser.safetensors").write_bytes(b"a stranger's")
    monkeypatch.setattr(weight_folders, "CHECKOUT", packages)
    monkeypatch.delenv("ACDA_WEIGHTS", raising=False)
    return tmp_path


def write_lenet(path: Path) -> Path:
    tensors = {f"model.{name}": t for name, t in create_model("lenet").state_dict().items()}
    write_weights(path, {**tensors, "statistics": torch.tensor([[0.0] * 3, [255.0] * 3])}, {"model": "lenet"})
    return path


def test_without_a_checkout_one_line_says_where_they_are(installed, capsys):
    where = "for research only and not installed with acda. They are in weights/research of its repository: set ACDA_"
    with pytest.raises(ValueError, match=f"the weights 'camera_denoiser' are {re.escape(where)}"):
        acda.load("camera_denoiser")
    assert main(["count", str(installed / "a.png")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert where in line


def test_a_variable_names_the_folder(installed, monkeypatch):
    path = write_lenet(installed / "mine" / "small.safetensors")
    monkeypatch.setenv("ACDA_WEIGHTS", str(path.parent))
    assert named_weights() == {**FREE, "small": path}
    assert acda.load("small").facts == {"model": "lenet"}
    with pytest.raises(ValueError, match=r"there is no weights file 'smal'\. Did you mean small"):
        acda.load("smal")


def test_it_comes_before_the_checkout(installed, monkeypatch):
    (installed / "packages" / "pyproject.toml").touch()
    research = {"camera_denoiser": installed / "packages/weights/research/camera_denoiser.safetensors"}
    assert named_weights() == {**research, **FREE}
    mine = write_lenet(installed / "mine" / "camera_denoiser.safetensors")
    monkeypatch.setenv("ACDA_WEIGHTS", str(mine.parent))
    assert named_weights() == {**FREE, "camera_denoiser": mine}


def test_a_variable_that_names_no_folder_is_refused(installed, monkeypatch):
    monkeypatch.setenv("ACDA_WEIGHTS", str(installed / "nowhere"))
    with pytest.raises(ValueError, match=r"ACDA_WEIGHTS needs to name a folder .* there is no folder .*nowhere"):
        acda.load("denoiser")


def test_of_a_folder_of_several_the_one_that_is_meant(installed):
    path = write_lenet(installed / "several" / "small.safetensors")
    assert find_weights(path.parent, "small") == path
    with pytest.raises(ValueError, match=r"several has no weights\.safetensors"):
        find_weights(path.parent, "large")
    run = write_lenet(path.parent / "weights.safetensors")
    assert find_weights(path.parent, "small") == run, "a run's folder is meant as a run"
