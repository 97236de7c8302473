"""The content of a build, and the tags in its name. Each test builds in a copy of the project."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import acda

PROJECT = Path(acda.__file__).parent.parent
IGNORED = shutil.ignore_patterns(".*", "build", "dist", "__pycache__", "*.so", "*.egg-info")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (PROJECT / "setup.py").exists(), reason="acda is installed without its sources"),
]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return Path(shutil.copytree(PROJECT, tmp_path / "project", ignore=IGNORED))


def build(what: str, project: Path, **environment: str) -> tuple[Path, str]:
    """The file that setuptools builds, and its output."""
    code = f"from setuptools import build_meta; build_meta.build_{what}('out')"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    (built,) = (project / "out").iterdir()
    return built, ran.stderr


def contents(wheel: Path) -> tuple[set[str], str]:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (described,) = (name for name in names if name.endswith(".dist-info/WHEEL"))
        return names, archive.read(described).decode()


def metadata(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (described,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return archive.read(described).decode()


def test_a_wheel_is_free_to_use_and_has_what_it_needs(project):
    wheel, _ = build("wheel", project, CC="false", CXX="false")
    names, _ = contents(wheel)
    modules = {str(path.relative_to(project)) for path in (project / "acda").rglob("*.py")}
    assert {*modules, "acda/py.typed", "acda/insight/page.html"} <= names
    weights = {name for name in names if name.endswith((".safetensors", ".md", "NOTICE"))}
    free = {str(path.relative_to(project)) for path in (project / "acda/photos/pretrained").iterdir()}
    assert weights == free, "of weights and their cards, those that are free to use"
    assert not [name for name in names if name.split("/")[0] not in ("acda", f"acda-{acda.__version__}.dist-info")]
    assert f"acda-{acda.__version__}.dist-info/licenses/LICENSE" in names
    described = metadata(wheel).splitlines()
    assert "License-Expression: Apache-2.0" in described
    assert "License-File: LICENSE" in described
    assert "Project-URL: Paper, https://arxiv.org/abs/2108.07895" in described
    assert not [line for line in described if line.startswith("Classifier: License")], "the expression says it"


def test_a_wheel_without_the_kernel_is_pure_and_says_so(project):
    wheel, said = build("wheel", project, CC="false", CXX="false")
    assert wheel.name == f"acda-{acda.__version__}-py3-none-any.whl"
    names, described = contents(wheel)
    assert not any(name.endswith(".so") for name in names)
    assert "acda/backends/native/__init__.py" in names
    assert "Root-Is-Purelib: true" in described
    assert "THIS BUILD HAS NO CPU KERNEL" in said
    assert "pip install --no-build-isolation" in said


@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler here")
def test_a_wheel_with_the_kernel_is_for_its_platform_and_any_python(project):
    wheel, said = build("wheel", project, ACDA_CXXFLAGS="-O0")
    _, _, python, abi, platform = wheel.stem.split("-")
    assert (python, abi) == ("py3", "none")
    assert platform != "any"
    names, described = contents(wheel)
    assert "acda/backends/_native.so" in names
    assert "Root-Is-Purelib: false" in described
    assert "NO CPU KERNEL" not in said


def test_the_source_distribution_has_the_tests_and_what_they_need(project):
    archive, _ = build("sdist", project)
    with tarfile.open(archive) as packed:
        names = {name.partition("/")[2] for name in packed.getnames()}
    folders = [project / name for name in ("acda", "benchmarks", "docs", "paper", "tests")]
    needed = {file for folder in folders for file in folder.rglob("*") if file.is_file()}
    needed |= {project / name for name in ("Makefile", "README.md", "constraints.txt", "pyproject.toml", "setup.py")}
    assert {str(file.relative_to(project)) for file in needed if "egg-info" not in str(file)} <= names
    assert not any(name.endswith((".so", ".pyc")) for name in names)
    assert "LICENSE" in names
    assert not [name for name in names if name.startswith("weights")]
