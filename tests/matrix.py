"""The tests of kernel, layers and functions as other processors and other seeds would run them: `make test-matrix`.

`python -m tests.matrix --seeds 20` adds seeds 1 … 20 on this processor as it is. Further arguments go to pytest.
"""

import argparse
import os
import subprocess
import sys
import time

TESTS = ["tests/backends", "tests/layers", "tests/test_functional.py", "tests/test_export.py"]
# What depends on neither: gigabytes of memory, a process of its own, or compiling.
LEFT_OUT = "not gigabytes and not large_image and not without_the_processors_vectors and not sources"

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
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", LEFT_OUT]
    command += [f"--hypothesis-seed={seed}", *(extra or TESTS)]
    variables = {**variables, "ACDA_TEST_SEED": str(seed)}
    start = time.monotonic()
    run = subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True)
    settings = " ".join(f"{name}={value}" for name, value in variables.items())
    print(f"{'passed' if run.returncode == 0 else 'FAILED'}  {time.monotonic() - start:4.0f} s  {settings}", flush=True)
    if run.returncode:
        print(run.stdout[-5000:] + run.stderr[-2000:])
        print(f"To repeat it: {settings} python -m pytest --hypothesis-seed={seed} {' '.join(extra or TESTS)}")
    return run.returncode == 0


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
