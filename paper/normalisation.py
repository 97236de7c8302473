"""Φ's two normalisations replaced, and how far eval mode is from train mode: into results/normalisation.json.

    python -m paper.normalisation --data DIR [--problems toy_adam …] [--methods batch_norm …] [--seeds 0 1]

DIR has `cifar10` (LeNet) and `free_photos` (noise in patches). The problems are three of paper/start.py, with its
networks, steps and validation data. Scores are with the running statistics, which is how a network is used, and with
Φ, not the rest of the network, in train mode. The largest distance of both is over all tests of a run: after each epoch
of LeNet, every 100 steps of the others. In the denoising problem all batch normalisations keep their running statistics
for the last fifth of the steps.

studies/normalisation.json has every run with its curve. A run that it has is not trained again. A run takes
some minutes on one core.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import AtomGenerator
from acda.support.environment import write_results
from paper.results import HERE, Row, seeds_of, with_seed
from paper.start import Change, lenet, patches, toy_adam, without_nan

TABLE = "normalisation"
NORMS = ("squeeze_norm", "predict_norm")
# Batches from which statistics are computed again.
BATCHES = 20


def generators(model: nn.Module) -> list[AtomGenerator]:
    return [part for part in model.modules() if isinstance(part, AtomGenerator)]


def replaced(model: nn.Module, steps: int, new: Callable[[int, int], nn.Module]) -> None:
    """new(channels, steps) in place of each normalisation of Φ, with its scale and shift."""
    for phi in generators(model):
        for name in NORMS:
            old = getattr(phi, name)
            norm = new(old.num_features, steps)
            norm.load_state_dict({"weight": old.weight, "bias": old.bias}, strict=False)
            setattr(phi, name, norm)


class BatchRenorm2d(nn.BatchNorm2d):
    """Batch renormalisation (Ioffe 2017): in training, too, nearly what the running statistics give.

    x̂ = r (x - μ_B)/σ_B + d, with r = σ_B/σ and d = (μ_B - μ)/σ as constants. They are limited: to none for the first
    part of the steps, then more and more widely, in the proportions of the paper's section 4.2. Departs from it: the
    running statistics have torch's momentum of 0.1, because our runs are short; and σ² has the running mean, not σ.
    """

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__(channels)
        self.steps = steps

    def limits(self) -> tuple[float, float]:
        """The largest r, and the largest d, after the steps so far."""
        assert self.num_batches_tracked is not None
        done = int(self.num_batches_tracked) / self.steps
        return 1 + 2 * ramp(done, 5 / 160, 40 / 160), 5 * ramp(done, 5 / 160, 25 / 160)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return super().forward(x)
        running_mean, running_var, batches = self.running_mean, self.running_var, self.num_batches_tracked
        assert running_mean is not None
        assert running_var is not None
        assert batches is not None
        mean, var = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        sigma = (var + self.eps).sqrt()
        largest_r, largest_d = self.limits()
        with torch.no_grad():
            running_sigma = (running_var + self.eps).sqrt()
            r = (sigma / running_sigma).clamp(1 / largest_r, largest_r)
            d = ((mean - running_mean) / running_sigma).clamp(-largest_d, largest_d)
        scale = self.weight * r / sigma
        shift = self.bias + self.weight * d - mean * scale
        with torch.no_grad():
            batches.add_(1)
            running_mean.lerp_(mean, 0.1)
            running_var.lerp_(var, 0.1)
        return x * scale[:, None, None] + shift[:, None, None]


def ramp(at: float, begin: float, end: float) -> float:
    """0 up to begin, 1 from end on, and straight between them."""
    return min(1.0, max(0.0, (at - begin) / (end - begin)))


class EarlyRunning2d(nn.BatchNorm2d):
    """The statistics of the batch for a fifth of the steps, then the running ones of that moment."""

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__(channels)
        self.steps = steps

    def forward(self, x: Tensor) -> Tensor:
        assert self.num_batches_tracked is not None
        if self.training and int(self.num_batches_tracked) >= 0.2 * self.steps:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)


class PixelNorm2d(nn.LayerNorm):
    """A layer normalisation over the channels of each pixel."""

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__(channels)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x.permute(0, 2, 3, 1))
        return y.permute(0, 3, 1, 2)


class ScaleAndShift2d(nn.Module):
    """No normalisation: what is learned in every other variant too."""

    def __init__(self, channels: int, steps: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(channels)), nn.Parameter(torch.zeros(channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight[:, None, None] + self.bias[:, None, None]


def momentum(model: nn.Module, steps: int, value: float) -> None:
    for phi in generators(model):
        for name in NORMS:
            getattr(phi, name).momentum = value


@contextmanager
def recomputed(model: nn.Module, inputs: Iterable[Tensor]) -> Iterator[None]:
    """Within, the running statistics of Φ are the means over some batches of training, in eval mode for all else."""
    kept = {name: t.clone() for name, t in model.named_buffers()}
    norms = [getattr(phi, name) for phi in generators(model) for name in NORMS]
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # the mean of all batches
        norm.train()
    with torch.no_grad():
        for x in islice(inputs, BATCHES):
            model(x)
    for norm, value in zip(norms, momenta, strict=True):
        norm.momentum = value
        norm.eval()
    yield
    for name, t in model.named_buffers():
        t.copy_(kept[name])


@contextmanager
def phi_in_train_mode(model: nn.Module) -> Iterator[None]:
    """Within, Φ is in train mode and all else in eval mode: the distance of both is that of Φ alone."""
    kept = {name: t.clone() for name, t in model.named_buffers()}
    model.eval()
    for phi in generators(model):
        phi.train()
    yield
    for name, t in model.named_buffers():
        t.copy_(kept[name])
    model.eval()


METHODS = {
    "batch_norm": Change(),
    "momentum_001": Change(built=partial(momentum, value=0.01)),
    "momentum_05": Change(built=partial(momentum, value=0.5)),
    "recomputed": Change(tested=recomputed),
    "renormalisation": Change(built=partial(replaced, new=BatchRenorm2d)),
    "early_running": Change(built=partial(replaced, new=EarlyRunning2d)),
    "pixel_norm": Change(built=partial(replaced, new=PixelNorm2d)),
    "no_norm": Change(built=partial(replaced, new=ScaleAndShift2d)),
}


class Problem(NamedTuple):
    train: Callable[..., dict[str, Any]]
    metric: str
    unit: float
    digits: int
    column: int
    """where a row of the curve has the score in eval mode; that in train mode is behind it"""
    first: int = 0
    """the first test that counts for the distance"""


PROBLEMS = {
    # From step 100 on: before, the running statistics still have much of those of no batch.
    "toy_adam": Problem(toy_adam, "mse_millionths", 1e-6, 2, 3, first=3),
    "lenet": Problem(lenet, "top1_error", 1, 2, 1),
    "patches": Problem(patches, "psnr", 1, 3, 2),
}


def run(problem: str, method: str, seed: int, data: Path) -> dict[str, Any]:
    """Scores by metric, none where a score is not finite, and the curve."""
    train, metric, unit, digits, column, first = PROBLEMS[problem]
    # The layer begins as it does by default.
    curve = train("scale 0.2", seed, data, change=replace(METHODS[method], trained=phi_in_train_mode))["curve"]
    tests = [(row[column] / unit, row[column + 1] / unit) for row in curve]
    gap = max((abs(a - b) for a, b in tests[first:]), key=lambda d: math.inf if math.isnan(d) else d)
    tested, trained = tests[-1]
    scores = {metric: tested, f"{metric}_batch": trained, f"{metric}_gap": gap}
    finite = all(math.isfinite(value) for value in scores.values())
    rounded = {name: round(value, digits) for name, value in scores.items()} if finite else None
    return {"scores": rounded, "curve": without_nan(curve)}


def summary(runs: list[dict[str, Any]]) -> list[Row]:
    """Rows of the table. A variant has no score on a problem where one of its runs did not end with a number."""
    rows: list[Row] = []
    diverged = {(r["problem"], r["method"]) for r in runs if r["scores"] is None}
    for r in runs:
        if (r["problem"], r["method"]) not in diverged:
            rows = with_seed(rows, TABLE, f"start_{r['problem']}", r["method"], r["seed"], r["scores"])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--folder", type=Path, default=HERE, help="which has the folders results and studies")
    options = parser.parse_args()
    torch.set_num_threads(1)
    study = options.folder / "studies" / f"{TABLE}.json"
    runs: list[dict[str, Any]] = json.loads(study.read_text())["rows"] if study.exists() else []
    for problem in options.problems:
        for seed in options.seeds:
            for method in options.methods:
                key = {"problem": problem, "method": method, "seed": seed}
                if any(all(r[k] == v for k, v in key.items()) for r in runs):
                    continue
                runs.append({**key, **run(problem, method, seed, options.data)})
                budget = "toy: 1,500 steps of Adam; LeNet: 5 epochs of 10,000 images; noise in patches: 500 steps"
                write_results(study, runs, budget=budget)
                rows = summary(runs)
                write_results(options.folder / "results" / f"{TABLE}.json", rows, budget=budget, seeds=seeds_of(rows))
                print({**key, **(runs[-1]["scores"] or {"scores": None})}, flush=True)


if __name__ == "__main__":
    main()
