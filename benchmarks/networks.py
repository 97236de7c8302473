"""Whole networks: time of a training step and of inference beside those of the convolutional baselines.

    python benchmarks/networks.py                      # writes results/networks-PROCESSOR.json
    python benchmarks/networks.py --before CHECKOUT    # also a step of `restorer` here against the same step there

CHECKOUT is a clone of this repository at an earlier commit, with its kernel built in place. All that is compared takes
turns in one run; a figure is the ratio of the medians. Run it on an idle machine.
"""

import argparse
import inspect
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

import acda
from acda import bench
from acda.support.environment import write_results

HERE = Path(__file__).parent
SIZE, BATCH = 224, 8
# One megapixel, for the peak of memory.
MEGAPIXEL = bench.Case(64, 1000, 7)


def share(run: Callable[[], None]) -> float:
    """The part of a call's time that is spent in operators of acda."""
    run()
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        run()
    taken = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    return sum(value for key, value in taken.items() if "acda" in key) / sum(taken.values())


# For each line that it is sent, takes a step of training and answers with milliseconds, or with the share of acda.
STEPS = f"""
import sys, time, torch, acda
from collections.abc import Callable
from torch.profiler import ProfilerActivity, profile
{inspect.getsource(share)}
torch.set_num_threads(int(sys.argv[1]))
torch.manual_seed(0)
model = acda.create_model("restorer").to(memory_format=torch.channels_last)
optimiser = torch.optim.Adam(model.parameters(), lr=1e-4)
x = torch.randn(8, 3, 96, 96).contiguous(memory_format=torch.channels_last)
def step():
    optimiser.zero_grad()
    (model(x) - x).square().mean().backward()
    optimiser.step()
for line in sys.stdin:
    begun = time.perf_counter()
    if line.strip() == "share":
        print(share(step), flush=True)
    else:
        step()
        print(1e3 * (time.perf_counter() - begun), flush=True)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=Path, help="a checkout of an earlier commit")
    parser.add_argument("--rounds", type=int, default=15, help="of each comparison")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = []
    for row in [*classifiers(arguments.rounds), *restorer(arguments), memory()]:
        rows.append(row)
        print(f"{row['dataset']}: {row['metric']}: {row['value']}", flush=True)
    write_results(
        arguments.out / f"networks-{bench.processor()}.json", rows, budget=f"{arguments.rounds} rounds", seed=0
    )


def classifiers(rounds: int) -> list[dict[str, Any]]:
    """Ad-ResNet-s beside its two baselines, in training and in inference of one image."""
    names = ("ad_resnet_s", "ad_resnet_s_conv", "ad_resnet_s_conv_large")
    models = {name: acda.create_model(name).to(memory_format=torch.channels_last) for name in names}
    batch = torch.randn(BATCH, 3, SIZE, SIZE).contiguous(memory_format=torch.channels_last)
    training = medians({name: lambda m=model: step(m.train(), batch) for name, model in models.items()}, rounds)
    inference = medians({name: lambda m=model: infer(m.eval(), batch[:1]) for name, model in models.items()}, rounds)
    ours = models[names[0]]
    shares = {
        "training": share(lambda: step(ours.train(), batch)),
        "inference": share(lambda: infer(ours.eval(), batch[:1])),
    }
    rows = []
    for mode, many, taken in (("training", BATCH, training), ("inference", 1, inference)):
        common = {"table": "networks", "dataset": f"{mode}, {SIZE}×{SIZE}, batch {many}", "name": names[0]}
        milliseconds = taken[names[0]]
        for name in names[1:]:
            ratio = round(milliseconds / taken[name], 3)
            rows.append({**common, "metric": f"time / {name}", "value": ratio, "milliseconds": milliseconds})
        rows.append({**common, "metric": "share of adaptive layers", "value": round(shares[mode], 3)})
    return rows


def step(model: nn.Module, x: torch.Tensor) -> None:
    """Forward and backward to the parameters."""
    model(x).square().mean().backward()
    model.zero_grad()


def infer(model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        model(x)


def medians(contenders: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """Median milliseconds of each, taking turns, after one run for warming up."""
    taken: dict[str, list[float]] = {name: [] for name in contenders}
    for index in range(1 + rounds):
        for name, run in contenders.items():
            begun = time.perf_counter()
            run()
            if index:
                taken[name].append(1e3 * (time.perf_counter() - begun))
    return {name: statistics.median(values) for name, values in taken.items()}


def restorer(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """A training step of restorer in this checkout over one in the earlier checkout."""
    if arguments.before is None:
        return []
    processes = {name: start(place, arguments.threads) for name, place in places(arguments.before).items()}
    taken: dict[str, list[float]] = {name: [] for name in processes}
    for index in range(1 + arguments.rounds):
        for name, process in processes.items():
            milliseconds = ask(process)
            if index:
                taken[name].append(milliseconds)
    shares = {name: ask(process, "share") for name, process in processes.items()}
    for process in processes.values():
        process.communicate(timeout=60)
    here, before = (statistics.median(taken[name]) for name in ("here", "before"))
    row = {"table": "networks", "dataset": "training, 8×96×96", "name": "restorer"}
    head = ["git", "-C", str(arguments.before), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(head, capture_output=True, text=True, check=True)
    ratio = {"metric": "time / earlier commit", "value": round(here / before, 3), "milliseconds": here}
    return [
        {**row, **ratio, "earlier": commit.stdout.strip()},
        {**row, "metric": "share of adaptive layers", "value": round(shares["here"], 3)},
        {**row, "metric": "share of adaptive layers, earlier commit", "value": round(shares["before"], 3)},
    ]


def places(before: Path) -> dict[str, Path]:
    return {"here": HERE.parent, "before": before.resolve()}


def start(place: Path, threads: int) -> "subprocess.Popen[str]":
    environment = {**os.environ, "PYTHONPATH": str(place)}
    command = [sys.executable, "-c", STEPS, str(threads)]
    return subprocess.Popen(
        command, cwd=place, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process: "subprocess.Popen[str]", what: str = "step") -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{what}\n")
    process.stdin.flush()
    answer = process.stdout.readline()
    if not answer:
        raise ValueError("a checkout's process ended before it answered; its message is above.")
    return float(answer)


def memory() -> dict[str, Any]:
    """Peak of a process that runs a 7×7 layer of 64 channels on a megapixel."""
    peak = bench.peak_memory(MEGAPIXEL, "forward", "native")
    row = {"table": "memory", "dataset": MEGAPIXEL.name, "name": "native", "metric": "forward, peak MB"}
    return {**row, "value": round(peak["peak"]), "imported": round(peak["imported"])}


if __name__ == "__main__":
    main()
