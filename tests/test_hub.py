"""A model is saved to a folder for the Hugging Face Hub and loaded back unchanged, without internet access."""

import json

import pytest
import torch
from huggingface_hub import ModelCard
from safetensors.torch import load_file

import acda
from acda.hub import HubNetwork
from acda.photos.ready import ready
from acda.photos.restore import PhotoRestorer
from acda.photos.weight_folders import CHECKOUT

RESEARCH = CHECKOUT / "weights" / "research"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """Every connection to the internet fails."""

    def refused(*arguments, **options):
        raise AssertionError("the network was asked for")

    monkeypatch.setattr("socket.socket.connect", refused)
    monkeypatch.setattr("socket.getaddrinfo", refused)


@pytest.fixture
def folder(tmp_path):
    facts = {"model": "dncnn", "options": '{"depth": 3, "width": 8}', "scale": "2"}
    model = acda.create_model("dncnn", depth=3, width=8)
    torch.nn.init.normal_(model.layers[-1].weight)
    trained = ready(model, torch.tensor([[1.0, 2, 3], [4, 5, 6]]), facts)
    HubNetwork.of(trained).save_pretrained(tmp_path / "hub")
    return tmp_path / "hub"


def test_it_comes_back_the_same(folder):
    assert {path.name for path in folder.iterdir()} == {"README.md", "config.json", "model.safetensors"}
    network = HubNetwork.from_pretrained(folder)
    assert not network.training
    assert network.statistics.tolist() == [[1, 2, 3], [4, 5, 6]]
    for name, t in load_file(folder / "model.safetensors").items():
        assert torch.equal(network.state_dict()[name], t)
    restorer = network.ready()
    assert isinstance(restorer, PhotoRestorer)
    assert restorer.own_scale == 2
    assert ModelCard.load(folder / "README.md").data.library_name == "acda"


def test_a_fresh_network_can_be_saved_and_trained_on(tmp_path):
    network = HubNetwork({"model": "lenet_acda", "options": '{"num_classes": 4}'})
    network(torch.randn(2, 3, 32, 32)).sum().backward()
    network.save_pretrained(tmp_path)
    x = torch.randn(1, 3, 32, 32)
    torch.testing.assert_close(HubNetwork.from_pretrained(tmp_path)(x), network.eval()(x))


@pytest.mark.skipif(not RESEARCH.exists(), reason="acda is installed without weights/research")
def test_a_packaged_network_keeps_its_card(tmp_path):
    trained = acda.load("lenet_acda_cifar10")
    HubNetwork.of(trained).save_pretrained(tmp_path)
    back = HubNetwork.from_pretrained(str(tmp_path)).ready()
    x = torch.rand(2, 3, 32, 32)
    assert torch.equal(back(x), trained(x))
    assert back.classes == trained.classes
    card = ModelCard.load(tmp_path / "README.md")
    assert card.data.license == "other"
    assert "## Limits" in card.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "has no config.json: it needs to be a folder that save_pretrained"),
        (lambda f: (f / "model.safetensors").unlink(), "has no model.safetensors"),
        (lambda f: (f / "model.safetensors").write_text("junk"), "does not have the weights of its network: .*header"),
        (lambda f: (f / "config.json").write_text("{}"), "does not describe a network of acda"),
        (lambda f: (f / "config.json").write_text("[1"), "does not describe a network of acda"),
        (lambda f: (f / "config.json").write_text('{"facts": {"model": 3}}'), "does not describe a network of acda"),
        (lambda f: rename(f, "model", "nobody"), "cannot be made here .there is no model 'nobody'"),
        (lambda f: rename(f, "options", '{"depth": 999999}'), "the option depth needs to be a whole number of at"),
        (lambda f: rename(f, "options", '{"depth": 4, "width": 8}'), "does not have the weights of its network"),
    ],
)
def test_a_folder_of_something_else_is_refused(folder, change, message):
    change(folder)
    with pytest.raises(ValueError, match=message):
        HubNetwork.from_pretrained(folder)


def rename(folder, fact, value):
    config = json.loads((folder / "config.json").read_text())
    config["facts"][fact] = value
    (folder / "config.json").write_text(json.dumps(config))
