"""The layer as a graph: compiled, exported and run elsewhere, at sizes that it was not recorded with."""

import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim

from acda import AdaptiveConv2d

SHAPES = ({0: Dim("batch"), 2: Dim("height", min=16), 3: Dim("width", min=16)},)


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(
        AdaptiveConv2d(2, 8, 3, padding=1, num_atoms=2),
        AdaptiveConv2d(8, 4, 3, stride=2, padding=1, padding_mode="reflect", groups=2, bases=None, num_atoms=2),
    ).eval()


def test_compile_takes_the_whole_graph_at_dynamic_sizes(net):
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 2, 20, 24), (1, 2, 31, 18)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), net(x))
    x = torch.randn(2, 2, 20, 24, requires_grad=True)
    (compiled_grad,) = torch.autograd.grad(compiled(x).sum(), x)
    (grad,) = torch.autograd.grad(net(x).sum(), x)
    torch.testing.assert_close(compiled_grad, grad)


def test_export_to_onnx_runs_at_other_sizes(net, tmp_path):
    ort = pytest.importorskip("onnxruntime")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            net, (torch.randn(2, 2, 20, 24),), dynamo=True, dynamic_shapes=SHAPES, verbose=False
        )
    assert program is not None
    program.save(tmp_path / "net.onnx")
    session = ort.InferenceSession(tmp_path / "net.onnx")
    x = torch.randn(3, 2, 33, 26)
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.as_tensor(y), net(x).detach(), rtol=1e-4, atol=1e-5)


def test_tracing_gives_standard_operations(tmp_path):
    layer = AdaptiveConv2d(3, 4, 5, padding=2).eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it is old, and says so
        traced = torch.jit.trace(layer, torch.randn(1, 3, 12, 14))
        torch.jit.save(traced, tmp_path / "layer.pt")
        x = torch.randn(2, 3, 9, 20)
        torch.testing.assert_close(torch.jit.load(tmp_path / "layer.pt")(x), layer(x), rtol=1e-4, atol=1e-5)
