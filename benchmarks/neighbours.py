"""The operators of acda.compat beside the way they are usually written in plain torch, with F.unfold.

    python benchmarks/neighbours.py    # writes results/neighbours-PROCESSOR.json

The two take turns in one run, after their results were compared; a figure is the ratio of the medians. Run it on an
idle machine.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda import bench, compat
from acda.support.environment import write_results

HERE = Path(__file__).parent
CHANNELS, SIZE, K, GROUPS, HEADS, SCALE = 64, 64, 7, 4, 4, 2


def windows(x: Tensor, k: int) -> Tensor:
    """(B, C, k², H, W): k² times the map."""
    return F.unfold(x, k, padding=k // 2).unflatten(2, x.shape[2:]).unflatten(1, (x.shape[1], k * k))


def unfolded_involution(x: Tensor, weight: Tensor) -> Tensor:
    groups, k = weight.shape[1:3]
    seen = windows(x, k).unflatten(1, (groups, -1))
    return (seen * weight.flatten(2, 3)[:, :, None]).sum(3).flatten(1, 2)


def unfolded_ska(x: Tensor, w: Tensor) -> Tensor:
    seen = windows(x, round(w.shape[2] ** 0.5)).unflatten(1, (-1, w.shape[1]))
    return (seen * w[:, None]).sum(3).flatten(1, 2)


def unfolded_ddf(x: Tensor, spatial: Tensor) -> Tensor:
    return (windows(x, K) * spatial[:, None]).sum(2)


def unfolded_fac(x: Tensor, kernel: Tensor) -> Tensor:
    seen = F.unfold(F.pad(x, (K // 2,) * 4, mode="replicate"), K).unflatten(2, x.shape[2:])
    return (seen * kernel).unflatten(1, (x.shape[1], K * K)).sum(2)


def unfolded_carafe(x: Tensor, masks: Tensor) -> Tensor:
    enlarged = F.interpolate(windows(x, K).flatten(1, 2), scale_factor=SCALE, mode="nearest")
    return (enlarged.unflatten(1, (x.shape[1], K * K)) * masks[:, None]).sum(2)


def unfolded_na2d_av(attn: Tensor, value: Tensor) -> Tensor:
    """All windows inside the map, and for each pixel the nearest of them."""
    x = value.flatten(0, 1).movedim(3, 1)
    H, W = x.shape[2:]
    seen = x.unfold(2, K, 1).unfold(3, K, 1)
    rows, columns = ((torch.arange(n) - K // 2).clamp(0, n - K) for n in (H, W))
    seen = seen[:, :, rows][:, :, :, columns].flatten(4)
    return (seen * attn.flatten(0, 1)[:, None]).sum(4).movedim(1, 3).unflatten(0, value.shape[:2])


MAP = (1, CHANNELS, SIZE, SIZE)
# Ours, the way with unfold, and the shapes of what they take.
CASES: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor], list[tuple[int, ...]]]] = {
    f"na2d_av, {K}×{K}": (
        lambda attn, value: compat.na2d_av(attn, value, K),
        unfolded_na2d_av,
        [(1, HEADS, SIZE, SIZE, K * K), (1, HEADS, SIZE, SIZE, CHANNELS // HEADS)],
    ),
    "SKA, 3×3": (compat.ska, unfolded_ska, [MAP, (1, CHANNELS // 8, 9, SIZE, SIZE)]),
    f"involution, {K}×{K}": (
        lambda x, w: compat.involution(x, w, padding=K // 2),
        unfolded_involution,
        [MAP, (1, GROUPS, K, K, SIZE, SIZE)],
    ),
    f"DDF, spatial branch, {K}×{K}": (
        lambda x, s: compat.ddf(x, None, s, K),
        unfolded_ddf,
        [MAP, (1, K * K, SIZE, SIZE)],
    ),
    f"FAC, {K}×{K}": (lambda x, k: compat.fac(x, k, K), unfolded_fac, [MAP, (1, CHANNELS * K * K, SIZE, SIZE)]),
    f"CARAFE, {K}×{K}, ×{SCALE}": (
        lambda x, m: compat.carafe(x, m, K, 1, SCALE),
        unfolded_carafe,
        [MAP, (1, K * K, SCALE * SIZE, SCALE * SIZE)],
    ),
}


def forward(function: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    with torch.no_grad():
        function(*tensors)


def training(function: Callable[..., Tensor], tensors: list[Tensor]) -> None:
    """Forward and backward, to all that the function takes."""
    function(*(t.requires_grad_() for t in tensors)).sum().backward()
    for t in tensors:
        t.grad = None


MODES = {"forward": forward, "training": training}


def measure(name: str, rounds: int) -> list[dict[str, Any]]:
    ours, unfolded, shapes = CASES[name]
    tensors = [torch.randn(shape) for shape in shapes]
    torch.testing.assert_close(ours(*tensors), unfolded(*tensors), rtol=1e-4, atol=1e-4)
    rows = []
    for mode, run in MODES.items():
        taken: dict[str, list[float]] = {"ours": [], "unfold": []}
        for index in range(1 + rounds):
            for which, function in (("ours", ours), ("unfold", unfolded)):
                begun = time.perf_counter()
                run(function, tensors)
                if index:  # the first is for warming up
                    taken[which].append(1e3 * (time.perf_counter() - begun))
        medians = {which: statistics.median(values) for which, values in taken.items()}
        row = {"table": "neighbours", "dataset": f"{CHANNELS} channels, {SIZE}×{SIZE}", "name": name}
        ratio = round(medians["ours"] / medians["unfold"], 3)
        rows.append({**row, "metric": f"{mode}, time / unfold", "value": ratio, "milliseconds": medians["ours"]})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=15, help="of each comparison")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=HERE / "results")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    rows = []
    for name in CASES:
        for row in measure(name, arguments.rounds):
            rows.append(row)
            print(f"{row['name']}: {row['metric']}: {row['value']}", flush=True)
    budget = f"{arguments.rounds} rounds"
    write_results(arguments.out / f"neighbours-{bench.processor()}.json", rows, budget=budget, seed=0)


if __name__ == "__main__":
    main()
