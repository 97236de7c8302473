"""The denoiser of weights/research on white noise, which it was not trained on.

    python -m paper.noises --data DIR     # DIR as for paper.run, with set5 and set14 beside the others

Writes results/noises.json: Set5 and Set14 without noise and with white Gaussian noise, before and after the network.
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor

from acda.photos.files import eight_bits
from acda.photos.image_files import read_rgb
from acda.photos.weights import load
from acda.training.metrics import psnr
from paper.enlargement import batch, classical
from paper.results import Row, result, write

# Standard deviations on a scale of 0–255.
NOISES = (0, 5, 15, 25, 50)
# As in `acda denoise --strength`.
STRENGTHS = {"input": 0.0, "restorer_0_5": 0.5, "restorer": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    pictures = [batch(read_rgb(path)) for path in classical(parser.parse_args().data)]
    model = load("camera_denoiser").model
    rows = [each for noise in NOISES for each in rows_of(model, pictures, noise)]
    write("noises", rows, budget="the packaged denoiser", seed=0)


@torch.no_grad()
def rows_of(model: torch.nn.Module, pictures: list[Tensor], noise: int) -> list[Row]:
    """PSNR at each strength; without noise the input has none."""
    generator = torch.Generator().manual_seed(0)
    strengths = {name: strength for name, strength in STRENGTHS.items() if noise or strength}
    each: dict[str, list[float]] = {name: [] for name in strengths}
    for clean in pictures:
        degraded = eight_bits(clean + noise / 255 * torch.randn(clean.shape, generator=generator)) / 255
        denoised = model(degraded)
        for name, strength in strengths.items():
            each[name].append(float(psnr(eight_bits(degraded.lerp(denoised, strength)) / 255, clean)))
    rows = []
    for name, values in each.items():
        mean, found = round(sum(values) / len(values), 2), [round(value, 3) for value in values]
        rows.append(result("noises", f"sigma_{noise}", name, "psnr", mean, photos=len(values), each=found))
    return rows


if __name__ == "__main__":
    main()
