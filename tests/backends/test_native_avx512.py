"""The kernel for AVX-512 on a processor without it: the compiler splits each of its vectors into two."""

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import acda
from acda.backends import native

PROJECT = Path(acda.__file__).parent.parent
TESTS = ["test_winograd.py", *(f"test_native{of}.py" for of in ("", "_generator", "_groups", "_layer", "_training"))]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING)),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="AVX-512 belongs to x86"),
    pytest.mark.skipif(not (PROJECT / "setup.py").exists(), reason="acda is installed without its sources"),
]


def test_its_vectors_and_tiles_pass_the_tests_of_the_kernel(tmp_path):
    ignored = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.so", "*.egg-info", "weights")
    project = shutil.copytree(PROJECT, tmp_path / "project", ignore=ignored)
    environment = {
        **{name: value for name, value in os.environ.items() if name != "ACDA_VECTORS"},
        "ACDA_CXXFLAGS": "-O2 -DACDA_EMULATE_AVX512",
        "PYTHONPATH": str(project),
    }

    def run(*arguments: str) -> str:
        command = [sys.executable, *arguments]
        ran = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-5000:]
        return ran.stdout

    run("setup.py", "build_ext", "--inplace")
    asked = "import torch, acda; print(acda.__file__, torch.ops.acda.vector_bytes())"
    assert run("-c", asked).split() == [str(project / "acda" / "__init__.py"), "64"]
    tests = [f"tests/backends/{name}" for name in TESTS]
    # Without those that ask for other vectors or change the sources, in processes of their own.
    chosen = "not without_the_processors_vectors and not sources"
    run("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", "not slow", "-k", chosen, *tests)
