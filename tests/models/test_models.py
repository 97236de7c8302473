import pytest

import acda
from acda.models import MODELS


def test_every_name_is_listed():
    assert acda.list_models() == sorted(MODELS)


@pytest.mark.parametrize(("pattern", "names"), [("lenet_a*", ["lenet_acda"]), ("lenet", ["lenet"]), ("LENET", [])])
def test_a_pattern_chooses(pattern, names):
    assert acda.list_models(pattern) == names
