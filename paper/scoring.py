"""PSNR and SSIM of restored photos, photo by photo, rounded to uint8 as a file would be."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from acda.photos.files import eight_bits
from acda.training.data.pair_crops import Photos
from acda.training.data.pairs import read_pairs
from acda.training.metrics import luma, psnr, ssim
from paper.results import Row, result

Restore = Callable[[Tensor], Tensor]


def held_out(folder: Path) -> Photos:
    """The test photos of a dataset."""
    return Photos(read_pairs(folder)[1])


def score_rows(
    table: str, dataset: str, model: str, restore: Restore, photos: Photos, on_luma: bool = False, **facts: Any
) -> list[Row]:
    """Two rows: the mean PSNR, with that of each photo, and the mean SSIM."""
    each = scores(restore, photos, on_luma)
    psnrs, ssims = zip(*each, strict=True)
    kind = "_y" if on_luma else ""
    facts = {"photos": len(each), **facts}
    return [
        result(table, dataset, model, f"psnr{kind}", round(mean(psnrs), 2), **facts, each=[round(p, 3) for p in psnrs]),
        result(table, dataset, model, f"ssim{kind}", round(mean(ssims), 4), **facts),
    ]


def mean(values: tuple[float, ...]) -> float:
    return sum(values) / len(values)


def scores(restore: Restore, photos: Photos, on_luma: bool = False) -> list[tuple[float, float]]:
    """PSNR and SSIM of each photo."""
    return [(float(psnr(*pair)), float(ssim(*pair))) for pair in restored(restore, photos, on_luma)]


def restored(restore: Restore, photos: Photos, on_luma: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """Each photo restored and rounded, and clean; in RGB, or their luma."""
    for index in range(len(photos)):
        degraded, clean = torch.from_numpy(photos[index].transpose(0, 3, 1, 2).copy()).float()[:, None] / 255
        with torch.no_grad():
            output = eight_bits(restore(degraded)) / 255
        yield (luma(output), luma(clean)) if on_luma else (output, clean)
