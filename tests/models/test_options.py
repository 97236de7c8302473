"""Options of networks have the types of the arguments that they are passed to."""

import pytest
import torch

from acda.models import MODELS, checked_options, create_model
from acda.models.options import option_types

SAMPLES = {int: 3, bool: True, float: 0.5, str: "avg"}
WORDS = {"adapt": "image"}


@pytest.mark.parametrize("model", MODELS)
def test_a_network_takes_every_option_that_it_lists(model):
    options = {name: WORDS.get(name, SAMPLES[kind]) for name, kind in option_types(MODELS[model]).items()}
    with torch.device("meta"):
        create_model(model, **checked_options(model, options))


def test_layers_in_the_middle_of_the_blocks_have_options_too():
    assert option_types(MODELS["restorer"])["adaptivity"] is float
    assert "adaptivity" not in option_types(MODELS["restorer_conv"])


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        ({"num_atoms": 9}, {"num_atoms": 9}),
        ({"adaptivity": 1}, {"adaptivity": 1.0}),
        ({"blind_to_smooth": 1}, {"blind_to_smooth": True}),
        ({"blind_to_smooth": False}, {"blind_to_smooth": False}),
    ],
)
def test_values_get_the_types_of_the_arguments(given, typed):
    found = checked_options("restorer", given)
    assert found == typed
    assert [type(value) for value in found.values()] == [type(value) for value in typed.values()]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_atoms": True}, "num_atoms needs to be a whole number; got True"),
        ({"num_atoms": 2.0}, "num_atoms needs to be a whole number"),
        ({"num_atoms": 10**9}, "of at most 65536"),
        ({"kernel_size": 65}, "of at most 63"),
        ({"adaptivity": float("nan")}, "adaptivity needs to be a finite number"),
        ({"adaptivity": 10**400}, "adaptivity needs to be a finite number"),
        ({"adaptivity": "low"}, "adaptivity needs to be a finite number; got low"),
        ({"blind_to_smooth": 2}, "blind_to_smooth needs to be true or false"),
        ({"num_atom": 9}, "there is no restorer option 'num_atom'. Did you mean num_atoms"),
        ({"conv": "Conv2d"}, "there is no restorer option 'conv'"),
    ],
)
def test_what_a_network_cannot_take_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        checked_options("restorer", options)
