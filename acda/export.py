"""Trained networks as files for other programs: ONNX and torch.export, checked against torch before they are kept."""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from acda.models import MODELS, LeNet
from acda.models.lenet import SIZE
from acda.photos.on_tensors import OnTensors, own_scale
from acda.photos.weights import load
from acda.support.extras import need
from acda.support.files import check_room, written_whole

# The smallest side of an image, and torch's oldest opset, which onnxruntime has had since 2023.
SMALLEST = 32
OPSET = 18
# The axes of the input that may have any size.
AXES = {0: "batch", 2: "height", 3: "width"}
# Sizes (B, H, W) at which a file is compared with torch: none of them is the one that it was recorded at.
RECORDED = (2, 40, 52)
CHECKED = ((1, 48, 32), (3, 37, 61))
# Of the largest value. A quarter of a step of uint8; sums in another order differ by far less.
TOLERANCE = 1e-3


@dataclass(frozen=True)
class Exported:
    """A file that was written: how far from torch, relative to the largest value; what it takes and gives."""

    path: Path
    error: float
    input: str
    output: str


def export(name: str | Path, to: Path, *, opset: int | None = None, scale: int | None = None) -> Exported:
    """Write a trained network as ONNX (.onnx) or as a program of torch.export (.pt2), by the suffix of the file.

    name: as in acda.load    scale: enlarge by this whole number first; what the weights say unless given
    opset: of ONNX, at least 18

    The file takes one image (B, 3, H, W) of floating point from 0 to 1, at least 32×32, with normalisation inside, and
    gives one result. It is run at two sizes beside torch, and is not written where they disagree.
    """
    write = _writer(to, opset)
    check_room(to)
    if str(name) in MODELS and not Path(name).exists():
        raise ValueError(f"{name} is a network without weights. Give trained ones: a name, a run's folder or its file.")
    trained = load(name)
    model = OnTensors(trained, own_scale(trained) if scale is None else _checked_scale(trained, scale)).eval()
    program = record(model)
    with written_whole(to) as file:
        run = write(program, file)
        error = compare(model, run)
    H, W = ("32", "32") if _is_fixed(model) else ("H", "W")
    return Exported(to, error, f"(B, 3, {H}, {W}) from 0 to 1", _said_output(model))


def record(model: OnTensors) -> ExportedProgram:
    """The graph of a network for any batch and, where it takes any, any height and width."""
    sizes: dict[int, Any] = {0: Dim(AXES[0])}
    if not _is_fixed(model):
        sizes |= {axis: Dim(AXES[axis], min=SMALLEST) for axis in (2, 3)}
    with torch.no_grad(), _silence():
        program = torch.export.export(model, (_example(model, RECORDED),), dynamic_shapes=(sizes,))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)  # which names files of this machine
    return program


def compare(model: OnTensors, run: Callable[[Tensor], Tensor]) -> float:
    """The largest difference from torch at two sizes, relative to the largest value; too large a one is refused."""
    errors = []
    for size in CHECKED:
        x = _example(model, size)
        with torch.no_grad():
            expected = model(x)
            found = run(x)
        if found.shape != expected.shape:
            raise ValueError(f"at {tuple(x.shape)} the file gives {tuple(found.shape)}, torch {tuple(expected.shape)}.")
        errors.append(float((found - expected).abs().max() / expected.abs().max()))
    # Also true where one of them is NaN.
    if not max(errors) <= TOLERANCE:
        raise ValueError(f"the file's results differ from torch's by {max(errors):.1g} of the largest: not written.")
    return max(errors)


def _writer(to: Path, opset: int | None) -> Callable[[ExportedProgram, Path], Callable[[Tensor], Tensor]]:
    """What writes a file of this suffix, and returns how to run it."""
    if to.suffix == ".pt2":
        if opset is not None:
            raise ValueError(f"--opset is for ONNX; {to} would be a torch.export program.")
        return write_program
    if to.suffix != ".onnx":
        raise ValueError(f"{to} needs the suffix .onnx, or .pt2 for torch.export.")
    newest = need("onnx", "onnx").defs.onnx_opset_version()
    need("onnxruntime", "onnx"), need("onnxscript", "onnx")
    if opset is not None and not OPSET <= opset <= newest:
        raise ValueError(f"opset needs to be from {OPSET} to {newest}; got {opset}.")
    return lambda program, file: write_onnx(program, file, opset or OPSET)


def write_program(program: ExportedProgram, file: Path) -> Callable[[Tensor], Tensor]:
    """As torch.export.save does."""
    with _silence():
        torch.export.save(program, file)
        loaded: Callable[[Tensor], Tensor] = torch.export.load(file).module()
    return loaded


def write_onnx(program: ExportedProgram, file: Path, opset: int = OPSET) -> Callable[[Tensor], Tensor]:
    """As ONNX, with one input `image` and one output `result`."""
    with _silence():
        try:
            written = torch.onnx.export(
                program,
                (),
                dynamo=True,
                opset_version=opset,
                input_names=["image"],
                output_names=["result"],
                dynamic_shapes=(AXES,),  # names alone: the program has fixed what may vary
                verbose=False,
                optimize=False,  # it takes minutes without bases; onnxruntime optimises as it loads a file
            )
            assert written is not None
            _forget_code(written.model)
            written.save(file)
            session = need("onnxruntime", "onnx").InferenceSession(file, providers=["CPUExecutionProvider"])
        except Exception as error:  # the exporter, the converter of opsets and the runtime each raise their own errors
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
            raise ValueError(f"it cannot be written as ONNX of opset {opset} ({reason}).") from error
    found = next(each.version for each in written.model_proto.opset_import if each.domain == "")
    if found != opset:
        raise ValueError(f"torch writes opset {found} of this network, and cannot convert it to {opset}.")

    def run(x: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {"image": x.numpy()})[0])

    return run


def _forget_code(model: Any) -> None:
    """Remove what torch notes of the Python code at each node, which no other program reads."""
    for node in model.graph.all_nodes():
        node.metadata_props.clear()


def _example(model: nn.Module, size: tuple[int, int, int]) -> Tensor:
    B, H, W = (size[0], SIZE, SIZE) if _is_fixed(model) else size
    return torch.rand(B, 3, H, W, generator=torch.Generator().manual_seed(B))


def _is_fixed(model: nn.Module) -> bool:
    """Whether the network takes images of one size only."""
    return isinstance(model.model, LeNet)


def _checked_scale(trained: Any, scale: int) -> int:
    if scale < 1 or scale > 8 or (scale > 1 and getattr(trained.model, "cell", None) != 1):
        raise ValueError(f"--scale needs to be from 1 to 8, for a network that restores photos; got {scale}.")
    return scale


def _said_output(model: OnTensors) -> str:
    if _is_fixed(model) or not hasattr(model.model, "cell"):
        return "probabilities (B, classes)"
    cell = model.model.cell
    if cell != 1:
        return f"density map (B, 1, H/{cell}, W/{cell})"
    times = f"{model.scale}·" if model.scale > 1 else ""
    return f"photo (B, 3, {times}H, {times}W) from 0 to 1"


@contextmanager
def _silence() -> Iterator[None]:
    """Silence the messages of the exporters; errors are still raised."""
    before = logging.root.manager.disable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(before)
