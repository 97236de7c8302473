"""Load the compiled kernel, or say why that fails. The file is in acda/backends, beside its C++."""

from pathlib import Path

import torch

from acda.backends.native.registering import register
from acda.backends.sources import digest_of

FOLDER = Path(__file__).parent.parent
MEND = "With torch and a C++ compiler, in a checkout: pip install --no-build-isolation --force-reinstall --no-deps ."

# Queries and switches.
register("vector_bytes", "() -> int")
register("poison_scratch", "(bool on) -> ()")
register("use_winograd", "(bool on) -> bool")
register("sources", "() -> int")


def load() -> str | None:
    """Load the kernel of the registered operators. Returns the reason where that fails, or None."""
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
    """Whether the loaded kernel was compiled from these files: setup.py compiles their digest into it."""
    try:
        return bool(torch.ops.acda.sources() == digest_of(sources))
    except NotImplementedError:
        return False  # it was compiled before this query existed
