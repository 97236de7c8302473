"""Pictures of restored photos, by trained networks and runs: crops side by side, and the noise that was learned.

    python -m paper.crops --data DIR     # DIR as for paper.run

Writes pictures/super_resolution.png, pictures/denoising.png and pictures/noise.png. Photos are the first and the last
of each test set, and where there is one set, that in the middle; a crop is where the input is farthest from the truth.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.models import VariationalDenoiser
from acda.photos.files import eight_bits
from acda.photos.weight_folders import named_weights
from acda.photos.weights import load
from acda.support.drawing import new_figure, save
from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import luma, psnr
from paper.results import PICTURES
from paper.runs import weights_of

SIDE = 96


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    city = {"City100": data / "city100/City100_iPhoneX"}
    if networks := loaded({"LP-KPN": "city100_lp_kpn", "ACDA": "super_resolver"}):
        draw_crops(city, "low resolution", networks, "high resolution", "super_resolution.png", on_luma=True)
    noisy = {"PolyU": data / "denoising/polyu", "SIDD": data / "denoising/sidd"}
    if networks := loaded({"ACDA": "camera_denoiser", "ACDA, variational": "polyu_sidd_restorer_variational"}):
        draw_crops(noisy, "noisy", networks, "clean", "denoising.png")
        draw_noise(noisy, networks["ACDA, variational"], "noise.png")


def loaded(names: dict[str, str]) -> dict[str, torch.nn.Module]:
    """Weights with a name, or runs, by their titles; none where one of them is missing."""
    named = named_weights()
    files = {title: named.get(name) or weights_of(name) for title, name in names.items()}
    missing = [file for file in files.values() if not file.exists()]
    if missing:
        print(f"not drawn, because these weights are missing: {', '.join(map(str, missing))}")
        return {}
    return {title: load(file).model for title, file in files.items()}


def draw_crops(
    sets: dict[str, Path],
    before: str,
    networks: dict[str, torch.nn.Module],
    after: str,
    name: str,
    on_luma: bool = False,
) -> None:
    """A row for each photo: its input, the networks' results and the truth, with the PSNR of the whole photo."""
    pairs = list(chosen(sets, 3 if len(sets) == 1 else 2))
    figure = new_figure(2.2 * (2 + len(networks)), 2.4 * len(pairs))
    for row, (label, degraded, clean) in zip(figure.subplots(len(pairs), 2 + len(networks)), pairs, strict=True):
        y, x = worst_place(degraded, clean)
        with torch.no_grad():
            results = {before: degraded, **{title: model(degraded) for title, model in networks.items()}}
        for axes, (title, result) in zip(row, {**results, after: clean}.items(), strict=True):
            shown = eight_bits(result) / 255
            axes.imshow(shown[0, :, y : y + SIDE, x : x + SIDE].permute(1, 2, 0).numpy())
            a, b = (luma(shown), luma(clean)) if on_luma else (shown, clean)
            axes.set_title(title if title == after else f"{title}, {float(psnr(a, b)):.2f} dB", fontsize=9)
            axes.set(xticks=[], yticks=[])
        row[0].set_ylabel(label, fontsize=8)
    save(figure, PICTURES / name)


def draw_noise(sets: dict[str, Path], model: torch.nn.Module, name: str) -> None:
    """The true residual beside the standard deviation of the noise that the network predicts; colours are averaged."""
    assert isinstance(model, VariationalDenoiser)
    pairs = list(chosen(sets, 1))
    figure = new_figure(9.6, 2.9 * len(pairs))
    for row, (label, degraded, clean) in zip(figure.subplots(len(pairs), 3, squeeze=False), pairs, strict=True):
        with torch.no_grad():
            believed = 255 * model.posterior(degraded).noise().mean(1)[0]
        true = 255 * (degraded - clean).square().mean(1)[0].sqrt()
        row[0].imshow(degraded[0].permute(1, 2, 0).numpy())
        row[0].set_title(label, fontsize=9)
        highest = float(true.quantile(0.995))
        for axes, values, title in ((row[1], true, "true residual"), (row[2], believed, "learned noise")):
            shown = axes.imshow(values.numpy(), cmap="magma", vmin=0, vmax=highest)
            axes.set_title(title, fontsize=9)
        figure.colorbar(shown, ax=row[2], label="0–255")
        for axes in row:
            axes.set_axis_off()
    save(figure, PICTURES / name)


def chosen(sets: dict[str, Path], count: int) -> Iterator[tuple[str, Tensor, Tensor]]:
    """So many photos of each set, evenly from the first to the last: name, degraded and clean, (1, 3, H, W)."""
    for title, folder in sets.items():
        photos = Photos(read_pairs(folder)[1])
        for index in [0] if count == 1 else [i * (len(photos) - 1) // (count - 1) for i in range(count)]:
            degraded, clean = torch.from_numpy(photos[index].transpose(0, 3, 1, 2).copy()).float()[:, None] / 255
            yield f"{title}, {photos.pairs[index].scene.partition('_')[0]}", degraded, clean


def worst_place(degraded: Tensor, clean: Tensor) -> tuple[Any, ...]:
    """Upper left corner of the crop with the largest square error."""
    errors = F.avg_pool2d((degraded - clean).square().mean(1, keepdim=True), SIDE, stride=1)[0, 0]
    return divmod(int(errors.argmax()), errors.shape[1])


if __name__ == "__main__":
    main()
