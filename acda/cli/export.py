"""acda export: a trained network as a file for other programs."""

from pathlib import Path
from typing import Annotated

from acda.cli.arguments import arg
from acda.export import export as write
from acda.support.lines import print_line


def export(
    weights: Annotated[str, arg(metavar="NAME|FILE|DIR")],
    /,
    out: Annotated[Path, arg(metavar="FILE", aliases=("-o",))],
    opset: Annotated[int | None, arg(metavar="N", help_behavior_hint="(optional)")] = None,
    scale: Annotated[int | None, arg(metavar="N", help_behavior_hint="(optional)")] = None,
) -> None:
    """Write a trained network as ONNX or as a program of torch.export, and check the file against torch at two sizes.

    The file takes one image (B, 3, H, W) from 0 to 1, normalised inside, of any size from 32×32. It needs the extra
    `onnx`.

    Args:
        weights: a name, a file of weights, or the folder of a run.
        out: file to write: .onnx, or .pt2 for torch.export.
        opset: opset of ONNX, at least 18; 18 unless given.
        scale: enlarge photos by this whole number first; the scale of the weights unless given, or 1.
    """
    written = write(weights, out, opset=opset, scale=scale)
    print_line(
        f"{written.path}: image {written.input} → {written.output}; "
        f"differs from torch by at most {written.error:.1g} of the largest value"
    )
