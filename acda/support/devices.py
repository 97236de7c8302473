"""Where to compute: "auto", "cpu", "cuda" or "mps", and how much memory is free there."""

from collections.abc import Callable
from pathlib import Path
from typing import Literal, get_args

import torch

Device = Literal["auto", "cpu", "cuda", "mps"]


def device_named(name: str) -> torch.device:
    """The device of this name, if torch can use it; for "auto" the first of cuda, mps and cpu that it can.

    >>> device_named("cpu")
    device(type='cpu')
    """
    if name not in get_args(Device):
        raise ValueError(f"--device needs to be one of {', '.join(get_args(Device))}; got {name!r}.")
    there: dict[str, Callable[[], bool]] = {
        "cuda": torch.cuda.is_available,
        "mps": torch.backends.mps.is_available,
        "cpu": lambda: True,
    }
    if name == "auto":
        name = next(each for each, is_there in there.items() if is_there())
    elif not there[name]():
        raise ValueError(f"--device {name} cannot be used: {_missing(name)}. Use --device cpu, or leave it out.")
    return torch.device(name)


def _missing(name: str) -> str:
    if name == "mps":
        return "torch finds no Apple GPU" if torch.backends.mps.is_built() else "this torch is built without MPS"
    built = torch.version.cuda or torch.version.hip
    return "torch finds no NVIDIA or AMD GPU" if built else "this torch is built without CUDA and ROCm"


def free_bytes(device: torch.device) -> int | None:
    """Memory that is free on the device, including what torch holds there unused; None if that is not known."""
    if device.type == "cuda":
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    if device.type == "mps":
        return torch.mps.recommended_max_memory() - torch.mps.current_allocated_memory()
    return _available_on_linux() if device.type == "cpu" else None


def _available_on_linux() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 2**10 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
