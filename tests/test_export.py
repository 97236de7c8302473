"""The layer as a graph: compiled, exported and run elsewhere, at sizes that it was not recorded with."""

import subprocess
import sys
import warnings

import pytest
import torch
from torch import nn
from torch.export import Dim

import acda
from acda import AdaptiveConv2d
from acda.backends import native

SHAPES = ({0: Dim("batch"), 2: Dim("height", min=16), 3: Dim("width", min=16)},)


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(
        AdaptiveConv2d(2, 8, 3, padding=1, num_atoms=2),
        AdaptiveConv2d(8, 4, 3, stride=2, padding=1, padding_mode="reflect", groups=2, bases=None, num_atoms=2),
    ).eval()


@pytest.mark.slow
def test_compile_takes_the_whole_graph_at_dynamic_sizes(net):
    compiled = torch.compile(net, fullgraph=True, dynamic=True, backend="aot_eager")
    for shape in ((2, 2, 20, 24), (1, 2, 31, 18)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), net(x))
    x = torch.randn(2, 2, 20, 24, requires_grad=True)
    (compiled_grad,) = torch.autograd.grad(compiled(x).sum(), x)
    (grad,) = torch.autograd.grad(net(x).sum(), x)
    torch.testing.assert_close(compiled_grad, grad)


@pytest.mark.slow
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


@pytest.mark.parametrize("bases", ["fourier_bessel", None])
def test_tracing_passes_its_own_check_with_gradients_on(bases):
    layer, x = AdaptiveConv2d(3, 4, 3, stride=2, padding=1, bases=bases).eval(), torch.randn(1, 3, 12, 14)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(layer, x)
    torch.testing.assert_close(traced(x), layer(x), rtol=1e-4, atol=1e-5)
    traced(x).square().sum().backward()
    found = {name: p.grad.clone() for name, p in layer.named_parameters()}
    layer.zero_grad()
    layer(x).square().sum().backward()
    for name, parameter in layer.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-3, atol=1e-4)


def test_export_with_bounded_sizes_passes_where_conv2d_does():
    """After another strided layer the size of the map is a formula, about which torch.export can prove little."""
    shapes = ({2: Dim("height", min=32, max=256), 3: Dim("width", min=32, max=256)},)
    for layer in (nn.Conv2d(4, 4, 3, 2, padding=1), AdaptiveConv2d(4, 4, 3, 2, padding=1, bases=None, num_atoms=2)):
        net = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.MaxPool2d(3, 2, 1), layer).eval()
        program = torch.export.export(net, (torch.randn(1, 3, 64, 64),), dynamic_shapes=shapes).module()
        for size in ((32, 32), (33, 47), (70, 256)):
            x = torch.randn(1, 3, *size)
            torch.testing.assert_close(program(x), net(x), rtol=1e-4, atol=1e-5)


def operators(program: torch.export.ExportedProgram) -> set[str]:
    return {str(node.target).split(".")[0] for node in program.graph.nodes if node.op == "call_function"}


def test_an_exported_program_consists_of_standard_operations(net):
    assert "acda" not in operators(torch.export.export(net, (torch.randn(2, 2, 20, 24),)))


LOAD = """
import sys, torch, acda
x, expected = torch.load(sys.argv[2])
found = torch.export.load(sys.argv[1]).module()(x)
torch.testing.assert_close(found, expected)
"""


@pytest.mark.slow
@pytest.mark.skipif(native.MISSING is not None, reason="no kernel here")
@pytest.mark.parametrize("with_gradients", [True, False])
def test_an_exported_program_keeps_the_kernel_on_request(net, tmp_path, with_gradients):
    for layer in net:
        layer.backend = "native"
    with torch.set_grad_enabled(with_gradients):
        program = torch.export.export(net, (torch.randn(2, 2, 20, 24),), dynamic_shapes=SHAPES)
    assert "acda" in operators(program)
    torch.export.save(program, tmp_path / "net.pt2")
    x = torch.randn(3, 2, 33, 26)
    torch.save((x, net(x).detach()), tmp_path / "example.pt")
    files = [str(tmp_path / name) for name in ("net.pt2", "example.pt")]
    loaded = subprocess.run([sys.executable, "-c", LOAD, *files], capture_output=True, text=True, check=False)
    assert loaded.returncode == 0, loaded.stderr


def test_tracers_that_take_the_layers_as_leaves_see_the_rest(net):
    extraction = pytest.importorskip("torchvision.models.feature_extraction")
    model, x = nn.Sequential(net, nn.ReLU()).eval(), torch.randn(1, 2, 20, 24)
    traced = extraction.create_feature_extractor(
        model, ["1"], tracer_kwargs={"leaf_modules": list(acda.fx_leaf_modules)}, suppress_diff_warning=True
    )
    torch.testing.assert_close(traced(x)["1"], model(x))


@pytest.mark.parametrize("kind", [getattr(acda.layers, name) for name in acda.layers.__all__ if name.endswith("2d")])
def test_every_layer_is_a_leaf(kind):
    assert issubclass(kind, acda.fx_leaf_modules)
