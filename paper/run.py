"""Train the networks of the paper's tables, as a queue that can be stopped and started again at any moment.

    python paper/run.py --data DIR                 # DIR has cifar10 and cifar100; two runs at once, one thread each
    python paper/run.py --data DIR --only cifar10  # the recipes whose names have this in them
    python paper/run.py --collect                  # results/*.json from the runs that are complete

Runs are in runs/paper/RECIPE. One that is complete is not run again, one that was stopped goes on where it was. Ctrl-C
lets each run save its state first. Collecting happens by itself when the queue is empty.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from acda import create_model
from acda.cost import count
from acda.environment import describe
from acda.files import written_whole

HERE = Path(__file__).parent
RUNS = HERE.parent / "runs" / "paper"
# Table, dataset, name in the table, recipe, folder of the data; the long ones first.
ARMS = [
    ("lenet", "CIFAR-10", "LeNet + ACDA", "cifar10_lenet_acda", "cifar10"),
    ("lenet", "CIFAR-100", "LeNet + ACDA", "cifar100_lenet_acda", "cifar100"),
    ("lenet", "CIFAR-10", "LeNet, as wide as ACDA costs", "cifar10_lenet_wide", "cifar10"),
    ("lenet", "CIFAR-100", "LeNet, as wide as ACDA costs", "cifar100_lenet_wide", "cifar100"),
    ("lenet", "CIFAR-10", "LeNet", "cifar10_lenet", "cifar10"),
    ("lenet", "CIFAR-100", "LeNet", "cifar100_lenet", "cifar100"),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--collect", action="store_true")
    options = parser.parse_args()
    if not options.collect:
        if options.data is None:
            parser.error("--data is needed: the folder of the datasets")
        wait_for([arm for arm in ARMS if options.only in arm[3] and not is_complete(arm[3])], options)
    collect()


def wait_for(arms: list[tuple[str, ...]], options: argparse.Namespace) -> None:
    """Run these, so many at once; Ctrl-C goes to all of them, and they save."""
    waiting = list(arms)
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < options.at_once:
                _, _, _, recipe, folder = waiting.pop(0)
                running[recipe] = start(recipe, options.data / folder)
            time.sleep(1)
            for recipe, process in list(running.items()):
                if process.poll() is not None:
                    del running[recipe]
                    print(f"{recipe}: {'complete' if process.returncode == 0 else f'failed, see {log_of(recipe)}'}")
    except KeyboardInterrupt:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        sys.exit("stopped; the same command goes on")


def start(recipe: str, data: Path) -> "subprocess.Popen[bytes]":
    out = RUNS / recipe
    out.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "acda", "train", recipe, "--data", str(data), "--out", str(out), "--threads", "1"]
    command += ["--resume"] if (out / "checkpoints" / "last.ckpt").exists() else []
    print(f"{recipe}: {'goes on' if '--resume' in command else 'begins'}", flush=True)
    with log_of(recipe).open("a") as log:
        # A group of its own: Ctrl-C reaches it once, through us. OpenMP's threads would fight for the cores.
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            process_group=0,
            preexec_fn=lambda: os.nice(10) and None,
        )


def log_of(recipe: str) -> Path:
    return RUNS / f"{recipe}.log"


def is_complete(recipe: str) -> bool:
    return (RUNS / recipe / "weights.safetensors").exists()


def collect() -> None:
    """The last epoch's scores of the runs that are complete, one results file a table."""
    for table in dict.fromkeys(arm[0] for arm in ARMS):
        arms = [arm for arm in ARMS if arm[0] == table and is_complete(arm[3])]
        if not arms:
            continue
        rows = [row for arm in arms for row in rows_of(*arm[:4])]
        recipes = [json.loads((RUNS / arm[3] / "recipe.json").read_text()) for arm in arms]
        commits = {json.loads((RUNS / arm[3] / "scores.json").read_text())["circumstances"]["commit"] for arm in arms}
        budget = f"{recipes[0]['epochs']} epochs of batches of {recipes[0]['batch_size']}, {recipes[0]['optimiser']}"
        seeds = sorted({recipe["seed"] for recipe in recipes})
        facts = {**describe(), "commit": ", ".join(sorted(commits)), "threads": 1, "budget": budget, "seeds": seeds}
        with written_whole(HERE / "results" / f"{table}.json") as file:
            text = json.dumps({"rows": rows, "circumstances": facts}, indent=1, ensure_ascii=False)
            file.write_text(text + "\n")


def rows_of(table: str, dataset: str, name: str, recipe: str) -> list[dict[str, Any]]:
    settings = json.loads((RUNS / recipe / "recipe.json").read_text())
    epochs = json.loads((RUNS / recipe / "scores.json").read_text())["epochs"]
    network = create_model(settings["model"], num_classes=100 if dataset == "CIFAR-100" else 10)
    cost = count(network, (1, 3, 32, 32))
    common = {"table": table, "dataset": dataset, "name": name, "recipe": recipe, "seed": settings["seed"]}
    hours = round(sum(epoch["seconds"] for epoch in epochs) / 3600, 2)
    return [
        {**common, "metric": "top-1 error, %", "value": round(epochs[-1]["error"], 2), "hours": hours},
        {**common, "metric": "parameters, M", "value": round(cost.parameters / 1e6, 3)},
        {**common, "metric": "multiply-adds, M", "value": round(cost.multiply_adds / 1e6, 2)},
    ]


if __name__ == "__main__":
    main()
