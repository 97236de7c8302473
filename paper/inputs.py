"""The restoration tables' rows that need no training: the input itself, and a blur.

    python -m paper.inputs --data DIR     # DIR as for paper.run; --only denoising for one of the two

Writes results/city100_input.json (the low resolution) and results/denoising_input.json (the noisy photo, and a Gaussian
blur with the width that is best on the training photos).
"""

import argparse
from pathlib import Path

import torch
from scipy import ndimage
from torch import Tensor

from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import psnr
from paper.results import Row, write
from paper.runs import DENOISING
from paper.scoring import Restore, held_out, restored, score_rows

WIDTHS = [0.05 * step for step in range(6, 31)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the datasets")
    parser.add_argument("--only", choices=["city100", "denoising"])
    options = parser.parse_args()
    if options.only != "denoising":
        photos = held_out(options.data / "city100/City100_iPhoneX")
        rows = score_rows("city100", "city100_iphone", "input", lambda x: x, photos, on_luma=True)
        write("city100_input", rows, budget="no training", seed=0)
    if options.only != "city100":
        rows = [row for name, folder in DENOISING.items() for row in denoising(name, options.data / folder)]
        write("denoising_input", rows, budget="no training", seed=0)


def denoising(dataset: str, folder: Path) -> list[Row]:
    train, test = (Photos(part) for part in read_pairs(folder))
    width = max(WIDTHS, key=lambda sigma: sum(float(psnr(*pair)) for pair in restored(blur(sigma), train)))
    return [
        *score_rows("denoising", dataset, "input", lambda x: x, test),
        *score_rows("denoising", dataset, "blur", blur(width), test, sigma=round(width, 2)),
    ]


def blur(sigma: float) -> Restore:
    def blurred(x: Tensor) -> Tensor:
        return torch.from_numpy(ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest"))

    return blurred


if __name__ == "__main__":
    main()
