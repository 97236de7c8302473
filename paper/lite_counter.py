"""Fine-tune all of the crowd counter, from ImageNet's features and a head that `paper.heads` trained on them.

    python -m paper.lite_counter --data DIR --head CACHE/head_pixel_0.pt --run DIR     # about an hour on one core
    python -m paper.lite_counter --run DIR --package                                   # into weights/research
    python -m paper.lite_counter --data DIR --test                                     # into results/lite_counter.json

Begun again, it goes on from its last checkpoint. Normalisations keep their statistics, and the first layers, down to a
quarter of the resolution, keep ImageNet's weights.
"""

import argparse
import math
import statistics
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda import create_model
from acda.models.lite_counter import LiteCounter
from acda.photos.image_files import read_rgb
from acda.photos.trained import Trained
from acda.photos.weight_folders import CHECKOUT
from acda.photos.weights import load, write_weights
from acda.support.files import written_whole
from acda.training.data.batches import generator_for
from acda.training.data.crowds import Crowd, density_map, read_crowds, read_test_crowds
from acda.training.recipe import Counting
from acda.training.tasks.task import rate_at
from paper.crowd_views import CELL, SCALES, SIGMA, STATISTICS, imagenet, without_people
from paper.heads import LOSS, LOSSES
from paper.results import Row, result, write

STEPS, BATCH, CROP = 1000, 4, 320
# One crop of a photo without people in each batch with this probability.
EMPTY = 0.5
RATE, BACKBONE_RATE, DECAY, SEED = 5e-4, 2e-4, 1e-4, 0
# Stages of the backbone that keep their weights, besides the stem.
FROZEN = 2
EVERY = 50
# The longest side of the training photos. Larger photos are made smaller when they are counted.
SIDE = 1024


def network(head: Path | None = None) -> LiteCounter:
    model = create_model("lite_counter")
    assert isinstance(model, LiteCounter)
    model.backbone.load_state_dict(imagenet().state_dict())
    if head is not None:
        model.decoder.load_state_dict(torch.load(head, weights_only=True))
    for part in (model.backbone.stem, *list(model.backbone.stages)[:FROZEN]):
        part.requires_grad_(False)
    return model.eval().to(memory_format=torch.channels_last)


def crop_of(crowd: Crowd, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """A crop at a random scale, mirrored or not, and its density: (3, CROP, CROP), (1, CROP/8, CROP/8)."""

    def between(low: float, high: float) -> float:
        return low + (high - low) * float(torch.rand((), generator=draw))

    scale, mirrored = math.exp(between(*map(math.log, SCALES))), between(0, 1) < 0.5
    side = round(CROP / scale)
    pixels = torch.from_numpy(read_rgb(crowd.file).copy()).permute(2, 0, 1)
    top, left = (int(between(0, max(0, length - side) + 1 - 1e-6)) for length in pixels.shape[1:])
    part = pixels[:, top : top + side, left : left + side].float() / 127.5 - 1
    part = F.pad(part, (0, side - part.shape[2], 0, side - part.shape[1]))
    points = crowd.points - (left, top)
    points = points[((points >= 0) & (points < side)).all(1)] * (CROP / side)
    if mirrored:
        part, points = part.flip(2), np.stack([np.nextafter(CROP, 0) - points[:, 0], points[:, 1]], 1)
    part = F.interpolate(part[None], (CROP, CROP), mode="bilinear", antialias=True)[0]
    cells = CROP // CELL
    return part, density_map(points, (cells, cells), SIGMA, CELL)[None].float()


def batch_at(step: int, crowds: list[Crowd], empty: list[Crowd]) -> tuple[Tensor, Tensor]:
    """The crops of a step follow from its number, so that a resumed run sees the same ones."""
    draw = generator_for(SEED, step, 0)
    chosen = [crowds[int(i)] for i in torch.randint(len(crowds), (BATCH,), generator=draw)]
    if torch.rand((), generator=draw) < EMPTY:
        chosen[0] = empty[int(torch.randint(len(empty), (), generator=draw))]
    pixels, densities = zip(*(crop_of(crowd, draw) for crowd in chosen), strict=True)
    return torch.stack(pixels), torch.stack(densities)


def train(model: LiteCounter, data: Path, run: Path, steps: int) -> None:
    crowds, _ = read_crowds(data / "shanghaitech/part_A")
    empty, _ = without_people(data)
    backbone = [p for p in model.backbone.parameters() if p.requires_grad]
    groups = [{"params": list(model.decoder.parameters()), "lr": RATE}, {"params": backbone, "lr": BACKBONE_RATE}]
    optimiser = torch.optim.AdamW(groups, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, steps // 20))
    run.mkdir(parents=True, exist_ok=True)
    parts = {"model": model, "optimiser": optimiser, "schedule": schedule}
    begun = resumed(run / "last.pt", parts, steps)
    sums, since = 0.0, time.time()
    for step in range(begun + 1, steps + 1):
        pixels, truth = batch_at(step, crowds, empty)
        value = LOSSES[LOSS](model(pixels.to(memory_format=torch.channels_last)), truth)
        optimiser.zero_grad()
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        schedule.step()
        sums += value.item()
        if step % EVERY == 0 or step == steps:
            print(f"step {step}: loss {sums / EVERY:.4f}, {(time.time() - since) / EVERY:.2f} s a step", flush=True)
            sums, since = 0.0, time.time()
            keep(run / "last.pt", step, steps, parts)


def keep(file: Path, step: int, steps: int, parts: dict[str, Any]) -> None:
    with written_whole(file) as temporary:
        states = {name: part.state_dict() for name, part in parts.items()}
        torch.save({"step": step, "steps": steps, **states}, temporary)


def resumed(file: Path, parts: dict[str, Any], steps: int | None = None) -> int:
    """The step after which a checkpoint was written, and everything as it was then; 0 where there is none.

    steps: of the whole run, which the learning rate depends on; another number is refused
    """
    if not file.exists():
        return 0
    found = torch.load(file, weights_only=True)
    if steps is not None and found.get("steps", steps) != steps:
        raise SystemExit(f"{file} is of a run of {found['steps']} steps, not of {steps}. Choose another --run.")
    for name, part in parts.items():
        part.load_state_dict(found[name])
    return int(found["step"])


def test(counter: Trained, crowds: list[Crowd], empty: list[Crowd]) -> list[Row]:
    """Errors over all photos, the median of relative ones, and the most people on photos without any; each count."""

    def count(crowd: Crowd) -> float:
        return float(counter(read_rgb(crowd.file)))

    each = {crowd.file.name: [len(crowd.points), round(count(crowd), 1)] for crowd in crowds}
    nobody = {crowd.file.name: round(count(crowd), 2) for crowd in empty}
    errors = [found - heads for heads, found in each.values()]
    relative = [abs(found - heads) / heads for heads, found in each.values()]
    figures = {
        "mae": round(statistics.mean(map(abs, errors)), 2),
        "rmse": round(math.sqrt(statistics.mean(error**2 for error in errors)), 2),
        "mean_error": round(statistics.mean(errors), 1),
        "median_relative_error": round(100 * statistics.median(relative)),
        "parameters": round(sum(p.numel() for p in counter.parameters()) / 1e6, 3),
    }
    rows = [result("lite_counter", "shanghaitech_a", "lite_counter", *figure) for figure in figures.items()]
    rows[0]["each"] = each
    most = result("lite_counter", "free_photos", "lite_counter", "most_without_people", max(nobody.values()))
    return [*rows, {**most, "photos": len(nobody), "each": nobody}]


def package(model: LiteCounter, to: Path, steps: int) -> None:
    """As paper.package does: filters in half precision. The recipe says how it is evaluated."""
    recipe = Counting(
        model="lite_counter",
        epochs=-(-steps * BATCH // 300),
        batch_size=BATCH,
        optimiser="adamw",
        learning_rate=RATE,
        weight_decay=DECAY,
        frozen_norm=True,
        crop=CROP,
        sigma=SIGMA * CELL,
        seed=SEED,
    )
    state = {f"model.{name}": t for name, t in model.state_dict().items()}
    halves = {name: t.half() if t.ndim > 2 and not name.endswith(".bases") else t for name, t in state.items()}
    facts = {"model": recipe.model, "options": "{}", "recipe": recipe.to_json(), "steps": str(steps), "side": str(SIDE)}
    write_weights(to, {**halves, "statistics": STATISTICS}, facts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--run", type=Path, help="the folder for checkpoints")
    parser.add_argument("--head", type=Path, help="a decoder that paper.heads trained")
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--package", action="store_true", help="write the file of weights instead of training")
    parser.add_argument("--test", action="store_true", help="test the file of weights instead of training")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.package:
        model = network()
        steps = resumed(options.run / "last.pt", {"model": model})
        package(model, CHECKOUT / "weights" / "research" / "lite_counter.safetensors", steps)
    elif options.test:
        counter = load("lite_counter")
        crowds = read_test_crowds(options.data / "shanghaitech/part_A")
        budget = f"a trained head, then {counter.facts['steps']} steps of {BATCH} crops of {CROP}×{CROP}, AdamW"
        write("lite_counter", test(counter, crowds, without_people(options.data)[1]), budget=budget, seed=SEED)
    else:
        train(network(options.head), options.data, options.run, options.steps)


if __name__ == "__main__":
    main()
