"""EfficientNet-lite0: the published weights give the published features."""

import pytest
import torch
from torch import nn

from acda.models.efficientnet_lite import EfficientNetLite


def published(seed=0):
    """timm's network, with statistics of its normalisations that are not 0 and 1."""
    timm = pytest.importorskip("timm")
    torch.manual_seed(seed)
    model = timm.create_model("tf_efficientnet_lite0", num_classes=5).eval()
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            nn.init.uniform_(part.running_mean, -0.2, 0.2)
            nn.init.uniform_(part.running_var, 0.5, 1.5)
            nn.init.uniform_(part.weight, 0.8, 1.2)
            nn.init.uniform_(part.bias, -0.2, 0.2)
    return model


def test_features_are_those_of_the_classifier():
    classifier, network = published(), EfficientNetLite().eval()
    network.load_published(classifier.state_dict())
    x = torch.rand(2, 3, 96, 64) * 2 - 1
    with torch.no_grad():
        expected = classifier.forward_intermediates(x, indices=(2, 3, 4), intermediates_only=True)
        for found, wanted in zip(network(x), expected, strict=True):
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=1e-4)


def test_its_maps_are_as_it_says():
    network = EfficientNetLite()
    maps = network(torch.zeros(1, 3, 64, 96))
    assert tuple(each.shape[1] for each in maps) == network.widths
    assert tuple(64 // each.shape[2] for each in maps) == network.strides


@pytest.mark.parametrize("state", [{}, {"stem": torch.zeros(8, 3, 3, 3)}, {"stem": torch.zeros(8)}])
def test_other_weights_are_refused(state):
    norm = {name: torch.ones(8) for name in ("weight", "bias", "mean", "variance")}
    with pytest.raises(ValueError, match="EfficientNet-lite0 needs"):
        EfficientNetLite().load_published({**state, **norm})
