"""A residual network with adaptive layers on maps of 16×16, and with others in their place: results/residual.json.

    python -m paper.residual --data DIR --search    # learning rates on validation images: studies/residual.json
    python -m paper.residual --data DIR [--methods pixel conv_3 …] [--seeds 0 1 2]

DIR has `cifar100`, or with `--dataset tinyimagenet20` that, as folders of classes. The network is a ResNet-20 for small
images: stride 1 at the start, no pooling before the end, three stages of three blocks with 16, 32 and 64 channels. The
methods differ in the six layers of its second stage, whose maps are 16×16 for images of 32×32; all others are 3×3
convolutions. On the smaller maps of the third stage, much of a 7×7 window lies outside. In the first stage, with 16
channels, predicting and building the atoms of each pixel costs more than a 7×7 convolution.

Φ has 8 hidden channels instead of 64. On 32 channels its two convolutions then take 8 thousand multiply-adds per pixel,
building the atoms 5 thousand, applying them 16 thousand; a 7×7 convolution takes 50 thousand. With 64 hidden channels Φ
alone would take 64 thousand.

By default 100 images of each class of CIFAR-100 are used for 10 epochs, so that all methods can be compared in two
hours on one slow core. Twenty other images of each class are for validation: rates are chosen on them, and after each
epoch the error with the running statistics and with those of the batch is written to studies/residual_curves.json. The
test images are used once, after the last epoch. A run that the results have is not trained again.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import AdaptiveConv2d
from acda.cost import count
from acda.layers import CondConv2d
from acda.support.environment import write_results
from acda.training.data.batches import TrainBatches
from acda.training.data.classes import ImageSet, channel_statistics, read_image_sets
from acda.training.data.loading import MemoryLoader
from acda.training.tasks.task import rate_at
from paper.results import HERE, Row, rows_made_with, seeds_of, with_seed
from paper.start import groups, statistics_of_the_batch
from paper.tuning import part_of, place_in_class

TABLE = "residual"
DATASETS = ("cifar100", "tinyimagenet20")
BATCH, IMAGES, VALIDATION, EPOCHS, WARMUP = 64, 100, 20, 10, 100
RATE, DECAY = 0.1, 5e-4
RATES = (0.03, 0.1, 0.3)
WIDTHS, BLOCKS, STAGE = (16, 32, 64), 3, 1
HIDDEN = 8
Kind = Callable[..., nn.Module]
# The layer, and its side.
METHODS: dict[str, tuple[Kind, int]] = {
    "conv_3": (nn.Conv2d, 3),
    "conv_7": (nn.Conv2d, 7),
    "condconv": (CondConv2d, 3),
    "none": (partial(AdaptiveConv2d, adapt="none"), 7),
    "image": (partial(AdaptiveConv2d, adapt="image", hidden=HIDDEN), 7),
    "pixel": (partial(AdaptiveConv2d, hidden=HIDDEN), 7),
}


class Block(nn.Module):
    """Two layers beside a shortcut. Begins as the shortcut."""

    def __init__(self, before: int, after: int, stride: int, kind: Kind, side: int) -> None:
        super().__init__()
        self.first = kind(before, after, side, stride=stride, padding=side // 2, bias=False)
        self.second = kind(after, after, side, padding=side // 2, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(after), nn.BatchNorm2d(after)
        nn.init.zeros_(self.second_norm.weight)
        self.shortcut: nn.Module = nn.Identity()
        if before != after or stride != 1:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + self.shortcut(x))


def network(method: str, classes: int) -> nn.Module:
    parts: list[nn.Module] = [nn.Conv2d(3, WIDTHS[0], 3, padding=1, bias=False), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU()]
    before = WIDTHS[0]
    for stage, width in enumerate(WIDTHS):
        kind, side = METHODS[method] if stage == STAGE else METHODS["conv_3"]
        for block in range(BLOCKS):
            parts.append(Block(before, width, 2 if stage and not block else 1, kind, side))
            before = width
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)
    # The faster format for all methods.
    return nn.Sequential(*parts, *head).to(memory_format=torch.channels_last)


def split(data: ImageSet, images: int) -> tuple[ImageSet, ImageSet]:
    """So many images of each class for training, and the last ones for validation, in random order.

    A batch needs several classes where its own statistics are used.
    """
    place = place_in_class(data.labels)
    sizes = data.labels.bincount()
    if images > int(sizes.min()) - VALIDATION:
        raise SystemExit(f"--images needs to be at most {int(sizes.min()) - VALIDATION}; got {images}.")
    held_out = (place >= sizes[data.labels] - VALIDATION).nonzero().flatten()
    held_out = held_out[torch.randperm(len(held_out), generator=torch.Generator().manual_seed(0))]
    return part_of(data, place < images), part_of(data, held_out)


def train(
    model: nn.Module, data: ImageSet, rate: float, epochs: int, seed: int, after_epoch: Callable[[float], None]
) -> None:
    """SGD with a warm-up and a cosine; images shifted by an eighth of their side, and mirrored."""
    batches = TrainBatches(len(data.images), BATCH, seed)
    loader = MemoryLoader(data, batches, channel_statistics(data.images), data.images.shape[3] // 8)
    optimiser = torch.optim.SGD(groups(model, DECAY), rate, momentum=0.9, nesterov=True)
    steps = epochs * len(batches)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, WARMUP))
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        model.train()
        losses = []
        for images, labels in loader:
            loss = F.cross_entropy(model(images.contiguous(memory_format=torch.channels_last)), labels)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        after_epoch(statistics.mean(losses))


@torch.no_grad()
def error(model: nn.Module, data: ImageSet, like: Tensor) -> float:
    """Top-1 error in percent, in the mode that the model has. like: mean and deviation of each channel, (2, 3)"""
    mean, deviation = like[:, :, None, None]
    wrong = 0
    for images, labels in zip(data.images.split(BATCH), data.labels.split(BATCH), strict=True):
        x = ((images.float() - mean) / deviation).contiguous(memory_format=torch.channels_last)
        wrong += int((model(x).argmax(1) != labels).sum())
    return 100 * wrong / len(data.labels)


def run(
    method: str,
    train_set: ImageSet,
    validation: ImageSet,
    test_set: ImageSet | None,
    rate: float,
    epochs: int,
    seed: int,
) -> dict[str, Any]:
    """Errors after the last epoch, and the curve: loss, validation errors in eval mode and with the batch's moments."""
    torch.manual_seed(seed)
    model = network(method, len(train_set.classes))
    like = channel_statistics(train_set.images)
    curve: list[list[float]] = []

    def record(loss: float) -> None:
        tested = error(model.eval(), validation, like)
        with statistics_of_the_batch(model):
            curve.append([round(loss, 4), tested, error(model, validation, like)])
        print(f"  {method}, seed {seed}, epoch {len(curve)}: {curve[-1]}", flush=True)

    train(model, train_set, rate, epochs, seed, record)
    found = {"validation_error": curve[-1][1], "statistics_gap": round(max(abs(c[1] - c[2]) for c in curve), 2)}
    if test_set is not None:
        found["top1_error"] = error(model.eval(), test_set, like)
    return {**found, "curve": curve}


def costs(method: str, classes: int, side: int, rounds: int = 5) -> dict[str, float]:
    """Parameters and multiply-adds in millions; time of a training step, by turns with 3×3 convolutions."""
    counted = count(network(method, classes), (1, 3, side, side))
    models = [network(name, classes) for name in ("conv_3", method)]
    images = torch.randn(BATCH, 3, side, side).contiguous(memory_format=torch.channels_last)
    ratios = []
    for _ in range(rounds + 1):
        first, second = (step_seconds(model, images) for model in models)
        ratios.append(second / first)
    return {
        "parameters": round(counted.parameters / 1e6, 3),
        f"multiply_adds_{side}": round(counted.multiply_adds / 1e6, 2),
        "time_over_conv_small": round(statistics.median(ratios[1:]), 2),
    }


def step_seconds(model: nn.Module, images: Tensor) -> float:
    """Of the processor, which other processes lengthen less than the clock's."""
    begun = time.process_time()
    F.cross_entropy(model.train()(images), torch.zeros(len(images), dtype=torch.long)).backward()
    return time.process_time() - begun


def search(methods: list[str], train_set: ImageSet, validation: ImageSet, epochs: int, out: Path, budget: str) -> None:
    """The validation error of each method at each rate, seed 0."""
    rows: list[dict[str, Any]] = rows_made_with(budget, out)
    for method in methods:
        for rate in RATES:
            if not any((row["method"], row["rate"]) == (method, rate) for row in rows):
                found = run(method, train_set, validation, None, rate, epochs, 0)
                rows.append({"method": method, "rate": rate, **found})
                write_results(out, rows, budget=budget, seed=0)
                print({k: v for k, v in rows[-1].items() if k != "curve"}, flush=True)


def add_run(folder: Path, dataset: str, method: str, seed: int, found: dict[str, Any], budget: str) -> None:
    """One more run into results/residual.json, and its curve into studies/residual_curves.json of the folder."""
    found = dict(found)
    curve = {"dataset": dataset, "method": method, "seed": seed, "curve": found.pop("curve")}
    curves = folder / "studies" / "residual_curves.json"
    kept = [r for r in rows_made_with(budget, curves) if any(r[k] != curve[k] for k in ("dataset", "method", "seed"))]
    write_results(curves, [*kept, curve], budget=budget)
    results = folder / "results" / "residual.json"
    rows: list[Row] = rows_made_with(budget, results)
    rows = with_seed(rows, TABLE, dataset, method, seed, found)
    write_results(results, rows, budget=budget, seeds=seeds_of(rows))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--dataset", choices=DATASETS, default=DATASETS[0])
    parser.add_argument("--search", action="store_true", help="compare learning rates on validation images")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--images", type=int, default=IMAGES, help="of each class, for training")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--rate", type=float, default=RATE)
    parser.add_argument("--folder", type=Path, default=HERE, help="which has the folders results and studies")
    options = parser.parse_args()
    torch.set_num_threads(1)
    whole, test_set = read_image_sets(options.data / options.dataset)
    train_set, validation = split(whole, options.images)
    budget = f"{options.images} images of each class, {options.epochs} epochs, batch {BATCH}, SGD"
    if options.search:
        out = options.folder / "studies" / "residual.json"
        search(options.methods, train_set, validation, options.epochs, out, f"{options.dataset}, {budget}")
        return
    budget = f"{budget}, rate {options.rate:g}"
    results = options.folder / "results" / "residual.json"
    for seed in options.seeds:
        for method in options.methods:
            rows = rows_made_with(budget, results)
            if seed in seeds_of(r for r in rows if (r["model"], r["dataset"]) == (method, options.dataset)):
                continue
            begun = time.time()
            found = run(method, train_set, validation, test_set, options.rate, options.epochs, seed)
            found |= costs(method, len(whole.classes), whole.images.shape[3])
            add_run(options.folder, options.dataset, method, seed, found, budget)
            shown = {key: value for key, value in found.items() if key != "curve"}
            print(
                {"method": method, "seed": seed, **shown, "minutes": round((time.time() - begun) / 60, 1)}, flush=True
            )


if __name__ == "__main__":
    main()
