"""The scripts of paper/, as modules."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

PAPER = Path(__file__).parents[2] / "paper"
# Some of them import another.
sys.path.append(str(PAPER))


def script(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, PAPER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
