"""Crowd counting on frozen ImageNet features: the same decoder with adaptive layers and with others.

    python -m paper.heads --data DIR --cache DIR --search    # loss, rate on held-out photos: studies/heads.json
    python -m paper.heads --data DIR --cache DIR             # three seeds of each: results/heads.json

DIR has `shanghaitech/part_A` and `free_photos`, whose photos without people are negatives. Features of
EfficientNet-lite0 are computed once into the folder --cache (some ten minutes, 1.3 GB). A run that its file has already
is not trained again. A run takes some five minutes on one core.
"""

import argparse
import math
import statistics
import time
from itertools import product
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda import create_model
from acda.models.lite_counter import DensityDecoder, LiteCounter
from acda.support.environment import write_results
from acda.training.tasks.task import rate_at
from paper.crowd_views import CROP, View, Views, batch_of, held_out, read_views
from paper.results import HERE, RESULTS, rows_made_with, seeds_of, with_seed

DATASET = "shanghaitech_a"
STEPS, BATCH, EMPTY, RATE, DECAY, SEEDS = 500, 8, 1, 1e-3, 1e-4, (0, 1, 2)
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    "pixel": ("lite_counter", {}),
    "conv": ("lite_counter_conv", {}),
    "condconv": ("lite_counter_condconv", {}),
    "image": ("lite_counter", {"adapt": "image"}),
    "none": ("lite_counter", {"adapt": "none"}),
}


def squared(density: Tensor, truth: Tensor) -> Tensor:
    """Mean square error of densities."""
    return F.mse_loss(density / LiteCounter.unit, truth / LiteCounter.unit)


def blocks(density: Tensor, truth: Tensor) -> Tensor:
    """Mean absolute error of the counts in blocks of 1, 2, 4 … cells a side, all in units of a cell's density."""
    error = (density - truth) / LiteCounter.unit
    return torch.stack([F.avg_pool2d(error, side).abs().mean() for side in (1, 2, 4, 8, 16, 32)]).sum()


def poisson(density: Tensor, truth: Tensor) -> Tensor:
    """Of the counts in blocks of 2×2 cells: those of crowded places vary more."""
    found, heads = (4 * F.avg_pool2d(each, 2) for each in (density, truth))
    return F.poisson_nll_loss(found, heads, log_input=False, eps=1e-6)


LOSSES = {"squared": squared, "blocks": blocks, "poisson": poisson}
LOSS = "blocks"


def new_decoder(method: str, seed: int) -> DensityDecoder:
    torch.manual_seed(seed)
    name, options = METHODS[method]
    model = create_model(name, **options)
    assert isinstance(model, LiteCounter)
    return model.decoder


def train(decoder: DensityDecoder, views: Views, steps: int, seed: int, loss: str, rate: float = RATE) -> None:
    """AdamW, a warm-up and a cosine."""
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.AdamW(decoder.parameters(), rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, steps // 20))
    decoder.train()
    sums, began = 0.0, time.time()
    for step in range(1, steps + 1):
        maps, truth = batch_of(views, BATCH, EMPTY, draw)
        value = LOSSES[loss](LiteCounter.unit * decoder(maps), truth)
        optimiser.zero_grad()
        value.backward()
        torch.nn.utils.clip_grad_norm_(decoder.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        sums += value.item()
        if step % 50 == 0:
            print(f"  step {step}: loss {sums / 50:.4f}, {(time.time() - began) / step:.2f} s a step", flush=True)
            sums = 0.0


@torch.no_grad()
def counts(decoder: DensityDecoder, views: list[View]) -> list[float]:
    decoder.eval()
    return [
        float(LiteCounter.unit * decoder(tuple(each[None].float() for each in view.maps)).double().sum())
        for view in views
    ]


def scores(decoder: DensityDecoder, views: Views) -> dict[str, float]:
    """Errors of the counts, and the most people counted where there are none."""
    truth = [round(float(view.density.sum())) for view in views.tested]
    errors = [found - heads for found, heads in zip(counts(decoder, views.tested), truth, strict=True)]
    return {
        "mae": round(statistics.mean(map(abs, errors)), 2),
        "rmse": round(math.sqrt(statistics.mean(error**2 for error in errors)), 2),
        "most_without_people": round(max(counts(decoder, views.empty_tested)), 2),
    }


def search(
    views: Views, method: str, steps: int, losses: list[str], rates: list[float], out: Path, budget: str
) -> None:
    """The errors of one method with each loss and learning rate, seed 0, on training photos that are held out."""
    rows = rows_made_with(budget, out)
    parts = held_out(views)
    for loss, rate in product(losses, rates):
        if not any((row["method"], row["loss"], row["rate"]) == (method, loss, rate) for row in rows):
            print(method, loss, rate, flush=True)
            decoder = new_decoder(method, 0)
            train(decoder, parts, steps, 0, loss, rate)
            rows.append({"method": method, "loss": loss, "rate": rate, **scores(decoder, parts)})
            write_results(out, rows, budget=budget, seed=0)
            print(rows[-1], flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True, help="a folder for features")
    parser.add_argument("--search", action="store_true", help="compare losses on held-out photos")
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES))
    parser.add_argument("--rates", nargs="+", type=float, default=[RATE])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.set_num_threads(1)
    views = read_views(options.data, options.cache)
    budget = f"{options.steps} steps of {BATCH} crops of {CROP}×{CROP}, AdamW"
    if options.search:
        out = options.out or HERE / "studies" / "heads.json"
        search(views, options.methods[0], options.steps, options.losses, options.rates, out, budget)
        return
    out, budget = options.out or RESULTS / "heads.json", f"{budget}, loss: {LOSS}"
    rows = rows_made_with(budget, out)
    for seed in options.seeds:
        for method in options.methods:
            if seed in seeds_of(row for row in rows if row["model"] == method):
                continue
            print(method, seed, flush=True)
            decoder = new_decoder(method, seed)
            train(decoder, views, options.steps, seed, LOSS)
            torch.save(decoder.state_dict(), options.cache / f"head_{method}_{seed}.pt")
            millions = sum(p.numel() for p in decoder.parameters()) / 1e6
            found = {**scores(decoder, views), "parameters": round(millions, 3)}
            rows = with_seed(rows, "heads", DATASET, method, seed, found)
            write_results(out, rows, budget=budget, seeds=seeds_of(rows))
            print(found, flush=True)


if __name__ == "__main__":
    main()
