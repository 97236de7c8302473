"""Table 7: memory and time of a training iteration of Ad-ResNet-s, beside the same network with nn.Conv2d.

    python -m paper.training_cost     # some minutes; on an idle machine, two threads

Times are measured in one process, the networks taking turns, each in its faster memory format. Memory is the peak of a
fresh process per network, in that format. DFN refuses to run; its row is the memory that it would need.
"""

import statistics
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import create_model
from acda.cost import count
from acda.layers import DynamicFilterConv2d
from acda.support.environment import peak_megabytes
from paper.results import Row, result, write

NETWORKS = {"acda": "ad_resnet_s", "conv_small": "ad_resnet_s_conv", "conv": "ad_resnet_s_conv_large"}
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
        peak = peak_of_a_fresh_process(network, best[name])
        kept = count(create_model(network), (BATCH, 3, SIZE, SIZE))
        figures = {
            "parameters": kept.parameters / 1e6,
            "memory": round(peak / 2**10, 3),
            "activations": round(kept.kept_bytes / 2**30, 3),
            "time_over_conv": round(medians[name] / medians["conv"], 3),
            "time_over_conv_small": round(medians[name] / medians["conv_small"], 3),
        }
        rows += [
            result("training", "ad_resnet_s", name, *figure, memory_format=best[name]) for figure in figures.items()
        ]
    rows += refused()
    for each in rows:
        print(f"{each['model']:<12} {each['metric']:<36} {each['value']}")
    budget = f"batch {BATCH}, {SIZE}×{SIZE}, SGD with momentum, median of {ROUNDS} iterations taking turns"
    milliseconds = {name: round(1e3 * median) for name, median in medians.items()}
    write("training", rows, budget=budget, seed=0, milliseconds=milliseconds)


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
    command = [sys.executable, "-m", "paper.training_cost", "--peak", network, memory_format]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def report_peak(network: str, memory_format: str) -> None:
    torch.set_num_threads(THREADS)
    iteration = Iteration(create_model(network), FORMATS[memory_format])
    iteration()
    iteration()
    print(peak_megabytes())


def refused() -> list[Row]:
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
    return [
        result("training", "ad_resnet_s", "dfn", "parameters", parameters / 1e6),
        result("training", "ad_resnet_s", "dfn", "memory", round(needed / 2**30, 1), refused=True),
    ]


if __name__ == "__main__":
    if sys.argv[1:2] == ["--peak"]:
        report_peak(*sys.argv[2:])
    else:
        main()
