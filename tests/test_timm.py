"""timm's tests of its own networks, applied to ours: forward, backward, configurations, features, no-gradient modes."""

import pytest
import timm
import timm.data
import torch

import acda.timm
from acda import create_model
from acda.models import CLASSIFIERS
from acda.photos.weight_folders import named_weights

NAMES = [name for name in CLASSIFIERS if name.startswith("ad_resnet")]
SMALL = "ad_resnet_s"


@pytest.fixture
def on_meta():
    """On the meta device: shapes without computing."""
    with torch.device("meta"):
        yield


def test_the_names_are_registered():
    assert set(acda.timm.__all__) == set(CLASSIFIERS) <= set(timm.list_models())
    assert len(NAMES) == 9


@pytest.mark.skipif("lenet_acda_cifar10" not in named_weights(), reason="acda is installed without weights/research")
@pytest.mark.parametrize(("tag", "classes"), [("cifar10", 10), ("cifar100", 100)])
def test_weights_of_our_own_are_pretrained_configurations(tag, classes, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", None)  # the network
    assert f"lenet_acda.{tag}" in timm.list_models("lenet*", pretrained=True)
    model, trained = timm.create_model(f"lenet_acda.{tag}", pretrained=True).eval(), acda.load(f"lenet_acda_{tag}")
    for name, t in trained.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], t)
    config = timm.data.resolve_data_config(model=model)
    assert config["input_size"] == (3, 32, 32)
    x = torch.rand(2, 3, 32, 32)
    mean, std = (torch.tensor(config[key])[:, None, None] for key in ("mean", "std"))
    torch.testing.assert_close(model((x - mean) / std).softmax(1), trained(x), rtol=1e-4, atol=1e-6)
    assert model.pretrained_cfg["num_classes"] == len(model.pretrained_cfg["label_names"]) == classes
    other = timm.create_model(f"lenet_acda.{tag}", pretrained=True, num_classes=7)
    assert other.fc.out_features == 7


def test_networks_without_weights_say_so():
    with pytest.raises(RuntimeError, match="No pretrained weights exist for ad_resnet_s"):
        timm.create_model("ad_resnet_s", pretrained=True)


@pytest.mark.parametrize("name", ["lenet", "lenet_acda", "lenet_wide"])
def test_lenets(name):
    model = timm.create_model(name, num_classes=7, in_chans=1)
    x = torch.randn(2, 1, 32, 32)
    y = model(x)
    y.mean().backward()
    assert y.shape == (2, 7)
    assert all(p.grad is not None for p in model.parameters())
    assert model.default_cfg["input_size"] == (3, 32, 32)
    assert f"{model.default_cfg['classifier']}.weight" in model.state_dict()
    assert model.forward_features(x).shape[2:] == model.default_cfg["pool_size"]
    assert model.forward_head(model.forward_features(x), pre_logits=True).shape == (2, model.num_features)
    model.reset_classifier(0)
    assert model(x).shape == (2, model.num_features)
    with pytest.raises(ValueError, match="no pyramid of features"):
        timm.create_model(name, features_only=True)


@pytest.mark.parametrize(
    "name", [name if name.startswith(SMALL) else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]
)
def test_forward_gives_numbers_and_backward_reaches_every_parameter(name):
    model = timm.create_model(name, num_classes=42).train()
    y = model(torch.randn(2, 3, 40, 40))
    y.mean().backward()
    with torch.no_grad():
        unseen = model.eval()(torch.randn(1, 3, 40, 40))
    assert y.shape == (2, 42)
    assert unseen.shape == (1, 42)
    assert y.isfinite().all()
    assert unseen.isfinite().all()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name


@pytest.mark.parametrize("name", NAMES)
def test_configuration_is_true(name, on_meta):
    model = timm.create_model(name).eval()
    config, state = model.default_cfg, model.state_dict()
    assert config["architecture"] == name
    assert f"{config['classifier']}.weight" in state
    assert f"{config['first_conv']}.weight" in state
    assert model.get_classifier() is model.fc
    x = torch.randn(1, *config["input_size"])
    with torch.no_grad():
        features = model.forward_features(x)
        assert features.shape[2:] == config["pool_size"]
        assert model.forward_head(features, pre_logits=True).shape == (1, model.num_features)
        model.reset_classifier(0)
        assert model.forward_head(features).shape == (1, model.num_features)
        model.reset_classifier(0, "")
        assert model(x).shape == (1, model.num_features, *config["pool_size"])
    model.reset_classifier(11)
    assert model.num_classes == 11
    assert model.get_classifier().out_features == 11


@pytest.mark.parametrize("name", NAMES)
def test_features(name, on_meta):
    model = timm.create_model(name, features_only=True).eval()
    x = torch.randn(1, 3, 96, 96)
    maps = model(x)
    assert len(maps) == 5
    for y, channels, reduction in zip(maps, model.feature_info.channels(), model.feature_info.reduction(), strict=True):
        assert y.shape == (1, channels, 96 // reduction, 96 // reduction)


def test_some_of_the_features(on_meta):
    x, model = torch.randn(1, 3, 96, 96), timm.create_model("ad_resnet_s", features_only=True, out_indices=(2, 4))
    assert [y.shape[1] for y in model(x)] == model.feature_info.channels() == [128, 512]


def test_intermediates():
    model, x = timm.create_model("ad_resnet_s").eval(), torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        last, maps = model.forward_intermediates(x)
        torch.testing.assert_close(last, model.forward_features(x))
        assert [y.shape[1] for y in maps] == [64, 64, 128, 256, 512]
        two = model.forward_intermediates(x, indices=[0, -3], intermediates_only=True, stop_early=True)
        torch.testing.assert_close(two, [maps[0], maps[2]])
        torch.testing.assert_close(model.forward_intermediates(x, indices=2)[1], maps[3:])
    with pytest.raises(ValueError, match="indices needs some of the five maps"):
        model.forward_intermediates(x, indices=[7])
    getter = timm.create_model("ad_resnet_s", features_only=True, feature_cls="getter", out_indices=(1, 3)).eval()
    assert [y.shape[1] for y in getter(x)] == [64, 256]


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", ["ad_resnet_s", "ad_resnet_m_conv"])
def test_without_gradients(name, mode):
    model, x = timm.create_model(name, num_classes=5).eval(), torch.randn(2, 3, 64, 64)
    expected = model(x).detach()
    with mode():
        y = model(x)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    assert not y.requires_grad


def test_other_inputs_and_the_same_weights():
    ours = create_model("ad_resnet_s", num_classes=5, in_chans=1)
    theirs = timm.create_model("ad_resnet_s", num_classes=5, in_chans=1)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(2, 1, 64, 64)
    torch.testing.assert_close(theirs.eval()(x), ours.eval()(x))


def test_layer_wise_learning_rates_know_the_depths():
    from timm.models import group_parameters

    model = timm.create_model("ad_resnet_s")
    groups = group_parameters(model, model.group_matcher(coarse=False))
    names = [name for group in groups.values() for name in group]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    assert len(groups) == 1 + 8 + 1


@pytest.mark.parametrize("name", ["ad_resnet_s", "ad_resnet_m_conv"])
def test_features_that_are_found_by_tracing(name):
    found = []
    for kind in ("fx", "getter"):
        torch.manual_seed(0)
        model = timm.create_model(name, features_only=True, feature_cls=kind, out_indices=(2, 4)).eval()
        with torch.no_grad():
            found.append(model(torch.ones(1, 3, 64, 64)))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:FutureWarning")
def test_torchscript_cannot_compile_them_as_the_readme_says():
    with pytest.raises((RuntimeError, torch.jit.frontend.NotSupportedError)):
        torch.jit.script(timm.create_model("ad_resnet_s"))
