"""Files for other programs: they run at any size, and what cannot be exported is refused with the reason."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import acda
from acda import create_model, export
from acda.cli import main
from acda.models import Restorer
from acda.models.restorer import Trunk
from acda.photos.on_tensors import OnTensors, enlarged
from acda.photos.ready import ready
from acda.photos.weight_folders import CHECKOUT
from acda.photos.weights import IMAGENET_STATISTICS, load, write_weights

STATISTICS = torch.tensor([[100.0, 110, 120], [50, 60, 70]])


@pytest.fixture
def weights(tmp_path):
    """A small denoiser with a normalisation that is not the identity."""
    model = create_model("dncnn", depth=3, width=8)
    torch.nn.init.normal_(model.layers[-1].weight, std=0.1)
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()} | {"statistics": STATISTICS}
    write_weights(tmp_path / "w.safetensors", tensors, {"model": "dncnn", "options": '{"depth": 3, "width": 8}'})
    return tmp_path / "w.safetensors"


def session_of(path):
    session = onnxruntime.InferenceSession(path)
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, result.name) == ("image", "tensor(float)", "result")
    return given, lambda x: torch.from_numpy(session.run(None, {"image": x.numpy()})[0])


def test_onnx_is_the_photo_tool_on_tensors(weights, tmp_path, capsys):
    assert main(["export", str(weights), "-o", str(tmp_path / "a.onnx"), "--opset", "20"]) == 0
    assert "image (B, 3, H, W) from 0 to 1 → photo (B, 3, H, W) from 0 to 1" in capsys.readouterr().out
    given, run = session_of(tmp_path / "a.onnx")
    assert given.shape == ["batch", 3, "height", "width"], "a number would be a fixed size"
    x = torch.rand(2, 3, 34, 77)
    torch.testing.assert_close(run(x), load(weights)(x), rtol=1e-4, atol=1e-5)
    assert onnx.load(tmp_path / "a.onnx").opset_import[0].version == 20


def test_a_program_of_torch_is_the_same(weights, tmp_path):
    written = export.export(weights, tmp_path / "a.pt2")
    assert written.error <= 1e-6
    x = torch.rand(2, 3, 34, 77)
    torch.testing.assert_close(torch.export.load(tmp_path / "a.pt2").module()(x), load(weights)(x))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["onnx", "pt2"])
def test_a_file_tells_nothing_of_this_machine(suffix, weights, tmp_path):
    export.export(weights, tmp_path / f"a.{suffix}")
    assert str(Path(export.__file__).parent).encode() not in (tmp_path / f"a.{suffix}").read_bytes()


@pytest.mark.slow
def test_an_adaptive_layer_is_fewer_nodes_than_its_window_has_taps(tmp_path):
    """With several nodes for each of 49 taps, a network would take minutes to write."""
    counts = []
    for blocks in (1, 2):
        model = create_model("photo_unet", width=4, outer=1, inner=blocks, hidden=4)
        program = export.record(OnTensors(ready(model, IMAGENET_STATISTICS, {"model": "photo_unet"})).eval())
        export.write_onnx(program, tmp_path / f"{blocks}.onnx")
        counts.append(len(onnx.load(tmp_path / f"{blocks}.onnx").graph.node))
    assert counts[1] - counts[0] < 2 * 49, "one block more: the layer, ReLU, a convolution and a sum"


@pytest.mark.slow
def test_enlarging_is_part_of_the_file(weights, tmp_path):
    export.export(weights, tmp_path / "a.onnx", scale=2)
    _, run = session_of(tmp_path / "a.onnx")
    x = torch.rand(1, 3, 30, 44)
    torch.testing.assert_close(run(x), load(weights)(x, scale=2), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_enlarging_is_pillows_bicubic(scale):
    x = torch.rand(1, 2, 17, 9)
    found = enlarged(x, scale)
    for channel in (0, 1):
        image = Image.fromarray(x[0, channel].numpy()).resize((9 * scale, 17 * scale), Image.Resampling.BICUBIC)
        torch.testing.assert_close(found[0, channel], torch.from_numpy(np.array(image)), rtol=1e-4, atol=1e-5)


def small(name):
    """Our networks made small: at their real sizes they take minutes to record."""
    if name != "restorer":
        return create_model(name).eval()
    model = Restorer(kernel_size=3)
    model.trunk = Trunk(3, 3, kernel_size=3, width=16, inner=8, depth=1)
    torch.nn.init.normal_(model.trunk.up[-2].weight, std=0.1)
    return model.eval()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["restorer", "crowd_counter_s_conv", "lenet", "lenet_acda", "vdnet"])
def test_every_kind_of_network_records_and_agrees(name, tmp_path):
    model = OnTensors(ready(small(name), IMAGENET_STATISTICS, {}))
    program = export.record(model)
    assert not any("acda" in str(node.target) for node in program.graph.nodes)
    assert export.compare(model, program.module()) < 1e-4
    if name in ("restorer", "lenet_acda"):
        assert export.compare(model, export.write_onnx(program, tmp_path / "a.onnx")) < 1e-4


@pytest.mark.slow
@pytest.mark.skipif(not (CHECKOUT / "weights" / "research").exists(), reason="acda is installed without weights")
def test_a_packaged_network_is_exported_by_name(tmp_path, capsys):
    assert main(["export", "lenet_acda_cifar10", "-o", str(tmp_path / "a.onnx")]) == 0
    assert "image (B, 3, 32, 32) from 0 to 1 → probabilities (B, classes)" in capsys.readouterr().out
    _, run = session_of(tmp_path / "a.onnx")
    x = torch.rand(3, 3, 32, 32)
    torch.testing.assert_close(run(x), acda.load("lenet_acda_cifar10")(x), rtol=1e-3, atol=1e-5)


def test_a_file_that_disagrees_is_not_kept(weights, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(export, "write_onnx", lambda program, file, opset: lambda x: program.module()(x) + 0.01)
    assert main(["export", str(weights), "-o", str(tmp_path / "a.onnx")]) == 1
    assert "differ from torch's by 0.01 of the largest: not written" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.onnx")) + list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{weights}", "-o", "a.pth"], "a.pth needs the suffix .onnx, or .pt2 for torch.export"),
        (["{weights}", "-o", "a.onnx", "--opset", "9"], "opset needs to be from 18 to "),
        (["{weights}", "-o", "a.onnx", "--opset", "999"], "opset needs to be from 18 to "),
        (["{weights}", "-o", "a.pt2", "--opset", "18"], "--opset is for ONNX"),
        (["{weights}", "-o", "a.onnx", "--scale", "9"], "--scale needs to be from 1 to 8"),
        (["restorer", "-o", "a.onnx"], "restorer is a network without weights"),
        (["nobody", "-o", "a.onnx"], "there is no weights file 'nobody'"),
        (["{bare}", "-o", "a.onnx"], "needs mean and standard deviation of its training images"),
        (["{other}", "-o", "a.onnx"], "does not name its network"),
        (["{text}", "-o", "a.onnx"], "cannot be read as safetensors"),
    ],
)
def test_what_cannot_be_exported_is_said(arguments, message, weights, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_file({"model.weight": torch.ones(3)}, tmp_path / "bare.safetensors")
    save_file({"statistics": torch.ones(2, 3)}, tmp_path / "other.safetensors")
    (tmp_path / "text.safetensors").write_text("not weights")
    files = {name: tmp_path / f"{name}.safetensors" for name in ("bare", "other", "text")}
    assert main(["export", *(part.format(weights=weights, **files) for part in arguments)]) == 1
    assert message in capsys.readouterr().err
    assert not [p for p in tmp_path.iterdir() if p.name.startswith("a.")]
