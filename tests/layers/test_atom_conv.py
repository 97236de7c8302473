import copy
import pickle

import pytest
import torch
from torch import nn

from acda.layers import AtomConv2d

LAYERS = {
    "plain": {"kernel_size": 3, "padding": 1},
    "strided, dilated, grouped": {"kernel_size": 3, "stride": 2, "padding": (1, 2), "dilation": 2, "groups": 2},
    "depthwise": {"kernel_size": 3, "padding": 1, "groups": 4, "bias": False},
    "circular": {"kernel_size": 3, "padding": 1, "padding_mode": "circular"},
    "reflect, per axis": {"kernel_size": 3, "padding": (0, 2), "padding_mode": "reflect"},
    "even, same": {"kernel_size": 2, "padding": "same", "padding_mode": "replicate"},
    "not square": {"kernel_size": (1, 3), "padding": "valid", "padding_mode": "reflect"},
    "5×5": {"kernel_size": 5, "padding": "same"},
}
each_layer = pytest.mark.parametrize("arguments", LAYERS.values(), ids=LAYERS)


@each_layer
@pytest.mark.parametrize("atoms_per_atom", [1, 3])
def test_it_starts_as_the_convolution_and_becomes_one_again(arguments, atoms_per_atom):
    conv, x = nn.Conv2d(4, 8, **arguments), torch.randn(2, 4, 9, 10)
    layer = AtomConv2d(conv, None, atoms_per_atom)
    assert layer.relative_error < 1e-6
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-5, atol=1e-5)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    merged = layer.to_conv2d()
    assert torch.equal(merged(x), layer(x))
    assert type(merged) is nn.Conv2d
    assert (repr(merged), merged.training) == (repr(conv), conv.training)


def test_only_the_atoms_learn():
    layer = AtomConv2d(nn.Conv2d(4, 8, 3))
    layer(torch.randn(1, 4, 5, 5)).sum().backward()
    assert {name for name, p in layer.named_parameters() if p.grad is not None} == {"atoms"}
    assert layer.atoms.shape == (9, 3, 3)


def test_filters_are_the_mixture_of_the_atoms():
    layer = AtomConv2d(nn.Conv2d(6, 4, 3, groups=2), 5, 2)
    with torch.no_grad():
        layer.atoms.normal_()
    expected = torch.zeros(4, 3, 3, 3)
    for o in range(4):
        for c in range(3):
            channel = o // 2 * 3 + c
            for m in range(5):
                for n in range(2):
                    expected[o, c] += layer.mixing[o, c, m] * layer.blend[channel, m, n] * layer.atoms[m, n]
    torch.testing.assert_close(layer.weight, expected)


def test_further_atoms_of_an_atom_start_silent_and_learn():
    layer = AtomConv2d(nn.Conv2d(4, 8, 3), 9, 3)
    assert layer.atoms.shape == (9, 3, 3, 3)
    assert layer.blend.shape == (4, 9, 3)
    assert not layer.atoms[:, 1:].any()
    layer(torch.randn(1, 4, 5, 5)).square().sum().backward()
    assert (layer.atoms.grad[:, 1:].flatten(2).abs().sum(2) > 0).all()
    assert layer.blend.grad[..., 0].all()


def test_too_few_atoms_tell_their_error():
    layer = AtomConv2d(conv := nn.Conv2d(4, 8, 5), 9)
    error = (layer.weight - conv.weight).norm() / conv.weight.norm()
    assert layer.relative_error == pytest.approx(error.item(), rel=1e-5)
    assert 0.01 < layer.relative_error < 1


def test_it_is_copied_pickled_exported_and_traced():
    layer, x = AtomConv2d(nn.Conv2d(4, 8, 3, padding=1, padding_mode="reflect"), 9, 2), torch.randn(1, 4, 6, 7)
    expected = layer(x)
    assert torch.equal(copy.deepcopy(layer)(x), expected)
    assert torch.equal(pickle.loads(pickle.dumps(layer))(x), expected)
    torch.testing.assert_close(torch.export.export(layer, (x,)).module()(x), expected)
    torch.testing.assert_close(torch.fx.symbolic_trace(layer)(x), expected)


def test_dtype_and_mode_stay():
    layer = AtomConv2d(nn.Conv2d(4, 8, 3).double().eval())
    assert not layer.training
    assert layer.relative_error < 1e-14
    assert {t.dtype for t in layer.state_dict().values()} == {torch.float64}


def test_what_is_no_plain_convolution_is_refused():
    with pytest.raises(TypeError, match="ConvTranspose2d, not a Conv2d"):
        AtomConv2d(nn.ConvTranspose2d(2, 2, 3))
    with pytest.raises(ValueError, match="atoms_per_atom needs to be at least 1; got 0"):
        AtomConv2d(nn.Conv2d(2, 2, 3), 9, 0)
    with pytest.raises(ValueError, match="num_atoms needs to be at least 1; got 0"):
        AtomConv2d(nn.Conv2d(2, 2, 3), 0)
    with pytest.raises(ValueError, match="meta device"):
        AtomConv2d(nn.Conv2d(2, 2, 3, device="meta"))
