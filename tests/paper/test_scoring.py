"""Scores of restored photos, and those that need no training."""

import pytest
import torch

from paper.inputs import blur, denoising
from paper.scoring import held_out, restored, score_rows
from tests.paper.pairs import write_pairs


def test_rows_have_the_mean_and_every_photo(tmp_path):
    write_pairs(tmp_path, photos=3, noise=20.0)
    psnr, ssim = score_rows("denoising", "polyu", "input", lambda x: x, held_out(tmp_path), seed=0)
    assert (psnr["metric"], psnr["photos"], psnr["seed"], len(psnr["each"])) == ("psnr", 3, 0, 3)
    assert psnr["value"] == pytest.approx(sum(psnr["each"]) / 3, abs=0.006)  # both are rounded
    assert psnr["value"] == pytest.approx(22.1, abs=0.4)  # 20 log₁₀(255 / 20), on 3 photos of 24×24
    assert (ssim["metric"], 0 < ssim["value"] < 1) == ("ssim", True)


def test_results_are_rounded_as_in_a_file(tmp_path):
    write_pairs(tmp_path, photos=1)
    ((output, clean),) = restored(lambda x: x + 0.3 / 255, held_out(tmp_path))
    ((same, _),) = restored(lambda x: x, held_out(tmp_path))
    assert torch.equal(output, same)
    ((luma, _),) = restored(lambda x: x, held_out(tmp_path), on_luma=True)
    assert (output.shape, clean.shape, luma.shape[1]) == ((1, 3, 24, 24), (1, 3, 24, 24), 1)


def test_the_blur_is_the_best_on_the_training_photos(tmp_path):
    write_pairs(tmp_path, noise=20.0)
    rows = denoising("polyu", tmp_path)
    assert [(row["model"], row["metric"]) for row in rows] == [
        ("input", "psnr"),
        ("input", "ssim"),
        ("blur", "psnr"),
        ("blur", "ssim"),
    ]
    assert rows[2]["value"] > rows[0]["value"] + 1
    assert 0.3 <= rows[2]["sigma"] <= 1.5
    constant = torch.full((1, 3, 8, 8), 0.25)
    torch.testing.assert_close(blur(1.0)(constant), constant)
