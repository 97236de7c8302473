"""Table 7: memory and time of a training iteration of Ad-ResNet-s, beside the same network with nn.Conv2d.

    python paper/training_cost.py     # some minutes; on an idle machine, two threads

Times are measured in one process, the networks taking turns, each in the memory format that suits it better; memory is
the peak of a fresh process a network, in that format. DFN is asked for the memory that it would need, and refuses.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import create_model
from acda.cost import count
from acda.layers import DynamicFilterConv2d
from acda.support.environment import peak_megabytes, write_results

RESULTS = Path(__file__).parent / "results" / "training.json"
NETWORKS = {"ACDA": "ad_resnet_s", "Conv, 3×3": "ad_resnet_s_conv", "Conv": "ad_resnet_s_conv_large"}
FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}
BATCH, SIZE, THREADS, ROUNDS = 8, 224, 2, 12
CLASSES = 1000


class Iteration:
    """A network, its optimiser and one batch; a call is one training iteration."""

    def __init__(self, model: nn.Module, memory_format: torch.memory_format) -> None:
        self.model = model.to(memory_format=memory_format).train()
        self.optimiser = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        self.images = torch.randn(BATCH, 3, SIZE, SIZE).contiguous(memory_format=memory_format)
        self.labels = torch.randint(CLASSES, (BATCH,))

    def __call__(self) -> float:
        begun = time.perf_counter()
        loss: Tensor = F.cross_entropy(self.model(self.images), self.labels)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()
        return time.perf_counter() - begun


def main() -> None:
    torch.set_num_threads(THREADS)
    torch.manual_seed(0)
    taken = times()
    best = {name: min(FORMATS, key=lambda f: statistics.median(taken[name, f])) for name in NETWORKS}
    medians = {name: statistics.median(taken[name, best[name]]) for name in NETWORKS}
    rows = []
    for name, network in NETWORKS.items():
        common = {"table": "training", "dataset": "Ad-ResNet-s", "name": name, "memory_format": best[name]}
        peak = peak_of_a_fresh_process(network, best[name])
        against_large, against_small = medians[name] / medians["Conv"], medians[name] / medians["Conv, 3×3"]
        kept = count(create_model(network), (BATCH, 3, SIZE, SIZE))
        rows += [
            {**common, "metric": "parameters, M", "value": kept.parameters / 1e6},
            {**common, "metric": "memory, GB", "value": round(peak / 2**10, 3)},
            {**common, "metric": "activations kept, GB", "value": round(kept.kept_bytes / 2**30, 3)},
            {**common, "metric": "time of an iteration / Conv", "value": round(against_large, 3)},
            {**common, "metric": "time of an iteration / Conv, 3×3", "value": round(against_small, 3)},
        ]
    rows += refused()
    for row in rows:
        print(f"{row['name']:<12} {row['metric']:<36} {row['value']}")
    budget = f"batch {BATCH}, {SIZE}×{SIZE}, SGD with momentum, median of {ROUNDS} iterations taking turns"
    milliseconds = {name: round(1e3 * median) for name, median in medians.items()}
    write_results(RESULTS, rows, budget=budget, seed=0, milliseconds=milliseconds)


def times() -> dict[tuple[str, str], list[float]]:
    """Seconds of each iteration, by network and memory format, after a first one that does not count."""
    iterations = {
        (name, memory_format): Iteration(create_model(network), FORMATS[memory_format])
        for name, network in NETWORKS.items()
        for memory_format in FORMATS
    }
    taken: dict[tuple[str, str], list[float]] = {key: [] for key in iterations}
    for turn in range(ROUNDS + 1):
        for key, iteration in iterations.items():
            seconds = iteration()
            if turn:
                taken[key].append(seconds)
    return taken


def peak_of_a_fresh_process(network: str, memory_format: str) -> float:
    """Megabytes at the peak of two iterations, imports included."""
    command = [sys.executable, __file__, "--peak", network, memory_format]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report_peak(network: str, memory_format: str) -> None:
    torch.set_num_threads(THREADS)
    iteration = Iteration(create_model(network), FORMATS[memory_format])
    iteration()
    iteration()
    print(peak_megabytes())


def refused() -> list[dict[str, Any]]:
    """DFN in Ad-ResNet-s: what the filters of its four layers would take. On meta tensors, where nothing runs out."""
    with torch.device("meta"):
        model = create_model("ad_resnet_s", conv=DynamicFilterConv2d)
    needed = 0

    def ask(layer: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        nonlocal needed
        assert isinstance(layer, DynamicFilterConv2d)
        needed += layer.bytes_needed(inputs[0])

    for module in model.modules():
        if isinstance(module, DynamicFilterConv2d):
            module.register_forward_pre_hook(ask)
    model(torch.empty(BATCH, 3, SIZE, SIZE, device="meta"))
    parameters = sum(p.numel() for p in model.parameters())
    common = {"table": "training", "dataset": "Ad-ResNet-s", "name": "DFN"}
    return [
        {**common, "metric": "parameters, M", "value": parameters / 1e6},
        {**common, "metric": "memory, GB", "value": f"refused: {needed / 2**30:.1f} for filters and their gradients"},
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        report_peak(*sys.argv[2:])
    else:
        main()
