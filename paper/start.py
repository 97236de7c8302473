"""How a fresh adaptive layer should begin: the same problems, trained from several starts, into studies/start.json.

    python -m paper.start --data DIR [--only patches …] [--forms paper …] [--seeds 0 1]

DIR has `free_photos` (noise), `cifar10` (LeNet) and `shanghaitech/part_A` (counting, whose features go into
`DIR/lite0_features`, 1.3 GB). A row that the file has already is not trained again. Each problem is scored on
validation data: held-out photos, and images taken out of CIFAR's and ShanghaiTech's training sets.
"""

import argparse
import json
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor, nn

from acda import AdaptiveConv2d, AtomGenerator, create_model
from acda.decompose import decompose_filters
from acda.models.lite_counter import DensityDecoder
from acda.support.environment import write_results
from acda.training.data.patterns import PatternMap, pattern_map
from acda.training.tasks.task import rate_at
from paper import heads
from paper.crowd_views import held_out, read_views

RESULTS = Path(__file__).parent / "studies" / "start.json"
CHANNELS, CROP, STEPS, TOY_STEPS = 32, 64, 500, 1500


class Gained(nn.Module):
    """α = α₀ + g·Φ(x): static coefficients, and outside Φ's Tanh a gain that begins small."""

    def __init__(self, phi: nn.Module, static: Tensor, gain: float) -> None:
        super().__init__()
        self.phi, self.static = phi, nn.Parameter(static[:, None, None])
        self.gain = nn.Parameter(torch.full_like(self.static, gain))

    def forward(self, x: Tensor) -> Tensor:
        return self.static + self.gain * self.phi(x)


def scaled(scale: float, shift: float) -> Callable[[AdaptiveConv2d], None]:
    """Φ's last normalisation begins with this scale, and with shifts of this standard deviation."""

    def begin(layer: AdaptiveConv2d) -> None:
        assert isinstance(layer.generator, AtomGenerator)
        norm = layer.generator.predict_norm
        nn.init.constant_(norm.weight, scale)
        nn.init.normal_(norm.bias, std=shift)

    return begin


def gained(gain: float) -> Callable[[AdaptiveConv2d], None]:
    def begin(layer: AdaptiveConv2d) -> None:
        scaled(1.0, 0.0)(layer)
        static = torch.randn(layer.num_atoms * layer.num_elements).tanh()
        layer.generator = Gained(layer.generator, static, gain)

    return begin


def drawn_as_filters(scale: float) -> Callable[[AdaptiveConv2d], None]:
    """Static atoms are white filters of k×k projected onto the bases: their energy reaches the window's border."""

    def begin(layer: AdaptiveConv2d) -> None:
        scaled(scale, 0.0)(layer)
        white = torch.randn(64 * layer.num_atoms, 1, layer.window.side, layer.window.side)
        _, coefficients, _ = decompose_filters(white, layer.bases, layer.num_elements)
        mixed = torch.randn(layer.num_atoms, len(coefficients), dtype=torch.float64) @ coefficients
        # As strong in the sum of squares as the other starts, and within Tanh's range.
        mixed = mixed * (0.394294 / mixed.square().mean()).sqrt()
        assert isinstance(layer.generator, AtomGenerator)
        layer.generator.predict_norm.bias.data.copy_(mixed.clamp(-0.95, 0.95).atanh().flatten())

    return begin


FORMS: dict[str, Callable[[AdaptiveConv2d], None]] = {
    "paper": scaled(1.0, 0.0),
    "scale 0.7": scaled(0.7, 0.714),
    "scale 0.5": scaled(0.5, 0.866),
    "scale 0.2": scaled(0.2, 0.98),
    "scale 0.1": scaled(0.1, 0.995),
    "scale 0.2, shift 0.5": scaled(0.2, 0.5),
    "scale 0.2, shift 2": scaled(0.2, 2.0),
    "scale 1, shift 1": scaled(1.0, 1.0),
    "scale 0.5, shift 1": scaled(0.5, 1.0),
    "scale 0": scaled(0.0, 1.0),
    "gain 0.1": gained(0.1),
    "gain 0.3": gained(0.3),
    "gain 1": gained(1.0),
    "atoms as filters": drawn_as_filters(0.2),
}
# Ordinary convolutions in the same place.
CONVOLUTIONS = {"conv 3×3": 3, "conv 7×7": 7}


def start(model: nn.Module, form: str) -> nn.Module:
    for layer in model.modules():
        if isinstance(layer, AdaptiveConv2d) and form in FORMS:
            FORMS[form](layer)
    return model


@contextmanager
def statistics_of_the_batch(model: nn.Module) -> Iterator[None]:
    """Train mode, without a trace in the running statistics."""
    kept = {name: t.clone() for name, t in model.named_buffers()}
    model.train()
    yield
    for name, t in model.named_buffers():
        t.copy_(kept[name])
    model.eval()


def freeze_norms(model: nn.Module) -> None:
    """From here on, normalise with the running statistics."""
    for part in model.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval()


@dataclass(frozen=True)
class Change:
    """What a run does otherwise. Scores along the run are in eval and in train mode.

    built: is given the fresh network and the number of steps
    tested: surrounds each test; is given the network and some inputs of training
    trained: surrounds each test in train mode, which it sets
    """

    built: Callable[[nn.Module, int], None] = lambda model, steps: None
    tested: Callable[[nn.Module, Iterable[Tensor]], AbstractContextManager[None]] = lambda model, inputs: nullcontext()
    trained: Callable[[nn.Module], AbstractContextManager[None]] = statistics_of_the_batch


UNCHANGED = Change()


# --- two colours, 80 small images: the set on which the paper's start diverges -------------------------------------


def two_colours(form: str, seed: int, data: Path) -> dict[str, Any]:
    """LeNet, 12 epochs of 5 steps of SGD: losses of the last epoch, and the highest in eval mode."""
    draw = torch.Generator().manual_seed(seed)
    labels = torch.arange(80) % 2
    colour = torch.tensor([[200.0, 40, 40], [40, 40, 200]])[labels][:, :, None, None]
    images = (colour + 20 * torch.randn(80, 3, 32, 32, generator=draw)).clamp(0, 255).round()
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    torch.manual_seed(seed)
    model = start(create_model("lenet" if form in CONVOLUTIONS else "lenet_acda", num_classes=2), form)
    curve = []
    for loss in epochs_of_sgd(model, images, labels, 12, 16, 0.05, draw):
        with torch.no_grad():
            curve.append((loss, float(F.cross_entropy(model.eval()(images), labels))))
    return {"train loss": curve[-1][0], "loss": curve[-1][1], "highest loss": max(c[1] for c in curve), "curve": curve}


def epochs_of_sgd(
    model: nn.Module, images: Tensor, labels: Tensor, epochs: int, batch: int, rate: float, draw: torch.Generator
) -> Iterator[float]:
    """Train as `acda train` does: Nesterov, weight decay, warm-up and cosine; yields the loss of each epoch."""
    optimiser = torch.optim.SGD(groups(model, 5e-4), rate, momentum=0.9, nesterov=True)
    return _epochs(model, optimiser, images, labels, epochs, batch, draw)


def groups(model: nn.Module, decay: float) -> list[dict[str, Any]]:
    return [{"params": [p], "weight_decay": decay if p.ndim > 1 else 0.0} for p in model.parameters()]


def _epochs(
    model: nn.Module,
    optimiser: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    epochs: int,
    batch: int,
    draw: torch.Generator,
) -> Iterator[float]:
    steps = epochs * (len(images) // batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: rate_at(step, steps, 200))
    for _ in range(epochs):
        model.train()
        losses = []
        for chosen in torch.randperm(len(images), generator=draw)[: len(images) // batch * batch].split(batch):
            loss = F.cross_entropy(model(images[chosen]), labels[chosen])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
            losses.append(float(loss.detach()))
        yield float(np.mean(losses))


# --- the paper's toy problem, at the demo's budget ------------------------------------------------------------------


def toy(form: str, seed: int, data: Path, optimiser: str = "sgd", change: Change = UNCHANGED) -> dict[str, Any]:
    """One 7×7 layer, 1,500 steps on one image; mean square error in eval and in train mode, and the size of mixing."""
    scene = pattern_map(seed)
    torch.manual_seed(seed)
    layer: nn.Module = nn.Conv2d(1, 1, 7, padding=3)
    if form not in CONVOLUTIONS:
        layer = start(AdaptiveConv2d(1, 1, 7, padding=3), form)
    change.built(layer, TOY_STEPS)
    method: torch.optim.Optimizer = torch.optim.Adam(layer.parameters(), lr=0.01)
    if optimiser == "sgd":
        method = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9)
    curve = []
    for step in range(TOY_STEPS):
        loss = (layer(scene.image) - scene.target).square().mean()
        method.zero_grad()
        loss.backward()
        method.step()
        if step in (0, 19, 49, 99) or step % 100 == 99:
            curve.append([step + 1, float(loss.detach()), float(layer.weight.detach().norm())])  # type: ignore[operator]
            if change is not UNCHANGED:
                curve[-1] += toy_scores(layer, scene, change)
    tested, _ = toy_scores(layer, scene, change)
    return {"loss": tested, "train loss": curve[-1][1], "curve": curve}


@torch.no_grad()
def toy_scores(layer: nn.Module, scene: PatternMap, change: Change) -> tuple[float, float]:
    """Mean square error in eval and in train mode."""
    with change.tested(layer.eval(), [scene.image]):
        tested = float((layer(scene.image) - scene.target).square().mean())
    with change.trained(layer):
        trained = float((layer(scene.image) - scene.target).square().mean())
    layer.train()
    return tested, trained


def toy_adam(form: str, seed: int, data: Path, change: Change = UNCHANGED) -> dict[str, Any]:
    return toy(form, seed, data, "adam", change)


# --- noise that varies over the photo, and noise that does not -------------------------------------------------------


class Block(nn.Module):
    def __init__(self, conv: nn.Module) -> None:
        super().__init__()
        self.conv, self.norm, self.mix = conv, nn.BatchNorm2d(CHANNELS), nn.Conv2d(CHANNELS, CHANNELS, 1)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.mix(F.relu(self.norm(self.conv(x))))
        return y


def residual_network(form: str) -> nn.Module:
    """Three residual blocks at full resolution, which predict the noise."""
    side = CONVOLUTIONS.get(form, 7)
    kind: Callable[..., nn.Module] = nn.Conv2d if form in CONVOLUTIONS else AdaptiveConv2d
    blocks = [Block(kind(CHANNELS, CHANNELS, side, padding=side // 2)) for _ in range(3)]
    last = nn.Conv2d(CHANNELS, 3, 3, padding=1)
    for parameter in last.parameters():
        nn.init.zeros_(parameter)
    return start(nn.Sequential(nn.Conv2d(3, CHANNELS, 3, padding=1), nn.ReLU(), *blocks, last), form)


def read_photos(data: Path) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Small photos: 60 for training, 12 for validation, of which the upper left part is used."""
    files = sorted((data / "free_photos").glob("*.avif"))
    held_out = files[::8]
    read = [np.asarray(Image.open(file).convert("RGB").resize((512, 342))) for file in files]
    photos = dict(zip(files, read, strict=True))
    train = [photos[file] for file in files if file not in held_out]
    return train[:60], [photos[file][:256, :256] for file in held_out[:12]]


def noise_for(random: np.random.Generator, count: int, side: int, varying: bool) -> Tensor:
    """White noise of σ = 25, or with a different σ between 0 and 50 in each square of 16×16 pixels."""
    sigma = torch.full((count, 1, side, side), 25 / 255)
    if varying:
        squares = torch.from_numpy(random.random((count, 1, side // 16, side // 16), dtype=np.float32)) * 50 / 255
        sigma = F.interpolate(squares, scale_factor=16, mode="nearest")
    return torch.from_numpy(random.standard_normal((count, 3, side, side), dtype=np.float32)) * sigma


class Noise(nn.Module):
    """What a restorer subtracts from a photo, negative."""

    def __init__(self, restorer: nn.Module) -> None:
        super().__init__()
        self.restorer = restorer

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.restorer(x) - x
        return y


def denoise(
    form: str,
    seed: int,
    data: Path,
    varying: bool,
    network: Callable[[str], nn.Module] = residual_network,
    change: Change = UNCHANGED,
) -> dict[str, Any]:
    """AdamW, 500 steps of eight crops; PSNR on the held-out photos, in eval mode and with the batch's statistics."""
    train, tested = read_photos(data)
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    model = network(form)
    change.built(model, STEPS)
    optimiser = torch.optim.AdamW(model.parameters(), 2e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=STEPS, pct_start=0.1)
    curve = []
    for step in range(STEPS):
        if step % 100 == 0:
            model.train()
        if step >= 0.8 * STEPS:
            freeze_norms(model)
        crops = [crop_of(train[i], random) for i in random.integers(0, len(train), 8)]
        clean = torch.stack(crops)
        noise = noise_for(random, 8, CROP, varying)
        loss = (model(clean + noise) + noise).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        if step % 100 == 99:
            with torch.no_grad():
                curve.append([step + 1, float(loss), *score(model, tested, varying, train, change)])
    return {"PSNR": curve[-1][2], "PSNR, batch statistics": curve[-1][3], "curve": curve}


def crop_of(photo: np.ndarray, random: np.random.Generator) -> Tensor:
    top, left = random.integers(0, photo.shape[0] - CROP), random.integers(0, photo.shape[1] - CROP)
    return torch.from_numpy(photo[top : top + CROP, left : left + CROP].transpose(2, 0, 1) / np.float32(255))


def noisy_crops(photos: list[np.ndarray], varying: bool) -> Iterator[Tensor]:
    """Batches as those of training, without an end, and always the same."""
    random = np.random.default_rng(98)
    while True:
        clean = torch.stack([crop_of(photos[i], random) for i in random.integers(0, len(photos), 8)])
        yield clean + noise_for(random, 8, CROP, varying)


def score(
    model: nn.Module, photos: list[np.ndarray], varying: bool, train: list[np.ndarray], change: Change
) -> tuple[float, float]:
    random = np.random.default_rng(99)
    clean = torch.stack([torch.from_numpy(p.transpose(2, 0, 1) / np.float32(255)) for p in photos])
    noisy = clean + torch.cat([noise_for(random, 1, 256, varying) for _ in photos])

    def mean_psnr() -> float:
        restored = torch.cat([part + model(part) for part in noisy.split(4)])
        return float((-10 * (restored - clean).square().mean((1, 2, 3)).log10()).mean())

    training = [part.training for part in model.modules()]
    with change.tested(model.eval(), noisy_crops(train, varying)):
        tested = mean_psnr()
    with change.trained(model):
        trained = mean_psnr()
    for part, mode in zip(model.modules(), training, strict=True):
        part.training = mode
    return tested, trained


def patches(form: str, seed: int, data: Path, change: Change = UNCHANGED) -> dict[str, Any]:
    return denoise(form, seed, data, varying=True, change=change)


def uniform(form: str, seed: int, data: Path) -> dict[str, Any]:
    return denoise(form, seed, data, varying=False)


def restorer(form: str, seed: int, data: Path) -> dict[str, Any]:
    """The paper's restorer on noise that varies: AdamW, 500 steps of eight crops."""
    name = "restorer_conv" if form in CONVOLUTIONS else "restorer"
    return denoise(form, seed, data, True, lambda form: Noise(start(create_model(name), form)))


# --- a head that counts on frozen features ---------------------------------------------------------------------------


def counting(form: str, seed: int, data: Path) -> dict[str, Any]:
    """A decoder on EfficientNet-lite0's features, 250 steps of eight crops; MAE on held-out training photos."""
    views = held_out(read_views(data, data / "lite0_features"))
    decoder = start(heads.new_decoder("conv" if form in CONVOLUTIONS else "pixel", seed), form)
    assert isinstance(decoder, DensityDecoder)
    heads.train(decoder, views, 250, seed, heads.LOSS)
    return dict(heads.scores(decoder, views))


# --- LeNet on a fifth of CIFAR-10 ------------------------------------------------------------------------------------


def lenet(
    form: str, seed: int, data: Path, optimiser: str = "sgd", epochs: int = 5, change: Change = UNCHANGED
) -> dict[str, Any]:
    """10,000 training images, 5,000 others of the training set for validation; five epochs."""
    images, labels = read_cifar(data)
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    model = start(create_model("lenet" if form in CONVOLUTIONS else "lenet_acda"), form)
    change.built(model, epochs * (10_000 // 128))
    if optimiser == "sgd":
        method: torch.optim.Optimizer = torch.optim.SGD(groups(model, 5e-4), 0.05, momentum=0.9, nesterov=True)
    else:
        method = torch.optim.AdamW(groups(model, 1e-2), 2e-3)
    curve = []
    train, other = slice(0, 10_000), slice(10_000, 15_000)
    for loss in _epochs(model, method, images[train], labels[train], epochs, 128, draw):
        with torch.no_grad():
            with change.tested(model.eval(), images[train].split(128)):
                tested = error(model, images[other], labels[other])
            with change.trained(model):
                trained = error(model, images[other], labels[other])
        curve.append([loss, tested, trained])
    return {"error": curve[-1][1], "error, batch statistics": curve[-1][2], "train loss": curve[-1][0], "curve": curve}


def lenet_adamw(form: str, seed: int, data: Path) -> dict[str, Any]:
    return lenet(form, seed, data, "adamw")


def lenet_long(form: str, seed: int, data: Path) -> dict[str, Any]:
    """Fifteen epochs: does a slow start catch up?"""
    return lenet(form, seed, data, epochs=15)


def error(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    wrong = [(model(i).argmax(1) != t).sum() for i, t in zip(images.split(500), labels.split(500), strict=True)]
    return 100 * float(sum(wrong)) / len(labels)


def read_cifar(data: Path) -> tuple[Tensor, Tensor]:
    """15,000 images of the training set, equally many of each class, shuffled."""
    classes = sorted((data / "cifar10" / "train").iterdir())
    files = [(file, label) for label, folder in enumerate(classes) for file in sorted(folder.glob("*.png"))[:1500]]
    order = np.random.default_rng(0).permutation(len(files))
    pixels = np.stack([np.asarray(Image.open(files[i][0])) for i in order]).transpose(0, 3, 1, 2)
    images = torch.from_numpy(pixels.astype(np.float32))
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    return images, torch.tensor([files[i][1] for i in order])


PROBLEMS = {
    f.__name__: f
    for f in (two_colours, toy, toy_adam, patches, uniform, restorer, counting, lenet, lenet_adamw, lenet_long)
}


def without_nan(value: Any) -> Any:
    """For JSON, which has no NaN and no infinity."""
    if isinstance(value, dict):
        return {key: without_nan(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [without_nan(part) for part in value]
    return value if not isinstance(value, float) or math.isfinite(value) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--forms", nargs="+", choices=[*FORMS, *CONVOLUTIONS], default=[*FORMS, *CONVOLUTIONS])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = json.loads(options.out.read_text())["rows"] if options.out.exists() else []
    for problem in options.only:
        for seed in options.seeds:
            for form in options.forms:
                key = {"problem": problem, "form": form, "seed": seed}
                if any(all(row[k] == v for k, v in key.items()) for row in rows):
                    continue
                if form == "conv 3×3" and problem not in ("patches", "uniform"):
                    continue
                rows.append({**key, **without_nan(PROBLEMS[problem](form, seed, options.data))})
                write_results(options.out, rows, budget=PROBLEMS[problem].__doc__)
                print({k: v for k, v in rows[-1].items() if k != "curve"}, flush=True)


if __name__ == "__main__":
    main()
