import numpy as np
import pytest
import torch

from acda.training.data.patterns import PATTERNS, pattern_map


def test_patterns_have_the_papers_sizes():
    assert [p.shape for p in PATTERNS] == [(3, 3), (5, 5), (7, 7)]


@pytest.mark.parametrize("seed", range(5))
def test_every_target_is_the_centre_of_a_pattern_and_no_pattern_is_missing(seed):
    image, target = pattern_map(seed, noise=0.0)
    sizes = []
    rebuilt = torch.zeros_like(image)
    for y, x in target[0, 0].nonzero().tolist():
        for pattern in PATTERNS:
            h = len(pattern) // 2
            place = (0, 0, slice(y - h, y + h + 1), slice(x - h, x + h + 1))
            if np.array_equal(image[place].numpy(), pattern.astype(np.float32)):
                rebuilt[place] += torch.as_tensor(pattern, dtype=torch.float32)
                sizes.append(len(pattern))
    assert torch.equal(rebuilt, image), "the patterns overlap, or something else is in the image"
    assert sorted(sizes) == [3] * 9 + [5] * 8 + [7] * 8
    assert not image[:, :, 80:].any()
    assert not image[:, :, :, 80:].any()


def test_a_seed_gives_one_map():
    assert torch.equal(pattern_map(3).image, pattern_map(3).image)
    assert not torch.equal(pattern_map(3).image, pattern_map(4).image)


def test_shifting_moves_image_and_target_together():
    scene = pattern_map(0)
    moved = scene.shifted(20)
    for before, after in zip(scene, moved, strict=True):
        assert torch.equal(before[:, :, :80, :80], after[:, :, 20:, 20:])
    assert moved.target.sum() == 25


def test_no_room_is_said():
    with pytest.raises(ValueError, match="no room is left"):
        pattern_map(0, size=25, margin=0)
    with pytest.raises(ValueError, match="larger map"):
        pattern_map(0, size=25)
