"""Every test starts from the same random state; so does hypothesis, without deadlines.

ACDA_TEST_SEED=3 shifts all of torch's seeds by 3, as `make test-matrix` does, to find tests that need a certain seed.
Workers of pytest-xdist compute on one thread each, except in tests/backends.
"""

import os

import pytest
import torch
from hypothesis import settings

SHIFT = int(os.environ.get("ACDA_TEST_SEED", "0"))
ALL_THREADS = torch.get_num_threads()
if "PYTEST_XDIST_WORKER" in os.environ:
    torch.set_num_threads(1)


def pytest_configure(config: pytest.Config) -> None:
    """Examples of hypothesis: more where slow tests run too, few where the whole is repeated with other seeds."""
    examples = 10 if SHIFT else 40 if "not slow" in config.option.markexpr else 100
    # Derandomized, hypothesis would ignore --hypothesis-seed.
    settings.register_profile(
        "acda", deadline=None, max_examples=examples, derandomize=not SHIFT, database=None, print_blob=True
    )
    settings.load_profile("acda")


@pytest.fixture(autouse=True)
def _same_random_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    if SHIFT:
        seed = torch.manual_seed
        monkeypatch.setattr(torch, "manual_seed", lambda number: seed(int(number) + SHIFT))
    torch.manual_seed(0)
