"""A classifier takes a photo in any form and returns probabilities."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from acda import create_model
from acda.photos.classify import PhotoClassifier

NAMES = ["cat", "dog", "ship"]
STATISTICS = torch.tensor([[120.0] * 3, [60.0] * 3])


@pytest.fixture
def classifier():
    torch.manual_seed(0)
    return PhotoClassifier(create_model("lenet", num_classes=3), STATISTICS, {"classes": json.dumps(NAMES)})


def test_an_image_gives_names_the_most_probable_first(classifier):
    array = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    pixels = torch.from_numpy(array.transpose(2, 0, 1).copy())[None]
    with torch.no_grad():
        right = classifier.model(classifier.normalised(pixels)).softmax(1)
    torch.testing.assert_close(classifier(pixels), right)
    found = classifier(Image.fromarray(array))
    assert found == {NAMES[index]: pytest.approx(float(right[0, index])) for index in range(3)}
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert classifier(array) == found


def test_any_size_is_taken(classifier):
    assert classifier(torch.rand(2, 3, 50, 70)).shape == (2, 3)


def test_classes_without_names_have_numbers():
    classifier = PhotoClassifier(create_model("lenet", num_classes=3), STATISTICS, {})
    assert set(classifier(np.zeros((32, 32, 3), np.uint8))) == {"0", "1", "2"}
