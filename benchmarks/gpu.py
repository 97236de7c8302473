"""The layer on a GPU: first whether the kernels are right there, then how fast they are beside Conv2d.

    python benchmarks/gpu.py                        # on a GPU: writes results/gpu.json and results/gpu.png
    TRITON_INTERPRET=1 python benchmarks/gpu.py     # without one: the comparison only, in Triton's interpreter

Every case is compared with plain torch in float64, in values and gradients, before it is timed. A case that fails has
no times. Times are ratios to Conv2d (cuDNN), which takes turns with each contender; the memory is the peak above what
was allocated before.
"""

import argparse
import os
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acda import bench
from acda.backends import triton
from acda.bench import Case
from acda.functional import adaptive_conv2d
from acda.support.drawing import GREEN, GREY, INDIGO, new_figure, save
from acda.support.environment import write_results

HERE = Path(__file__).parent
CASES = (*bench.CASES, Case(256, 100, 7, batch=8), Case(48, 128, 7, batch=8))
# One small case for each kernel side: the interpreter takes seconds for each.
INTERPRETED_CASES = [Case(20, 6, side) for side in sorted({case.side for case in CASES})]
# The relative error that is rounding: a few roundings of the dtype; TF32 has ten bits of a fraction.
PRECISIONS = {
    "float32": (torch.float32, 1e-5),
    "tf32": (torch.float32, 4 * 2**-11),
    "float16": (torch.float16, 4 * 2**-11),
    "bfloat16": (torch.bfloat16, 4 * 2**-8),
}
CONTENDERS: dict[str, Callable[[Case], nn.Module]] = {
    **{name: bench.CONTENDERS[name] for name in ("unfold", "reference")},
    "triton": lambda case: bench.adaptive(case, "triton"),
}


def main() -> int | str:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=HERE / "results", help="folder for gpu.json and gpu.png")
    parser.add_argument("--rounds", type=int, default=30, help="of each case, mode and contender")
    arguments = parser.parse_args()
    if torch.cuda.is_available():
        if reason := triton.why_not_here():
            return f"the kernels cannot run here: {reason}."
        return measure_all(arguments.out, arguments.rounds)
    if os.environ.get("TRITON_INTERPRET") != "1":
        return "there is no GPU. To compare the kernels in Triton's interpreter, set TRITON_INTERPRET=1."
    triton.interpret()
    wrong = [name for name, error, most in compared(INTERPRETED_CASES, "cpu") if error > most]
    print("No GPU: nothing was timed.")
    return f"wrong: {', '.join(wrong)}." if wrong else 0


def compared(cases: list[Case], device: str) -> Iterator[tuple[str, float, float]]:
    """Name, largest relative error of the output and all gradients, and what is tolerated."""
    for case in cases:
        for precision, (dtype, most) in PRECISIONS.items():
            name = f"{case.name}, {precision}"
            try:
                error = error_of(case, precision, dtype, device)
            except ValueError as refused:  # the trial before the first call
                print(refused)
                error = float("inf")
            print(f"{name:<48} relative error {error:.1e}, at most {most:.1e}", flush=True)
            yield name, error, most


def error_of(case: Case, precision: str, dtype: torch.dtype, device: str) -> float:
    torch.manual_seed(0)
    # One image, because the reference in float64 takes much memory. Wide layers still take several chunks.
    size, C, M, L = min(case.size, 100), case.channels, 6, 9
    shapes = (1, C, size, size), (1, M, L, size, size), (L, case.side, case.side), (C, C, M), (C,)
    ours = [torch.randn(*shape, device=device).to(dtype).requires_grad_() for shape in shapes]
    truth = [t.detach().double().requires_grad_() for t in ours]
    upstream = torch.randn(shapes[0], device=device).to(dtype)
    set_tf32(precision == "tf32")
    pairs = zip(
        with_gradients(ours, upstream, case, "triton"),
        with_gradients(truth, upstream, case, "reference"),
        strict=True,
    )
    errors = torch.stack([(a - b).norm() / b.norm() for a, b in pairs])
    return float(errors.nan_to_num(nan=torch.inf).max())


def with_gradients(operands: list[Tensor], upstream: Tensor, case: Case, backend: str) -> list[Tensor]:
    y = adaptive_conv2d(*operands, padding=case.side // 2, backend=backend)
    return [t.detach().double() for t in (y, *torch.autograd.grad(y, operands, upstream.to(y.dtype)))]


def set_tf32(on: bool) -> None:
    torch.backends.cudnn.conv.fp32_precision = "tf32" if on else "ieee"
    torch.backends.cuda.matmul.fp32_precision = "tf32" if on else "ieee"


def measure_all(out: Path, rounds: int) -> int | str:
    rows, wrong = [], []
    for case in CASES:
        for name, error, most in compared([case], "cuda"):
            if error > most:
                wrong.append(name)
                continue
            rows += list(measured(case, name.rsplit(", ", 1)[1], rounds))
    if not rows:
        return "no case is right on this GPU: nothing was timed. Please report it with the output of `acda info`."
    write_results(out / "gpu.json", rows, budget=f"{rounds} rounds a case, mode and contender", seed=0, wrong=wrong)
    save(draw(rows), out / "gpu.png")
    print(f"Written: {out / 'gpu.json'}, {out / 'gpu.png'}")
    return f"wrong, and not timed: {', '.join(wrong)}." if wrong else 0


def measured(case: Case, precision: str, rounds: int) -> Iterator[dict[str, Any]]:
    set_tf32(precision == "tf32")
    dtype = PRECISIONS[precision][0]
    common = {"dataset": case.name, "precision": precision, "gpu": torch.cuda.get_device_name(), **asdict(case)}
    for mode in bench.MODES:
        for name, make in CONTENDERS.items():
            row = {**common, "name": name, "mode": mode}
            try:
                (ours, megabytes), (theirs, _) = side_by_side(case, mode, dtype, rounds, make, bench.conv)
            except torch.cuda.OutOfMemoryError:
                yield {**row, "table": "speed", "metric": f"{mode}, out of memory", "value": None}
                continue
            yield {**row, "table": "speed", "metric": f"{mode}, time / Conv2d", "value": round(ours / theirs, 3)}
            yield {**row, "table": "memory", "metric": f"{mode}, peak MB", "value": round(megabytes)}
            print(f"    {mode:<10} {name:<10} {ours / theirs:8.2f} × Conv2d, {megabytes:8.0f} MB", flush=True)


def side_by_side(
    case: Case, mode: str, dtype: torch.dtype, rounds: int, *makes: Callable[[Case], nn.Module]
) -> list[tuple[float, float]]:
    """Median milliseconds and peak megabytes of each layer, in turns; all in channels_last, which suits GPUs."""
    channels_last = torch.channels_last
    layers = [make(case).to("cuda", dtype, memory_format=channels_last).train(mode == "training") for make in makes]
    x = case.input().to("cuda", dtype, memory_format=channels_last)
    peaks = [peak_of(lambda layer=layer: bench.MODES[mode](layer, x)) for layer in layers]
    taken: list[list[float]] = [[] for _ in layers]
    for _ in range(rounds):
        for layer, times in zip(layers, taken, strict=True):
            times.append(milliseconds_of(lambda layer=layer: bench.MODES[mode](layer, x)))
    return [(statistics.median(times), peak) for times, peak in zip(taken, peaks, strict=True)]


def peak_of(run: Callable[[], None]) -> float:
    """The second run's: the first compiles kernels and chooses algorithms."""
    run()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def milliseconds_of(run: Callable[[], None]) -> float:
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last)


def draw(rows: list[dict[str, Any]]) -> Any:
    """Bars of time relative to Conv2d, one column a mode, one row a precision."""
    speeds = [row for row in rows if row["table"] == "speed" and row["value"] is not None]
    precisions = list(dict.fromkeys(row["precision"] for row in speeds))
    cases = list(dict.fromkeys(row["dataset"] for row in speeds))
    figure = new_figure(12, (0.4 * len(cases) + 1) * len(precisions) + 1)
    panels = figure.subplots(len(precisions), 2, sharey=True, squeeze=False)
    colours = {"unfold": GREY, "reference": GREEN, "triton": INDIGO}
    for line, precision in zip(panels, precisions, strict=True):
        for axis, mode in zip(line, bench.MODES, strict=True):
            for offset, (name, colour) in enumerate(colours.items()):
                chosen = [r for r in speeds if (r["precision"], r["mode"], r["name"]) == (precision, mode, name)]
                places = [cases.index(r["dataset"]) + 0.27 * (offset - 1) for r in chosen]
                axis.barh(places, [r["value"] for r in chosen], height=0.25, color=colour, label=name)
            axis.axvline(1, color="black", linewidth=1, zorder=0)
            axis.set_xscale("log")
            axis.set_yticks(range(len(cases)), cases)
            axis.set_title(f"{mode}, {precision}: time / Conv2d (left is faster)")
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supxlabel(rows[0]["gpu"], fontsize=8)
    return figure


if __name__ == "__main__":
    sys.exit(main())
