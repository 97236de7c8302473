"""acda info: what this installation can do, for a bug report."""

import json

import torch

from acda.backends import native, triton
from acda.support.environment import describe


def info() -> None:
    """Print versions, threads, vector instructions and backends, as JSON."""
    facts = describe()
    facts["backends"] = {
        "reference": "yes, on every device",
        "native": native.MISSING or _vectors(),
        "triton": triton.state(),
    }
    facts["accelerators"] = (
        "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "none"
    )
    print(json.dumps(facts, indent=1, ensure_ascii=False))


def _vectors() -> str:
    return f"yes, on CPUs, {8 * torch.ops.acda.vector_bytes()}-bit vectors"
