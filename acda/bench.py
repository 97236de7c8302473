"""Speed and memory of one layer and its alternatives, measured side by side in one run.

Times are compared within a run only: machines are shared and noisy. Each contender takes turns with Conv2d, so that a
slow moment hits both; the figure is the ratio of the medians, each in the memory format that suits it better.
"""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.layers import AdaptiveConv2d
from acda.support.environment import describe, peak_megabytes, processor_slug

FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


@dataclass(frozen=True)
class Case:
    """One layer on one input."""

    channels: int
    size: int
    side: int
    batch: int = 1

    @property
    def name(self) -> str:
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        return f"{self.side}×{self.side}, {self.channels} channels, {self.size}×{self.size}{batch}"

    def input(self) -> Tensor:
        return torch.randn(self.batch, self.channels, self.size, self.size)


# The paper's efficiency table, then narrow layers, the layers of Ad-ResNet-s, and a large map.
CASES = (
    *(Case(256, 100, side) for side in (3, 5, 7)),
    *(Case(channels, 100, 7) for channels in (3, 6, 16, 32, 64, 128)),
    Case(128, 14, 7, batch=8),
    Case(256, 7, 5, batch=8),
    Case(64, 256, 7),
)


def processor() -> str:
    """What a file of results is named after: the model of the processor and the vectors that the kernel runs with."""
    vectors = {16: "baseline", 32: "avx2", 64: "avx512"}[torch.ops.acda.vector_bytes()]
    return processor_slug(describe()["machine"], vectors)


class UnfoldConv2d(AdaptiveConv2d):
    """The layer as its authors released it: unfold the whole input, multiply, sum."""

    def forward(self, x: Tensor) -> Tensor:
        D = self.atoms(x).flatten(2, 3)
        patches = F.unfold(x, self.kernel_size, self.dilation, self.padding, self.stride)
        patches = patches.unflatten(2, D.shape[-2:]).unflatten(1, (x.shape[1], D.shape[2]))
        z = torch.einsum("bctpq,bmtpq->bcmpq", patches, D).flatten(1, 2)
        return F.conv2d(z, self.mixing.flatten(1)[:, :, None, None], self.bias, groups=self.groups)


def conv(case: Case) -> nn.Module:
    return nn.Conv2d(case.channels, case.channels, case.side, padding=case.side // 2)


def adaptive(case: Case, backend: str) -> nn.Module:
    layer = AdaptiveConv2d(case.channels, case.channels, case.side, padding=case.side // 2)
    layer.backend = backend
    return layer


def unfolded(case: Case) -> nn.Module:
    return UnfoldConv2d(case.channels, case.channels, case.side, padding=case.side // 2)


CONTENDERS: dict[str, Callable[[Case], nn.Module]] = {
    "conv": conv,
    "unfold": unfolded,
    "reference": lambda case: adaptive(case, "reference"),
    "native": lambda case: adaptive(case, "native"),
}


def forward(layer: nn.Module, x: Tensor) -> None:
    """Inference: eval, no gradients."""
    with torch.no_grad():
        layer(x)


def training(layer: nn.Module, x: Tensor) -> None:
    """Forward and backward, to the parameters and the input; the gradient arrives dense, as from a next layer."""
    layer(x.detach().requires_grad_()).backward(x)
    layer.zero_grad()


MODES = {"forward": forward, "training": training}
LEAST_ROUNDS = 3
# Numbers in an input. With fewer of them, imports would dominate the memory that is measured.
LARGE = 4_000_000


@dataclass
class Run:
    """A contender in one memory format, and what it took so far."""

    layer: nn.Module
    x: Tensor
    memory_format: str
    milliseconds: list[float] = field(default_factory=list)

    def once(self, mode: str) -> None:
        begun = time.perf_counter()
        MODES[mode](self.layer, self.x)
        self.milliseconds.append(1e3 * (time.perf_counter() - begun))


def times(case: Case, mode: str, contenders: Iterable[str], seconds: float) -> dict[str, dict[str, Any]]:
    """Median milliseconds of each contender, interleaved, and the memory format that it was faster in.

    A contender that takes more than a quarter of `seconds` goes on in the format that was faster the first time.
    """
    runs = {name: [_run(name, case, mode, memory_format) for memory_format in FORMATS] for name in contenders}
    for both in runs.values():
        for run in both:
            run.once(mode)
        if min(run.milliseconds[0] for run in both) > 250 * seconds:
            both.sort(key=lambda run: run.milliseconds[0])
            del both[1:]
        else:
            for run in both:
                run.milliseconds.clear()  # it was for warming up
    started, rounds = time.perf_counter(), 0
    while rounds < LEAST_ROUNDS or (time.perf_counter() - started < seconds and rounds < 200):
        for both in runs.values():
            for run in both:
                run.once(mode)
        rounds += 1
    return {name: _fastest(both) for name, both in runs.items()}


def _run(name: str, case: Case, mode: str, memory_format: str) -> Run:
    layer = CONTENDERS[name](case).to(memory_format=FORMATS[memory_format]).train(mode == "training")
    return Run(layer, case.input().contiguous(memory_format=FORMATS[memory_format]), memory_format)


def _fastest(runs: list[Run]) -> dict[str, Any]:
    medians = [(statistics.median(run.milliseconds), run) for run in runs]
    median, best = min(medians, key=lambda pair: pair[0])
    return {"milliseconds": median, "memory_format": best.memory_format, "rounds": len(best.milliseconds)}


def peak_memory(case: Case, mode: str, contender: str) -> dict[str, float]:
    """Peak resident megabytes of a fresh process that makes the layer and runs it once; and after its imports."""
    code = "import sys, acda.bench; acda.bench.report_peak(*sys.argv[1:])"
    arguments = [json.dumps(asdict(case)), mode, contender, str(torch.get_num_threads())]
    child = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False)
    if child.returncode:
        # One that was killed for its memory says nothing.
        last = (child.stderr.strip().splitlines() or [f"exit status {child.returncode}"])[-1]
        raise ValueError(f"{contender} on {case.name} failed: {last}")
    return dict(json.loads(child.stdout))


def report_peak(case: str, mode: str, contender: str, threads: str) -> None:
    """What peak_memory's process does and prints."""
    torch.set_num_threads(int(threads))
    imported = peak_megabytes()
    made = Case(**json.loads(case))
    layer = CONTENDERS[contender](made).to(memory_format=torch.channels_last).train(mode == "training")
    MODES[mode](layer, made.input().contiguous(memory_format=torch.channels_last))
    print(json.dumps({"peak": peak_megabytes(), "imported": imported}))


def measure(cases: Iterable[Case], seconds: float, memory: bool) -> Iterator[dict[str, Any]]:
    """One row per case, mode and contender: the time as a ratio to Conv2d of the same size, the peak memory."""
    for case in cases:
        for mode in MODES:
            for name in CONTENDERS:
                if name != "conv":  # it takes turns with each of the others
                    figures = times(case, mode, ("conv", name), seconds)
                    ratio = round(figures[name]["milliseconds"] / figures["conv"]["milliseconds"], 3)
                    row = {"table": "speed", "dataset": case.name, "name": name, "metric": f"{mode}, time / Conv2d"}
                    conv_ms = figures["conv"]["milliseconds"]
                    yield {**row, "value": ratio, **figures[name], "conv_milliseconds": conv_ms, **asdict(case)}
                if memory and case.input().numel() > LARGE:
                    peak = peak_memory(case, mode, name)
                    row = {"table": "memory", "dataset": case.name, "name": name, "metric": f"{mode}, peak MB"}
                    yield {**row, "value": round(peak["peak"]), "imported": round(peak["imported"]), **asdict(case)}
