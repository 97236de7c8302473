"""The toy pattern detection of the paper's Section 3.3, three seeds to convergence, into results/toy.json.

    python -m paper.toy [--steps 20000]        # about half an hour per seed on one core, two seeds at once

It runs `acda demo --as-in-paper`, each seed in its own process on one thread.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from acda.support.environment import describe
from paper.results import Row, result, write

SEEDS = (0, 1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=20_000)
    steps = parser.parse_args().steps
    at_the_start = describe()
    with ThreadPoolExecutor(max_workers=2) as pool:
        outcomes = list(pool.map(lambda seed: run(seed, steps), SEEDS))
    circumstances = {
        **at_the_start,
        "threads": 1,
        "budget": f"{steps} steps of SGD, learning rate 0.01, momentum 0.9, on one 100×100 image",
        "seeds": list(SEEDS),
        "seconds": {str(o["seed"]): o["seconds"] for o in outcomes},
    }
    rows = [row for outcome in outcomes for row in rows_of(outcome)]
    write("toy", rows, **circumstances)
    for outcome in outcomes:
        ratio = outcome["conv"] / outcome["acda"]
        print(f"seed {outcome['seed']}: {outcome['conv']:.2e} against {outcome['acda']:.2e}, {ratio:.1f} times lower")


def run(seed: int, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "acda",
            "demo",
            "--seed",
            str(seed),
            "--steps",
            str(steps),
            "--out",
            folder,
            "--as-in-paper",
        ]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        return dict(json.loads(Path(folder, "demo.json").read_text()))


def rows_of(outcome: dict[str, Any]) -> list[Row]:
    """One row per layer and place; still_falling: the share of the error that the last tenth of the steps removed."""
    rows = []
    for layer in ("conv", "acda"):
        curve = outcome["curves"][layer]
        facts = {"seed": outcome["seed"], "steps": outcome["steps"]}
        facts["still_falling"] = round(1 - curve[-1] / curve[-len(curve) // 10], 4)
        rows += [
            result("toy", "patterns", layer, f"mse{shifted}", outcome[layer + shifted], **facts)
            for shifted in ("", "_shifted")
        ]
    return rows


if __name__ == "__main__":
    main()
