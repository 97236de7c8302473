"""Every test starts from the same random state; hypothesis searches from the same one and without a clock."""

import pytest
import torch
from hypothesis import settings

settings.register_profile("acda", deadline=None, max_examples=60, derandomize=True, print_blob=True)
settings.load_profile("acda")


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    torch.manual_seed(0)
