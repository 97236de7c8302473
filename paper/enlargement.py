"""By how much City100's low resolution was enlarged, and the super-resolver on sharp pictures.

    python -m paper.enlargement --data DIR     # DIR as for paper.run, with set5 and set14 beside the others

Writes results/city100_ratio.json and results/enlargement.json: Set5 and Set14, which are sharp, reduced and enlarged
again by bicubic interpolation, before and after the network.
"""

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from scipy import signal
from torch import Tensor

from acda.photos.files import eight_bits
from acda.photos.image_files import read_rgb
from acda.photos.weights import load
from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import luma, psnr
from paper.results import Row, result, write

REDUCED = (2, 2.46, 3, 4)
# As in `acda upscale --strength`.
STRENGTHS = {"bicubic": 0.0, "restorer_0_3": 0.3, "restorer": 1.0}
# Zeros in the spectrum of cubic interpolation with OpenCV's parameter, -3/4, in cycles per pixel of the small image.
ZEROS = (0.769, 1.0)
Pixels = np.ndarray[Any, np.dtype[np.uint8]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    data = parser.parse_args().data
    write("city100_ratio", ratio(data / "city100/City100_iPhoneX"), budget="no training")
    write("enlargement", enlarged(classical(data)), budget="the packaged super_resolver", seed=0)


def classical(data: Path) -> list[Path]:
    """The pictures of Set5 and Set14."""
    return [path for name in ("set5", "set14") for path in sorted((data / name).glob("*.png"))]


def ratio(folder: Path) -> list[Row]:
    photos = [Photos(part) for part in read_pairs(folder)]
    zeros = zeros_of([part[index][0] for part in photos for index in range(len(part))])
    input_row = partial(result, "city100_ratio", "city100_iphone", "input")
    return [
        input_row("first_zero", round(zeros[0], 4)),
        input_row("second_zero", round(zeros[1], 4)),
        input_row("ratio_of_zeros", round(zeros[0] / zeros[1], 3), expected=round(ZEROS[0] / ZEROS[1], 3)),
        input_row("enlargement", round(ZEROS[1] / zeros[1], 2)),
    ]


def zeros_of(images: list[Pixels]) -> tuple[float, float]:
    """The first two dips of the mean logarithmic spectrum along rows and columns, in cycles per pixel.

    images: (H, W, 3), all of one square size.
    """
    side = len(images[0])
    window = np.hanning(side)
    low = np.abs(np.fft.fftfreq(side)) < 0.025
    spectrum = np.zeros(side // 2)
    for image in images:
        gray = image.mean(-1)
        power = np.abs(np.fft.fft2((gray - gray.mean()) * window[:, None] * window)) ** 2
        spectrum += np.log(power[: side // 2, low].mean(1)) + np.log(power[low, : side // 2].mean(0))
    (dips,) = signal.argrelmin(spectrum, order=side // 32)
    first, second = dips[:2] / side
    return float(first), float(second)


def enlarged(paths: list[Path]) -> list[Row]:
    model = load("super_resolver").model
    rows = []
    for times in REDUCED:
        each = [scores_of(model, read_rgb(path), times) for path in paths]
        for name, values in zip(STRENGTHS, zip(*each, strict=True), strict=True):
            found = {"photos": len(each), "each": [round(value, 3) for value in values]}
            rows.append(
                result("enlargement", dataset_of(times), name, "psnr_y", round(sum(values) / len(each), 2), **found)
            )
    return rows


def dataset_of(times: float) -> str:
    """The identifier of pictures that were reduced by this.

    >>> dataset_of(2.46)
    'x2_46'
    """
    return f"x{times:g}".replace(".", "_")


@torch.no_grad()
def scores_of(model: torch.nn.Module, pixels: Pixels, times: float) -> list[float]:
    """PSNR of a picture that was reduced and enlarged again, and given to the network, at each of STRENGTHS."""
    picture = Image.fromarray(pixels)
    small = picture.resize((round(picture.width / times), round(picture.height / times)), Image.Resampling.BICUBIC)
    degraded = batch(np.asarray(small.resize(picture.size, Image.Resampling.BICUBIC)))
    sharpened, clean = model(degraded), luma(batch(pixels))
    mixed = (degraded.lerp(sharpened, strength) for strength in STRENGTHS.values())
    return [float(psnr(luma(eight_bits(each) / 255), clean)) for each in mixed]


def batch(pixels: Pixels) -> Tensor:
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None].float() / 255


if __name__ == "__main__":
    main()
