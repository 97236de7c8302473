"""Weights for research: each loads by its name, has a card, and contains no path of the machine that trained it."""

import re

import pytest
import torch

import acda
from acda.insight import capture
from acda.photos.weight_folders import CHECKOUT, RESEARCH
from acda.photos.weights import read_weights
from acda.training.recipe import recipe_from_json

FOLDER = CHECKOUT / "weights" / "research"
NAMES = sorted(path.stem for path in FOLDER.glob("*.safetensors"))

pytestmark = pytest.mark.skipif(not FOLDER.exists(), reason="acda is installed without weights/research")


@pytest.mark.parametrize("name", NAMES)
def test_it_loads_and_runs(name):
    trained = acda.load(name)
    assert not trained.model.training
    pixels = torch.randint(256, (1, 3, 32, 32), dtype=torch.uint8)
    with torch.no_grad():
        assert trained.model(trained.normalised(pixels)).isfinite().all()


@pytest.mark.parametrize("name", NAMES)
def test_its_card_says_what_it_is(name):
    card = (FOLDER / f"{name}.md").read_text()
    for heading in ("Data", "Training", "Scores", "Limits"):
        assert f"## {heading}" in card
    assert "## Licence\n\nResearch only" in card


@pytest.mark.parametrize("name", NAMES)
def test_its_card_begins_with_what_hubs_read(name):
    hub = pytest.importorskip("huggingface_hub")
    data = hub.ModelCard.load(FOLDER / f"{name}.md").data
    assert (data.library_name, data.license, data.license_name) == ("acda", "other", "research-only")
    assert "acda" in data.tags
    assert data.datasets
    assert data.metrics


@pytest.mark.parametrize("name", NAMES)
def test_it_is_small_and_has_its_recipe_without_paths(name):
    path = FOLDER / f"{name}.safetensors"
    tensors, facts = read_weights(path)
    assert path.stat().st_size < 10e6
    assert not re.search(r"\"(data|initial)\": \"/", facts["recipe"])
    assert recipe_from_json(facts["recipe"], str(path)).model == facts["model"]
    for key, t in tensors.items():
        filters = t.ndim > 2 and not key.endswith("bases")
        assert (t.dtype == torch.float16) == filters, key


def test_its_scales_are_told_apart():
    trained = acda.load("lenet_acda_cifar10")
    view = capture(trained.model, torch.randn(1, 3, 32, 32)).layers["features.0"]
    assert view.scales == [3, 5]


def test_the_names_are_known_without_the_files():
    assert list(RESEARCH) == NAMES


def test_the_notice_names_each_of_them():
    notice = (FOLDER / "NOTICE").read_text()
    assert "research only" in notice
    assert all(f"  {name} " in notice for name in NAMES)


def test_every_card_has_its_weights():
    assert sorted(path.stem for path in FOLDER.glob("*.md")) == NAMES
