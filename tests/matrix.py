"""The tests of kernel, layers and functions as other processors and other seeds would run them: `make test-matrix`.

`python -m tests.matrix --seeds 20` adds seeds 1 … 20 on this processor as it is. Further arguments go to pytest.
"""

import argparse
import os
import subprocess
import sys

TESTS = ["tests/backends", "tests/layers", "tests/test_functional.py"]
# What takes most of the time and depends on neither: GPU kernels, baselines in plain torch, trainings, torch's checks
# of an operator's description, gradients of plain torch in float64, a gigabyte of memory, a process of its own.
LEFT_OUT = (
    "triton or baselines or two_colours or own_checks or own_loop or (exact and bases and first) or keeps_to_strips"
    " or gigabytes or large_image or without_the_processors_vectors or sources or (variance and 512)"
)
# Threads that wait do not keep a busy machine busier.
CALM = {"OMP_WAIT_POLICY": "passive"}

# Our own vectors, torch's, oneDNN's, and the number of threads. A processor that has less ignores what it lacks.
PROCESSORS = [
    {"ACDA_VECTORS": "baseline", "OMP_NUM_THREADS": "2"},
    {"ACDA_VECTORS": "avx2", "OMP_NUM_THREADS": "1"},
    {"ACDA_VECTORS": "avx512", "ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "2"},
    {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "2"},
    {"ATEN_CPU_CAPABILITY": "default", "ONEDNN_MAX_CPU_ISA": "SSE41", "OMP_NUM_THREADS": "1"},
]


def passes(variables: dict[str, str], seed: int, extra: list[str]) -> bool:
    """Run the tests once; on failure print their report and the command that repeats it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", f"not ({LEFT_OUT})"]
    command += [f"--hypothesis-seed={seed}", *(extra or TESTS)]
    variables = {**variables, "ACDA_TEST_SEED": str(seed)}
    start = _seconds_of_children()
    run = subprocess.run(command, env={**os.environ, **CALM, **variables}, capture_output=True, text=True)
    settings = " ".join(f"{name}={value}" for name, value in variables.items())
    said = run.stdout.splitlines()[-1] if run.stdout else ""
    print(f"{_seconds_of_children() - start:4.0f} s of one core, {said}: {settings}", flush=True)
    if run.returncode:
        print(run.stdout[-5000:] + run.stderr[-2000:])
        print(f"To repeat it: {settings} python -m pytest --hypothesis-seed={seed} {' '.join(extra or TESTS)}")
    return run.returncode == 0


def _seconds_of_children() -> float:
    """Processor time, which is more reliable than the clock on a busy machine."""
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=0, help="how many more seeds, on this processor as it is")
    given, extra = parser.parse_known_args()
    runs = [(variables, seed) for seed, variables in enumerate(PROCESSORS, 1)]
    runs += [({}, seed) for seed in range(1, given.seeds + 1)]
    failed = [run for run in runs if not passes(*run, extra)]
    raise SystemExit(f"{len(failed)} of {len(runs)} failed" if failed else 0)


if __name__ == "__main__":
    main()
