"""Processes, on one machine or two, share the work exactly."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import replace

import pytest

from tests.training.runs import assert_same, command, weights


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "precision", "tolerance"), [("lenet", "32-true", 1e-6), ("lenet_acda", "64-true", 1e-12)]
)
def test_two_processes_are_one_with_twice_the_batch(recipe, tmp_path, model, precision, tolerance, pictures):
    """21 test images in two processes: 11 and 10, each counted once. In 32 bits LeNet + ACDA's sums differ by 3e-6."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    options = ["--margin", "0", "--model", model, "--frozen-norm", "--precision", precision]
    subprocess.run(command(replace(recipe, batch_size=20), pictures, alone, *options), check=True, capture_output=True)
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MASTER", "NODE"))}
    result = subprocess.run(
        command(recipe, pictures, together, *options, "--devices", "2"), capture_output=True, text=True, env=environment
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert_same(weights(together), weights(alone), tolerance=tolerance)
    first, second = (json.loads((f / "scores.json").read_text())["epochs"] for f in (alone, together))
    for a, b in zip(first, second, strict=True):
        assert a["images"] == b["images"] == 21
        assert a["error"] == pytest.approx(b["error"], abs=1e-4)
        assert a["train loss"] == pytest.approx(b["train loss"], abs=1e-5)


@pytest.mark.slow
def test_two_machines_with_the_same_command(recipe, pictures, tmp_path):
    """torchrun once for each machine, both of them this one."""
    alone, together = tmp_path / "alone", tmp_path / "together"
    subprocess.run(
        command(replace(recipe, batch_size=20), pictures, alone, "--margin", "0"), check=True, capture_output=True
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "MASTER", "NODE"))}
    machines = []
    log = (tmp_path / "log.txt").open("w+")
    for rank in ("0", "1"):
        launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
        launcher += ["--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", port]
        train = command(recipe, pictures, together, "--margin", "0", "--nodes", "2")[1:]
        machines.append(subprocess.Popen([*launcher, *train], env=environment, stdout=log, stderr=log))
    assert [machine.wait(300) for machine in machines] == [0, 0], (tmp_path / "log.txt").read_text()[-2000:]
    assert_same(weights(together), weights(alone), tolerance=1e-6)
