"""Compile the CPU kernel where torch and a C++ compiler are at hand; without them acda still installs and works.

torch is not a build requirement: an isolated build would download it a second time. Build with --no-build-isolation.
A wheel with the kernel is tagged for its platform and for any Python 3: the kernel is no Python module. A wheel without
it is tagged as pure Python.
"""

import os
import runpy
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

sources = runpy.run_path(str(Path("acda", "backends", "sources.py")))
SOURCES, DIGEST = sources["files_in"](sources["FOLDER"]), sources["digest_of"](sources["FOLDER"])
WITHOUT = (
    "acda: THIS BUILD HAS NO CPU KERNEL ({reason}): the same results, several times slower. With torch and a C++ "
    "compiler installed, build it again: pip install --no-build-isolation --force-reinstall --no-deps ."
)


class BuildKernel(build_ext):
    """A plain shared library that torch loads, not a Python module."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []

    def run(self) -> None:
        super().run()
        for extension in [e for e in self.extensions or [] if not Path(self.get_ext_fullpath(e.name)).exists()]:
            print(WITHOUT.format(reason="it did not compile, see above"), file=sys.stderr)
            # Forgotten, so that what is built from here on is pure Python.
            self.distribution.ext_modules.remove(extension)


class TagWheel(bdist_wheel):
    """Tags that say whether the kernel is in the wheel, known only once it was compiled."""

    def run_command(self, command: str) -> None:
        super().run_command(command)
        if command == "build":
            self.root_is_pure = not self.distribution.has_ext_modules()

    def get_tag(self) -> tuple[str, str, str]:
        return ("py3", "none", "any" if self.root_is_pure else super().get_tag()[2])


def kernel() -> list[Extension]:
    try:
        import torch
    except ImportError:
        print(WITHOUT.format(reason="torch is not importable here"), file=sys.stderr)
        return []
    place = Path(torch.__file__).parent
    return [
        Extension(
            "acda.backends._native",
            sources=[str(path) for path in SOURCES if path.suffix == ".cpp"],
            depends=[str(path) for path in SOURCES if path.suffix != ".cpp"],
            include_dirs=[str(place / "include")],
            library_dirs=[str(place / "lib")],
            libraries=["torch_cpu"],
            # The stable ABI of torch 2.10, made for every later torch. And what the binary is made from, so that one
            # that is older than the sources beside it is noticed (acda/backends/native).
            define_macros=[
                ("TORCH_TARGET_VERSION", "0x020a000000000000"),
                ("ACDA_SOURCES", hex(DIGEST)),
            ],
            extra_compile_args=["-std=c++20", "-O3", "-g0", *os.environ.get("ACDA_CXXFLAGS", "").split()],
            extra_link_args=os.environ.get("ACDA_CXXFLAGS", "").split(),
            optional=True,
        )
    ]


setup(ext_modules=kernel(), cmdclass={"bdist_wheel": TagWheel, "build_ext": BuildKernel})
