"""What a filter for each place gains, against how much the noise varies over the photo: into results/variation.json.

    python -m paper.variation --data DIR [--methods pixel conv_7 …] [--spreads 0 1] [--seeds 0 1]

DIR has `free_photos`. The residual network of paper/start.py with five kinds of layers, all else alike: 500 steps
of eight crops of 64×64. White noise has σ = 25 (1 + s u), with another u between -1 and 1 in each square of 16×16
pixels; the spread s goes from 0, the same everywhere, to 1. Scores are on twelve photos that were held out. A run that
the file has is not trained again. A run takes two to four minutes on one core.
"""

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import AdaptiveConv2d
from paper.results import Row, read, seeds_of, with_seed, write
from paper.start import CHANNELS, CROP, STEPS, Block, crop_of, freeze_norms, read_photos, statistics_of_the_batch

SIGMA, SQUARE = 25 / 255, 16
SPREADS = {0.0: "spread_0", 0.5: "spread_05", 1.0: "spread_1"}
# The layer, and its side.
METHODS: dict[str, tuple[Callable[..., nn.Module], int]] = {
    "conv_3": (nn.Conv2d, 3),
    "conv_7": (nn.Conv2d, 7),
    "none": (partial(AdaptiveConv2d, adapt="none"), 7),
    "image": (partial(AdaptiveConv2d, adapt="image"), 7),
    "pixel": (AdaptiveConv2d, 7),
}


def network(method: str) -> nn.Module:
    """Three residual blocks at full resolution, which predict the noise."""
    layer, side = METHODS[method]
    blocks = [Block(layer(CHANNELS, CHANNELS, side, padding=side // 2)) for _ in range(3)]
    last = nn.Conv2d(CHANNELS, 3, 3, padding=1)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU(), *blocks, last)


def noise(random: np.random.Generator, count: int, side: int, spread: float) -> Tensor:
    """(count, 3, side, side); the mean of σ is the same for every spread."""
    squares = random.uniform(-1, 1, (count, 1, side // SQUARE, side // SQUARE)).astype(np.float32)
    sigma = F.interpolate(SIGMA * (1 + spread * torch.from_numpy(squares)), scale_factor=SQUARE, mode="nearest")
    return sigma * torch.from_numpy(random.standard_normal((count, 3, side, side), dtype=np.float32))


def run(method: str, spread: float, seed: int, data: Path) -> dict[str, float]:
    """PSNR with the running statistics, and with those of the batch."""
    train, held_out = read_photos(data)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    model = network(method)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=STEPS, pct_start=0.1)
    for step in range(STEPS):
        if step == int(0.8 * STEPS):
            freeze_norms(model)
        clean = torch.stack([crop_of(train[i], random) for i in random.integers(0, len(train), 8)])
        added = noise(random, 8, CROP, spread)
        loss = (model(clean + added) + added).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    return score(model, held_out, spread)


@torch.no_grad()
def score(model: nn.Module, photos: list[np.ndarray], spread: float) -> dict[str, float]:
    random = np.random.default_rng(99)
    clean = torch.stack([torch.from_numpy(p.transpose(2, 0, 1) / np.float32(255)) for p in photos])
    noisy = clean + torch.cat([noise(random, 1, clean.shape[2], spread) for _ in photos])

    def mean_psnr() -> float:
        restored = torch.cat([part + model(part) for part in noisy.split(4)])
        return float((-10 * (restored - clean).square().mean((1, 2, 3)).log10()).mean())

    model.eval()
    tested = mean_psnr()
    with statistics_of_the_batch(model):
        return {"psnr": tested, "psnr_batch": mean_psnr()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--spreads", nargs="+", type=float, choices=SPREADS, default=list(SPREADS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[Row] = read("variation")["rows"]
    for seed in options.seeds:
        for spread in options.spreads:
            for method in options.methods:
                dataset = SPREADS[spread]
                if seed in seeds_of(r for r in rows if (r["model"], r["dataset"]) == (method, dataset)):
                    continue
                found = run(method, spread, seed, options.data)
                rows = with_seed(rows, "variation", dataset, method, seed, {k: round(v, 3) for k, v in found.items()})
                budget = f"{STEPS} steps of 8 crops of {CROP}×{CROP}, AdamW"
                write("variation", rows, budget=budget, seeds=seeds_of(rows))
                print({"method": method, "spread": spread, "seed": seed, **rows[-2]}, flush=True)


if __name__ == "__main__":
    main()
