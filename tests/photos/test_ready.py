"""Each network becomes the tool for its task."""

import pytest
import torch
from torch import nn

from acda import create_model
from acda.photos.classify import PhotoClassifier
from acda.photos.count import PeopleCounter
from acda.photos.ready import ready
from acda.photos.restore import PhotoRestorer
from acda.photos.trained import Trained


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("lenet_acda", PhotoClassifier),
        ("ad_resnet_s", PhotoClassifier),
        ("crowd_counter_s_conv", PeopleCounter),
        ("lite_counter", PeopleCounter),
        ("restorer", PhotoRestorer),
        ("dncnn", PhotoRestorer),
        ("kpn", PhotoRestorer),
    ],
)
def test_the_network_decides(name, kind):
    with torch.device("meta"):
        model = create_model(name)
    assert type(ready(model, torch.ones(2, 3), {"model": name})) is kind


def test_others_are_only_looked_into():
    assert type(ready(nn.Conv2d(3, 8, 3), torch.ones(2, 3), {})) is Trained
