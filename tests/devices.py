"""Every device that torch may have, as a parameter of tests; absent ones are skipped with the reason."""

import pytest
import torch

AVAILABLE = {
    "cpu": lambda: True,
    "cuda": torch.cuda.is_available,
    "mps": torch.backends.mps.is_available,
}
DEVICES = [
    pytest.param(name, marks=pytest.mark.skipif(not is_there(), reason=f"no {name} device here"))
    for name, is_there in AVAILABLE.items()
]
