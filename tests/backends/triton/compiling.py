"""Compile a launch for a GPU that is not present, and read the assembler's report."""

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from acda.backends.triton.kernels import CHANGING
from acda.backends.triton.launch import Launch, Launcher, Layout, Lines
from acda.backends.triton.tiles import tiles_for
from acda.window import Window

TYPES = {torch.float32: "*fp32", torch.float16: "*fp16", torch.bfloat16: "*bf16"}
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


class Usage(NamedTuple):
    registers: int
    spilled_bytes: int
    shared_bytes: int


def launches(
    architecture: int | str,
    precision: str,
    dtype: torch.dtype,
    *,
    channels: int = 256,
    groups: int = 1,
    side: int = 7,
    atoms: int = 6,
    stride: int = 1,
) -> dict[str, Launch]:
    """The launches that the driver would make for a layer on images of 100×100, on tensors without storage."""
    window = Window.of(side, stride, side // 2)
    P, Q = window.output_size(100, 100)
    tiles = tiles_for(architecture, precision)
    images = (8, 100, 100, channels)
    launcher = Launcher(window, images, (P, Q), atoms, tiles, "ieee" if precision == "half" else precision)
    lines = Lines(160, 176)
    n = lines.number * Q
    x, D, z = (torch.empty(s, dtype=dtype, device="meta") for s in (images, (n, atoms, side**2), (n, atoms, channels)))
    layout = Layout.by_group(n, atoms, channels // groups)
    return {
        "z": launcher.z(x, D, z, layout, lines),
        "dD": launcher.dD(x, z, D, layout, lines),
        "dx": launcher.dx(D, z, x.float(), layout, lines),
    }


def compiled(launch: Launch, target: GPUTarget) -> Any:
    return triton.compile(_source(launch), target=target, options=launch.options)


def _source(launch: Launch) -> ASTSource:
    """Specialised as Triton does at a call: 1 is a constant, and pointers and sizes are marked if 16 divides them."""
    signature, constants, attributes = {}, {}, {}
    for position, parameter in enumerate(launch.kernel.params):
        name, value = parameter.name, launch.arguments[parameter.name]
        if parameter.is_constexpr or (name not in CHANGING and value is not None and _is_one(value)):
            signature[name], constants[name] = "constexpr", value
            continue
        signature[name] = TYPES[value.dtype] if isinstance(value, torch.Tensor) else "i32"
        if isinstance(value, torch.Tensor) or (name not in CHANGING and value % 16 == 0):
            attributes[position,] = [["tt.divisibility", 16]]
    return ASTSource(launch.kernel, signature, constants, attributes)


def _is_one(value: Any) -> bool:
    return isinstance(value, int) and value == 1


def usage(kernel: Any, folder: Path) -> Usage:
    """The resources of a multiprocessor that the kernel uses."""
    if "amdgcn" in kernel.asm:
        registers, spills = (
            int(re.search(rf"\.{name}:\s+(\d+)", kernel.asm["amdgcn"]).group(1))
            for name in ("vgpr_count", "vgpr_spill_count")
        )
        return Usage(registers, 4 * spills, kernel.metadata.shared)
    log = _assembled(kernel.asm["ptx"], folder)
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill (?:stores|loads)", log)))
    return Usage(int(re.search(r"Used (\d+) registers", log).group(1)), spilled, kernel.metadata.shared)


def _assembled(ptx: str, folder: Path) -> str:
    from triton.backends.nvidia.compiler import get_ptxas

    architecture = re.search(r"\.target (sm_\w+)", ptx).group(1)
    source = folder / "kernel.ptx"
    source.write_text(ptx)
    tool = get_ptxas(int(re.sub(r"\D", "", architecture))).path
    command = [tool, "-v", f"--gpu-name={architecture}", str(source), "-o", str(folder / "kernel.o")]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    return result.stderr + result.stdout


def uses_tensor_cores(kernel: Any) -> bool:
    """Whether the assembly has one of the instructions that multiply matrices."""
    text = kernel.asm.get("ptx") or kernel.asm["amdgcn"]
    return any(name in text for name in ("mma.sync", "wgmma.mma_async", "tcgen05.mma", "v_mfma"))
