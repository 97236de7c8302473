"""Settings for every test, made before anything imports torch.

Threads that wait do not spin: several pytest workers share the cores. Without Triton, which torch does not install
everywhere, pytest cannot look for examples in what imports it.
"""

import os
from importlib.util import find_spec

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_NEED_TRITON = [
    *(f"acda/backends/triton/{name}.py" for name in ("driver", "kernels", "launch")),
    *(f"tests/backends/triton/{name}.py" for name in ("compiling", "interpreted")),
]
collect_ignore = [] if find_spec("triton") else _NEED_TRITON
