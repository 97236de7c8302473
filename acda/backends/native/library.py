"""The compiled kernel: load it, and tell what is wrong where that fails. It lies beside its C++ in acda/backends."""

from pathlib import Path

import torch

from acda.backends.native.registering import register
from acda.backends.sources import digest_of

FOLDER = Path(__file__).parent.parent
MEND = "With torch and a C++ compiler, in a checkout: pip install --no-build-isolation --force-reinstall --no-deps ."

# Questions and switches.
register("vector_bytes", "() -> int")
register("poison_scratch", "(bool on) -> ()")
register("use_winograd", "(bool on) -> bool")
register("sources", "() -> int")


def load() -> str | None:
    """Load the kernel behind the operators that are registered; returns what is wrong when there is none."""
    libraries = sorted(FOLDER.glob("_native*.so"))
    if not libraries:
        return f"it was not compiled when acda was installed. {MEND}"
    try:
        torch.ops.load_library(libraries[0])
    except OSError as error:
        return f"it does not load ({error}). {MEND}"
    if (sources := FOLDER / "csrc").is_dir() and not is_made_from(sources):
        return "it was compiled from other sources than those beside it. In the checkout: make install"
    return None


def is_made_from(sources: Path) -> bool:
    """Whether the kernel that was loaded is compiled from these files: setup.py tells it their digest."""
    try:
        return bool(torch.ops.acda.sources() == digest_of(sources))
    except NotImplementedError:
        return False  # it is older than the question
