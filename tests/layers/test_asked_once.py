"""A pass through the layer chooses a backend once and validates its input once."""

import sys
from collections import Counter
from types import FrameType

import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d, AtomGenerator
from acda.backends import choose, native, triton
from acda.checks import check_input

COUNTED = {function.__code__: function for function in (choose, check_input, triton.why_not, native.why_not)}


def calls(run) -> Counter:
    """How often run() calls these functions, under any name and from anywhere."""
    found: Counter = Counter()

    def count(frame: FrameType, event: str, _) -> None:
        if event == "call" and frame.f_code in COUNTED:
            found[COUNTED[frame.f_code]] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        run()
    finally:
        sys.setprofile(before)
    return found


def training_step(layer: AdaptiveConv2d, x: torch.Tensor) -> None:
    layer.train()(x).square().mean().backward()


@torch.no_grad()
def inference(layer: AdaptiveConv2d, x: torch.Tensor) -> None:
    layer.eval()(x)


@pytest.mark.parametrize("run", [training_step, inference])
@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_a_pass_asks_once_and_validates_once(run, backend, mode):
    layer, x = AdaptiveConv2d(3, 4, 5, padding=2, padding_mode=mode), torch.randn(2, 3, 9, 8)
    layer.backend = backend
    found = calls(lambda: run(layer, x))
    assert (found[choose], found[check_input]) == (1, 1)
    if backend == "auto":
        assert found[triton.why_not] == 1, "each rung once"
        assert found[native.why_not] == 1


@pytest.mark.parametrize("run", [training_step, inference])
def test_so_does_a_layer_with_a_generator_of_its_owner(run):
    layer = AdaptiveConv2d(3, 4, 3, padding=1, bases=None, generator=nn.Conv2d(3, 54, 3, padding=1))
    found = calls(lambda: run(layer, torch.randn(2, 3, 9, 8)))
    assert (found[choose], found[check_input]) == (1, 1)


def test_a_generator_alone_asks_for_no_backend():
    found = calls(lambda: AtomGenerator(3, 5, 3)(torch.randn(2, 3, 9, 8)))
    assert (found[choose], found[check_input]) == (0, 1)
