"""Times of denoising: the photo, and what they are relative to."""

import numpy as np

from paper import denoising_time


def test_a_photo_is_continued_by_its_mirror_images():
    photo = np.random.default_rng(0).integers(0, 256, (20, 30, 3), dtype=np.uint8)
    large = denoising_time.mirrored(photo, 45, 60)
    assert large.shape == (45, 60, 3)
    assert np.array_equal(large[:20, :30], photo)
    assert np.array_equal(large[20:40, :30], photo[::-1])
    assert np.array_equal(large[40:, 30:], photo[:5, ::-1])
    assert np.array_equal(denoising_time.mirrored(photo, 7, 9), photo[:7, :9])


def test_times_are_relative_to_the_first_method(monkeypatch):
    monkeypatch.setattr(denoising_time, "seconds", lambda method, photo: method(photo, None))
    photo = np.zeros((64, 64, 3), np.uint8)
    rows = denoising_time.rows_of("some", photo, {"first": lambda p, s: 4.0, "other": lambda p, s: 6.0})
    assert [(row["model"], row["value"], row["seconds"]) for row in rows] == [("first", 1.0, 4.0), ("other", 1.5, 6.0)]
