"""In all tests of the kernels scratch memory is filled with NaN, and all threads are used.

This finds reads of memory that was not written, and races between threads.
"""

import pytest
import torch

from acda.backends import native
from tests.backends.comparing import threads
from tests.conftest import ALL_THREADS


@pytest.fixture(autouse=True, scope="module")
def _poisoned_scratch():
    if native.MISSING is not None:
        yield
        return
    torch.ops.acda.poison_scratch(True)
    yield
    torch.ops.acda.poison_scratch(False)


@pytest.fixture(autouse=True, scope="module")
def _all_threads():
    with threads(ALL_THREADS):
        yield
