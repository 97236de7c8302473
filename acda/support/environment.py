"""What a figure depends on: the commit, the machine, the versions. Every results file carries it."""

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy
import scipy
import torch

from acda.support.files import written_whole


def describe() -> dict[str, Any]:
    """The circumstances of a measurement, for a results file or a bug report.

    >>> sorted(describe())
    ['acda', 'commit', 'cores', 'machine', 'numpy', 'python', 'scipy', 'system', 'threads', 'torch', 'vectors']
    """
    from acda import __version__

    return {
        "acda": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "system": f"{platform.system()} {platform.machine()}",
        "machine": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
    }


def processor_slug(machine: str, vectors: str) -> str:
    """A name for files of results that belong to one kind of processor, of letters, digits and hyphens.

    machine: the model's name as the system reports it
    vectors: the vector instructions that ran

    >>> processor_slug("AMD EPYC", "AVX2")
    'amd-epyc-avx2'
    >>> processor_slug("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz", "avx512")
    'intel-xeon-platinum-8488c-avx512'
    """
    return "-".join(re.findall(r"[a-z0-9]+", f"{processor_words(machine)} {vectors}".lower()))


def processor_words(machine: str) -> str:
    """The model's name without trademarks and frequency.

    >>> processor_words("Intel(R) Xeon(R) Platinum 8488C CPU @ 2.40GHz")
    'Intel Xeon Platinum 8488C'
    """
    return " ".join(re.sub(r"\(R\)|\(TM\)|\bCPU\b|\bProcessor\b|@.*", " ", machine, flags=re.IGNORECASE).split())


def write_results(path: Path, rows: list[dict[str, Any]], **own: Any) -> dict[str, Any]:
    """A results file: the rows and their circumstances, which it returns.

    own: further circumstances, such as budget and seed; they replace those of this machine where they differ
    """
    facts = {**describe(), **own}
    with written_whole(path) as file:
        file.write_text(json.dumps({"rows": rows, "circumstances": facts}, indent=1, ensure_ascii=False) + "\n")
    return facts


def peak_megabytes() -> float:
    """The most resident memory that this process has had, in MB of 2^20 bytes."""
    try:
        # Not getrusage: on Linux its figure begins with what the parent process had when it started this one.
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 2**10
    except (OSError, StopIteration):
        import resource  # Windows does not have it

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak / (2**20 if sys.platform == "darwin" else 2**10)


def _commit() -> str:
    """The checkout's commit, with "+changes" where code differs from it; "" when this is not a checkout."""
    here = Path(__file__).parents[1]
    git = ["git", "-C", str(here)]
    try:
        top = subprocess.run([*git, "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=True)
        if Path(top.stdout.strip()) != here.parent:
            return ""
        head = subprocess.run([*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        code = [str(here), *(f":(top,glob){files}" for files in ("paper/*.py", "paper/*.cpp", "benchmarks/*.py"))]
        changed = subprocess.run([*git, "status", "--porcelain", "--", *code], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+changes" if changed.stdout else "")


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
        platform.processor(),
    )
