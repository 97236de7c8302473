"""Compile the CPU kernel where torch and a C++ compiler are at hand; without them acda still installs and works.

torch is not a build requirement: an isolated build would download it a second time. Build with --no-build-isolation.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = Path("acda", "backends", "csrc")


class BuildKernel(build_ext):
    """A plain shared library that torch loads, not a Python module."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


def kernel() -> list[Extension]:
    try:
        import torch
    except ImportError:
        print("acda: torch is not importable here, so the CPU kernel is left out (see setup.py)", file=sys.stderr)
        return []
    place = Path(torch.__file__).parent
    return [
        Extension(
            "acda.backends._native",
            sources=[str(SOURCES / "native.cpp")],
            depends=[str(SOURCES / name) for name in ("kernel.h", "generator.h")],
            include_dirs=[str(place / "include")],
            library_dirs=[str(place / "lib")],
            libraries=["torch_cpu"],
            # The stable ABI of torch 2.10: the binary loads in every later torch.
            define_macros=[("TORCH_TARGET_VERSION", "0x020a000000000000")],
            extra_compile_args=["-std=c++20", "-O3", "-g0", *os.environ.get("ACDA_CXXFLAGS", "").split()],
            extra_link_args=os.environ.get("ACDA_CXXFLAGS", "").split(),
            optional=True,
        )
    ]


setup(ext_modules=kernel(), cmdclass={"build_ext": BuildKernel})
