import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

from acda import AdaptiveConv2d, AtomGenerator, ConversionWarning, fourier_bessel
from acda.layers.imitation import why_not_conv2d


class Subclass(nn.Conv2d):
    pass


def hooked() -> nn.Conv2d:
    conv = nn.Conv2d(3, 4, 3)
    conv.register_forward_hook(lambda module, inputs, output: output * 2)
    return conv


def replaced() -> nn.Conv2d:
    conv = nn.Conv2d(3, 4, 3)
    conv.forward = lambda x: x
    return conv


def pruned() -> nn.Conv2d:
    conv = prune.l1_unstructured(nn.Conv2d(3, 4, 3), "weight", 0.5)
    conv._forward_pre_hooks.clear()  # what is left when a pruned convolution is loaded from a state dict
    return conv


UNLIKE = {
    "transposed": (lambda: nn.ConvTranspose2d(3, 4, 3), "it is a ConvTranspose2d, not a Conv2d"),
    "1d": (lambda: nn.Conv1d(3, 4, 3), "it is a Conv1d, not a Conv2d"),
    "linear": (lambda: nn.Linear(3, 4), "it is a Linear, not a Conv2d"),
    "lazy": (lambda: nn.LazyConv2d(4, 3), "it is a LazyConv2d, a subclass"),
    "subclass": (lambda: Subclass(3, 4, 3), "it is a Subclass, a subclass that may compute something else"),
    "hook": (hooked, "it carries hooks"),
    "forward": (replaced, "its forward was replaced"),
    "pruned": (pruned, "it also has weight_mask, weight_orig"),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Conv2d(3, 4, 3)), "its weight is computed by a param"),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Conv2d(3, 4, 3)), "remove_parametrizations first"),
}


@pytest.mark.parametrize(("make", "reason"), UNLIKE.values(), ids=UNLIKE)
@pytest.mark.parametrize("start", [AdaptiveConv2d.from_conv2d, AdaptiveConv2d.like])
def test_what_may_compute_something_else_is_refused_with_the_reason(make, reason, start):
    with pytest.raises(TypeError, match=f"cannot take the place of this module: .*{reason}"):
        start(make())


def test_timms_own_convolutions_are_refused():
    layers = pytest.importorskip("timm.layers")
    for conv in (layers.Conv2dSame(3, 4, 3), layers.StdConv2d(3, 4, 3)):
        with pytest.raises(TypeError, match=f"it is a {type(conv).__name__}, a subclass"):
            AdaptiveConv2d.from_conv2d(conv)


def test_a_parametrization_that_was_removed_leaves_a_plain_convolution():
    conv = parametrizations.weight_norm(nn.Conv2d(3, 4, 3))
    nn.utils.parametrize.remove_parametrizations(conv, "weight")
    assert why_not_conv2d(conv) is None


@pytest.mark.parametrize("side", [1, 3, 5])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exact_starts_as_the_convolution(side, dtype):
    conv, x = nn.Conv2d(4, 6, side, padding=1, dtype=dtype), torch.randn(1, 4, 9, 8, dtype=dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        layer = AdaptiveConv2d.from_conv2d(conv, exact=True, bases=None if side == 1 else "fourier_bessel")
    assert layer.num_atoms == min(side**2, 24)
    with torch.no_grad():
        assert (layer(x) - conv(x)).norm() / conv(x).norm() < 1e-5


def test_exact_takes_no_more_atoms_than_the_filters_need_and_keeps_bases_that_span_them():
    conv = nn.Conv2d(4, 6, 3)
    with torch.no_grad():
        conv.weight.copy_(torch.einsum("ocm,ml,lij->ocij", torch.randn(6, 4, 2), torch.randn(2, 6), fourier_bessel(3)))
    layer = AdaptiveConv2d.from_conv2d(conv, exact=True)
    assert layer.num_atoms == 2
    assert layer.bases is not None
    assert AdaptiveConv2d.from_conv2d(conv, exact=True, bases=None).num_atoms == 2


def test_exact_is_possible_for_filters_that_are_all_zero():
    conv = nn.Conv2d(2, 2, 3)
    nn.init.zeros_(conv.weight)
    assert AdaptiveConv2d.from_conv2d(conv, exact=True).num_atoms == 1


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"exact": True, "num_atoms": 4}, ValueError, "exact=True chooses num_atoms itself; got num_atoms=4"),
        ({"exact": True, "bases": "wavelets"}, ValueError, "got 'wavelets'"),
        ({"bases": None, "generator": nn.Conv2d(3, 54, 3)}, TypeError, "AtomGenerator.* got Conv2d"),
        (
            {"generator": AtomGenerator(3, 36, 3), "hidden": 8},
            ValueError,
            "hidden=8, .*adaptivity=0.2 beside",
        ),
        ({"generator": AtomGenerator(3, 35, 3)}, ValueError, r"the generator needs 36 channels, M·L; got 35"),
        ({"hidden": 0}, ValueError, "hidden needs to be at least 1; got 0"),
    ],
)
def test_options_that_cannot_be_are_refused(options, error, message):
    with pytest.raises(error, match=message):
        AdaptiveConv2d.from_conv2d(nn.Conv2d(3, 4, 3), **options)


@pytest.mark.filterwarnings("ignore::acda.ConversionWarning")
def test_the_shape_of_the_generator_reaches_the_layer():
    layer = AdaptiveConv2d.from_conv2d(nn.Conv2d(3, 4, 3), hidden=8, first_kernel=3)
    assert tuple(layer.generator.squeeze.weight.shape) == (8, 3, 3, 3)
    phi = AtomGenerator(3, 36, 3, hidden=16)
    assert AdaptiveConv2d.from_conv2d(nn.Conv2d(3, 4, 3), generator=phi).generator is phi


def test_the_warning_names_the_way_to_an_exact_start():
    with pytest.warns(ConversionWarning, match="exact=True does, but for rounding"):
        AdaptiveConv2d.from_conv2d(nn.Conv2d(3, 4, 3))
