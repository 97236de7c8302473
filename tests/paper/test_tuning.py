"""The comparison of fine-tuning methods: the parts that need neither the images nor ImageNet's weights."""

import json

import pytest
import torch
from torch import nn

from paper import tuning

timm = pytest.importorskip("timm")


@pytest.fixture(scope="module")
def base():
    torch.manual_seed(0)
    model = tuning.network(3, trained=False)
    nn.init.normal_(model.classifier.weight, std=0.1)
    return model.eval()


@pytest.fixture(scope="module")
def x():
    return torch.randn(2, 3, 64, 64)


def copied(base):
    """LoRA and the others change the model that they are given."""
    model = tuning.network(3, trained=False).eval()
    model.load_state_dict(base.state_dict())
    return model


def test_plain_convolutions_pad_as_timms_do_on_even_sizes(base, x):
    original = timm.create_model("tf_efficientnet_lite0", num_classes=3).eval()
    original.load_state_dict(dict(zip(original.state_dict(), base.state_dict().values(), strict=True)))
    assert {type(part) for part in base.modules() if isinstance(part, nn.Conv2d)} == {nn.Conv2d}
    with torch.no_grad():
        torch.testing.assert_close(base(x), original(x))


@pytest.mark.parametrize("method", tuning.METHODS)
def test_every_method_starts_as_the_network_and_trains_its_head(base, x, method):
    model = tuning.METHODS[method](copied(base)).eval()
    with torch.no_grad():
        torch.testing.assert_close(model(x), base(x), rtol=1e-3, atol=1e-4)
    trainable = {name for name, p in model.named_parameters() if p.requires_grad}
    assert {"classifier.weight", "classifier.bias"} <= trainable
    tuning.train_mode(model)
    norms = {name: part for name, part in model.named_modules() if isinstance(part, nn.BatchNorm2d)}
    expected = {name for name in norms if "generator" in name}
    assert {name for name, norm in norms.items() if norm.training} == expected
    assert (tuning.shipped_bytes(model, method) < 200_000) == (method in ("last_layer", "atoms"))


def test_the_best_rate_is_chosen(tmp_path):
    rows = [{"method": "atoms", "rate": rate, "error": error} for rate, error in ((1e-3, 20), (2e-3, 10), (1e-2, 30))]
    (tmp_path / "rates.json").write_text(json.dumps({"rows": rows}))
    assert tuning.best_rate("atoms", tmp_path / "rates.json") == 2e-3
    with pytest.raises(SystemExit, match="no learning rate for full: run with --search"):
        tuning.best_rate("full", tmp_path / "rates.json")


def test_every_class_has_the_same_share_of_held_out_images():
    labels = torch.tensor([0, 1, 0, 1, 1, 0])
    assert tuning.place_in_class(labels).tolist() == [0, 0, 1, 1, 2, 2]
