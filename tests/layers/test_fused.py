"""Φ by a backend computes what calling its modules does, whatever was done to the modules."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

from acda import AtomGenerator
from acda.backends import BACKENDS, native, reference
from acda.layers.batch_norm import ForgivingBatchNorm2d
from acda.layers.fused import fused_step, predict
from tests.naive import BY_NAME
from tests.operators import Operators

MODES = ["train", "eval", "no_grad"]


def parts(stride: int = 1) -> tuple[nn.Conv2d, ForgivingBatchNorm2d, torch.Tensor]:
    conv, norm = nn.Conv2d(4, 6, 3, stride, bias=False), ForgivingBatchNorm2d(6)
    nn.init.uniform_(norm.weight)
    nn.init.normal_(norm.bias)
    nn.init.normal_(norm.running_mean)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return conv.double(), norm.double(), torch.randn(2, 4, 9, 8, dtype=torch.float64)


def called(x, conv, norm, padding):
    py, px = padding
    return norm(conv(F.pad(x, (px, px, py, py)))).tanh()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BY_NAME)
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("padding", [(1, 1), (0, 2), (-1, 3)])
def test_it_equals_calling_the_modules(mode, backend, stride, padding):
    """In values, gradients and running statistics."""
    conv, norm, x = parts(stride)
    twins = copy.deepcopy(conv), copy.deepcopy(norm)
    results = []
    for run, modules in ((lambda *a: fused_step(*a, BACKENDS[backend]), (conv, norm)), (called, twins)):
        for module in modules:
            module.train(mode == "train")
        with torch.set_grad_enabled(mode != "no_grad"):
            y = run(x, *modules, padding)
        wanted = [p for module in modules for p in module.parameters()]
        grads = torch.autograd.grad(y.square().sum(), wanted) if y.requires_grad else ()
        results.append([y.detach(), *grads, *modules[1].buffers()])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth)


@pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))
def test_in_the_kernel_it_is_one_operation_in_inference_and_two_in_training():
    conv, norm, x = parts()
    with Operators() as seen:
        fused_step(x, conv, norm, (1, 1), native)
    assert seen.ours == ["conv2d", "norm_tanh"]
    with torch.no_grad(), Operators() as seen:
        fused_step(x, conv, norm.eval(), (1, 1), native)
    assert seen.ours == ["conv2d_tanh"]


class Halved(nn.Module):
    def forward(self, weight):
        return weight / 2


def listen(conv, norm):
    norm.register_forward_hook(lambda module, inputs, y: y + 1)


CHANGES = {
    "pruned": lambda conv, norm: prune.l1_unstructured(conv, "weight", 0.5),
    "parametrized": lambda conv, norm: parametrize.register_parametrization(conv, "weight", Halved()),
    "weight norm": lambda conv, norm: parametrizations.weight_norm(conv),
    "parametrized scale": lambda conv, norm: parametrize.register_parametrization(norm, "weight", Halved()),
    "a hook that changes the result": listen,
    "a cumulative average": lambda conv, norm: setattr(norm, "momentum", None),
    "statistics left alone": lambda conv, norm: setattr(norm, "track_running_stats", False),
    "without a shift": lambda conv, norm: setattr(norm, "bias", None),
    "dilated": lambda conv, norm: setattr(conv, "dilation", (2, 2)),
    "another forward": lambda conv, norm: setattr(norm, "forward", lambda u: 3 * u),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BY_NAME)
@pytest.mark.parametrize("change", CHANGES)
def test_modules_that_were_changed_are_called(change, backend, mode):
    conv, norm, x = parts()
    CHANGES[change](conv, norm)
    for module in (conv, norm):
        module.train(mode == "train")
    with torch.set_grad_enabled(mode != "no_grad"):
        buffers = [t.clone() for t in norm.buffers()]
        expected, after = called(x, conv, norm, (1, 1)), [t.clone() for t in norm.buffers()]
        for buffer, value in zip(norm.buffers(), buffers, strict=True):
            buffer.copy_(value)
        torch.testing.assert_close(fused_step(x, conv, norm, (1, 1), BACKENDS[backend]), expected)
    for buffer, value in zip(norm.buffers(), after, strict=True):
        torch.testing.assert_close(buffer, value)


def test_what_a_hook_keeps_is_not_written_over():
    conv, norm, x = parts()
    kept = []
    norm.register_forward_hook(lambda module, inputs, y: kept.append((y, y.clone())))
    with torch.no_grad():
        fused_step(x, conv, norm, (1, 1), reference)
    assert torch.equal(*kept[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("backend", BY_NAME)
@pytest.mark.parametrize("options", [{}, {"padding_mode": "reflect"}, {"per_image": True}])
def test_all_of_it_equals_calling_it(options, backend, mode):
    """In values, gradients and running statistics."""
    phi, x = AtomGenerator(4, 7, 5, 2, 2, first_kernel=3, **options).double(), torch.randn(2, 4, 9, 8).double()
    for _ in range(3):
        phi(3 * torch.randn(2, 4, 9, 8).double() + 1)
    nn.init.uniform_(phi.predict_norm.weight)
    twin = copy.deepcopy(phi)
    results = []
    for run, network in ((lambda *a: predict(*a, BACKENDS[backend]), phi), (nn.Module.__call__, twin)):
        network.train(mode == "train")
        with torch.set_grad_enabled(mode != "no_grad"):
            y = run(network, x)
        grads = torch.autograd.grad(y.square().sum(), list(network.parameters())) if y.requires_grad else ()
        results.append([y.detach(), *grads, *network.buffers()])
    for ours, truth in zip(*results, strict=True):
        torch.testing.assert_close(ours, truth)
