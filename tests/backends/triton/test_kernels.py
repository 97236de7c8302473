"""Values and gradients of the kernels, in a process where Triton interprets them: see interpreted.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from acda.backends import triton

pytest.importorskip("triton", reason="Triton is not installed")
HERE = Path(__file__).parent


@pytest.mark.slow
def test_the_kernels_equal_the_reference_in_tritons_interpreter():
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", str(HERE / "interpreted.py")]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


def test_the_interpreter_has_to_be_chosen_from_the_start(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(RuntimeError, match="TRITON_INTERPRET=1"):
        triton.interpret()
