"""Crowd counters take any size, have about the paper's parameters, and can start from a classifier's weights."""

import pytest
import torch

from acda import create_model
from acda.layers import AdaptiveConv2d, CondConv2d
from acda.models import CrowdCounter


@pytest.mark.parametrize("size", [(64, 64), (17, 90), (33, 48)])
@pytest.mark.parametrize("kind", ["", "_conv", "_condconv"])
def test_any_size(kind, size):
    counter = create_model(f"crowd_counter_s{kind}").eval()
    with torch.no_grad():
        density = counter(torch.randn(1, 3, *size))
    assert density.shape == (1, 1, -(-size[0] // 4), -(-size[1] // 4))


def test_kinds_differ_in_one_layer():
    kinds = {kind: create_model(f"crowd_counter_s{kind}") for kind in ("", "_conv", "_condconv")}
    middle = {kind: type(model.backbone.layer3[0].conv2) for kind, model in kinds.items()}
    assert middle == {"": AdaptiveConv2d, "_conv": torch.nn.Conv2d, "_condconv": CondConv2d}


def test_it_begins_with_the_weights_of_its_classifier():
    classifier, counter = create_model("ad_resnet_s", num_classes=20), create_model("crowd_counter_s")
    counter.load_classifier(classifier.state_dict())
    torch.testing.assert_close(counter.backbone.layer4[1].conv2.mixing, classifier.layer4[1].conv2.mixing)
    with pytest.raises(ValueError, match="not the weights of the same kind of classifier"):
        counter.load_classifier(create_model("ad_resnet_s_conv").state_dict())


def test_a_fresh_one_sees_nobody():
    torch.manual_seed(0)
    counter = create_model("crowd_counter_s")
    assert isinstance(counter, CrowdCounter)
    with torch.no_grad():
        assert float(counter(torch.randn(2, 3, 64, 64)).abs().mean()) < 0.01


def test_a_small_photo_alone_can_be_trained_on():
    """Without the first pooling its last stage normalises four pixels; from a single one nothing can be learned."""
    model = create_model("crowd_counter_s_conv").train()
    assert model(torch.rand(1, 3, 17, 17)).shape == (1, 1, 5, 5)
    with pytest.raises(ValueError, match="needs at least 17 pixels in one direction"):
        model(torch.rand(1, 3, 16, 16))
