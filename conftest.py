"""Without Triton, which torch does not install everywhere, pytest cannot look for examples in what imports it."""

from importlib.util import find_spec

_NEED_TRITON = [
    *(f"acda/backends/triton/{name}.py" for name in ("driver", "kernels", "launch")),
    *(f"tests/backends/triton/{name}.py" for name in ("compiling", "interpreted")),
]
collect_ignore = [] if find_spec("triton") else _NEED_TRITON
