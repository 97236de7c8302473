"""The structure of the package: imports go one way, the core is light, nothing needs internet access."""

import ast
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acda
from acda.backends import native

PACKAGE = Path(acda.__file__).parent
# A room may import from those after it. Rooms on one line do not know each other.
ORDER = [
    ["__main__"],
    ["cli"],
    ["__init__"],
    ["training", "insight", "export", "hub", "spandrel", "timm", "tune"],
    ["photos"],
    ["convert", "bench", "cost"],
    ["models", "swapping"],
    ["layers", "compat"],
    ["functional"],
    ["checks"],
    ["backends", "decompose"],
    ["bases", "window"],
    ["support"],
]
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports when it is loaded. Imports inside functions do not count."""
    names = []
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            names += [node.module] if node.module != "acda" else [f"acda.{a.name}" for a in node.names]
        elif isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
    return {name.split(".")[1] for name in names if name.startswith("acda.")}


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_go_one_way(path):
    own = room_of(path)
    for other in imported_rooms(path) - {own}:
        assert LEVEL[other] > LEVEL[own], f"{path.name} in {own} may not import {other}"


@pytest.fixture(scope="module")
def bare():
    """A process that imports acda, and then asks for a verb without the extra that it needs."""
    code = """
import sys, torch, numpy, scipy.special
before = set(sys.modules)
import acda
new = {name.split(".")[0] for name in set(sys.modules) - before}
print(sorted(new - set(sys.stdlib_module_names) - {"acda", "torch", "numpy", "scipy", "triton"}))
print(sorted(name for name in sys.modules if name.startswith("acda.backends.triton")))
sys.modules["tyro"] = None
from acda.cli import main
sys.exit(main(["demo"]))
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_the_core_needs_only_torch_numpy_and_scipy(bare):
    """And what torch itself imports: torch.utils.flop_counter looks for triton."""
    assert bare.stdout.splitlines()[0] == "[]", bare.stdout + bare.stderr


def test_the_core_does_not_import_the_gpu_kernels(bare):
    assert bare.stdout.splitlines()[1] == "['acda.backends.triton', 'acda.backends.triton.operators']"


def test_a_missing_extra_is_named(bare):
    assert bare.returncode == 1
    assert "pip install 'acda[cli]'" in bare.stderr
    assert "Traceback" not in bare.stderr


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_where_there_is_a_compiler_there_is_a_kernel():
    """Otherwise every test of the kernel would be skipped, and nobody would notice."""
    assert native.MISSING is None


def test_versions_agree():
    project = (PACKAGE.parent / "pyproject.toml").read_text()
    assert f'version = "{acda.__version__}"' in project
