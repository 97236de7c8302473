"""Compile the CPU kernel where torch and a C++ compiler are at hand; without them acda still installs and works.

torch is not a build requirement: an isolated build would download it a second time. Build with --no-build-isolation.
"""

import hashlib
import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

SOURCES = [
    Path("acda", "backends", "csrc", name)
    for name in ("generator.h", "kernel.h", "native.cpp", "squash.h", "winograd.h")
]


class BuildKernel(build_ext):
    """A plain shared library that torch loads, not a Python module."""

    def get_ext_filename(self, fullname: str) -> str:
        return str(Path(*fullname.split("."))) + ".so"

    def get_export_symbols(self, ext: Extension) -> list[str]:
        return []


def digest() -> str:
    """As in acda/backends/native.py, which cannot be imported before it is installed."""
    together = b"".join(path.read_bytes() for path in SOURCES)
    return "0x" + hashlib.sha256(together).hexdigest()[:15]


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
            sources=[str(path) for path in SOURCES if path.suffix == ".cpp"],
            depends=[str(path) for path in SOURCES if path.suffix == ".h"],
            include_dirs=[str(place / "include")],
            library_dirs=[str(place / "lib")],
            libraries=["torch_cpu"],
            # The stable ABI of torch 2.10, made for every later torch. And what the binary is made from, so that one
            # that is older than the sources beside it is noticed (native.py).
            define_macros=[("TORCH_TARGET_VERSION", "0x020a000000000000"), ("ACDA_SOURCES", digest())],
            extra_compile_args=["-std=c++20", "-O3", "-g0", *os.environ.get("ACDA_CXXFLAGS", "").split()],
            extra_link_args=os.environ.get("ACDA_CXXFLAGS", "").split(),
            optional=True,
        )
    ]


setup(ext_modules=kernel(), cmdclass={"build_ext": BuildKernel})
