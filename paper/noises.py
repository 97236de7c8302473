"""What the packaged denoiser does to pictures whose noise is not of the kind that it has learnt.

    python paper/noises.py --data DIR     # DIR as for run.py, with set5 and set14 beside the others

Writes results/noises.json: Set5 and Set14 as they are, and with white Gaussian noise, before and after the network.
"""

import argparse
from pathlib import Path
from typing import Any

import torch
from enlargement import batch, classical
from run import RESULTS
from torch import Tensor

from acda.photos.files import eight_bits
from acda.photos.image_files import read_rgb
from acda.photos.weights import load
from acda.support.environment import write_results
from acda.training.metrics import psnr

# Standard deviations, in steps of 256; without noise there is nothing to be compared with.
NOISES = (0, 5, 15, 25, 50)
# How much of what the network does is taken, as in `acda denoise --strength`.
STRENGTHS = {"noisy": 0.0, "ACDA at a strength of 0.5": 0.5, "ACDA": 1.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    pictures = [batch(read_rgb(path)) for path in classical(parser.parse_args().data)]
    model = load("denoiser").model
    rows = [row for noise in NOISES for row in rows_of(model, pictures, noise)]
    write_results(RESULTS / "noises.json", rows, budget="the packaged denoiser", seed=0)


@torch.no_grad()
def rows_of(model: torch.nn.Module, pictures: list[Tensor], noise: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(0)
    strengths = {name: strength for name, strength in STRENGTHS.items() if noise or strength}
    each: dict[str, list[float]] = {name: [] for name in strengths}
    for clean in pictures:
        degraded = eight_bits(clean + noise / 255 * torch.randn(clean.shape, generator=generator)) / 255
        result = model(degraded)
        for name, strength in strengths.items():
            each[name].append(float(psnr(eight_bits(degraded.lerp(result, strength)) / 255, clean)))
    common = {"table": "noises", "dataset": f"σ = {noise}", "photos": len(pictures), "metric": "PSNR on RGB, dB"}
    return [
        {**common, "name": name, "value": round(sum(values) / len(values), 2), "each": [round(v, 3) for v in values]}
        for name, values in each.items()
    ]


if __name__ == "__main__":
    main()
