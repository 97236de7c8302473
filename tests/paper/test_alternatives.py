"""Methods are compared on the same photos, at the setting that is best for each."""

import numpy as np
import pytest
from PIL import Image

from paper.alternatives import compare, own_pairs, white_noise


def photos(count: int = 2) -> list:
    random = np.random.default_rng(0)
    return [random.integers(60, 190, (24, 30, 3), dtype=np.uint8) for _ in range(count)]


def test_the_best_setting_counts_for_each_photo():
    pairs = white_noise(photos(), 10)
    clean = [pair[1] for pair in pairs]
    # One setting knows the first photo, the other the second.
    settings = [lambda photo, sigma, known=known: known for known in clean]
    (row, shift) = compare("oracle", settings, pairs, "set")
    assert row["each"] == [99, 99], "equal photos"
    assert shift["value"] == 0
    (worse, _) = compare("first", settings[:1], pairs, "set")
    assert worse["each"][1] < worse["each"][0]


def test_white_noise_has_the_strength_it_says_and_none_leaves_the_photo():
    (noisy, clean, sigma), *_ = white_noise([np.full((200, 200, 3), 128, np.uint8)], 25)
    assert sigma == 25
    assert abs((noisy.astype(float) - clean).std() - 25) < 0.5, "five standard errors of 120,000 numbers, and rounding"
    ((same, photo, none),) = white_noise(photos(1), 0)
    assert none is None
    assert np.array_equal(same, photo)


def test_the_shift_of_a_channel_is_told():
    pairs = white_noise(photos(1), 0)
    redder = [lambda photo, sigma: photo + np.array([3, 0, 0], np.uint8)]
    (_, shift) = compare("redder", redder, pairs, "set")
    assert shift["value"] == 3


def test_pairs_of_ones_own_need_equal_names_and_sizes(tmp_path):
    for name, size in (("noisy", (20, 16)), ("clean", (20, 16))):
        (tmp_path / name).mkdir()
        Image.new("RGB", size).save(tmp_path / name / "a.png")
    assert len(own_pairs(tmp_path / "noisy", tmp_path / "clean")) == 1
    Image.new("RGB", (20, 17)).save(tmp_path / "clean" / "a.png")
    with pytest.raises(SystemExit, match=r"need one size; they have \(16, 20\) and \(17, 20\)"):
        own_pairs(tmp_path / "noisy", tmp_path / "clean")
    (tmp_path / "clean" / "a.png").unlink()
    with pytest.raises(SystemExit, match="have no photos of one name"):
        own_pairs(tmp_path / "noisy", tmp_path / "clean")
