import os
import signal

import numpy as np
import pytest
import torch
from PIL import Image

from acda.photos.weights import IMAGENET_STATISTICS
from acda.training.data.batches import TestBatches, TrainBatches, generator_for
from acda.training.data.classes import FileSet, ImageSet, channel_statistics
from acda.training.data.loading import FileLoader, MemoryLoader, random_box, shifted_and_mirrored


def test_shifting_and_mirroring_image_by_image():
    images = torch.arange(2 * 3 * 5 * 4, dtype=torch.uint8).view(2, 3, 5, 4)
    same = shifted_and_mirrored(images, torch.tensor([[2, 2], [2, 2]]), torch.tensor([False, True]), 2)
    assert torch.equal(same[0], images[0])
    assert torch.equal(same[1], images[1].flip(2))
    moved = shifted_and_mirrored(images, torch.tensor([[0, 2], [2, 3]]), torch.tensor([False, False]), 2)
    assert torch.equal(moved[0, :, 2:], images[0, :, :3])
    assert not moved[0, :, :2].any()
    assert torch.equal(moved[1, :, :, :3], images[1, :, :, 1:])
    assert not moved[1, :, :, 3].any()


def loader(batches, margin=2) -> MemoryLoader:
    torch.manual_seed(0)
    images = torch.randint(256, (24, 3, 6, 6), dtype=torch.uint8)
    return MemoryLoader(ImageSet(images, torch.arange(24), ()), batches, channel_statistics(images), margin)


def test_augmentation_is_per_image_and_does_not_depend_on_the_processes():
    whole = list(loader(TrainBatches(24, 8, 3)))
    parts = [list(loader(TrainBatches(24, 4, 3, rank, 2))) for rank in range(2)]
    for (x, y), *shares in zip(whole, *parts, strict=True):
        assert torch.equal(torch.cat([s[0] for s in shares]), x)
        assert torch.equal(torch.cat([s[1] for s in shares]), y)
    again = list(loader(TrainBatches(24, 8, 3)))
    assert all(torch.equal(a[0], b[0]) for a, b in zip(whole, again, strict=True))
    later = loader(TrainBatches(24, 8, 3))
    later.batches.set_epoch(1)
    assert not torch.equal(next(iter(later))[0], whole[0][0])


def test_test_images_are_left_alone():
    tests = loader(TestBatches(24, 10))
    images = torch.cat([x for x, _ in tests])
    assert images.mean().abs() < 1e-5
    assert images.std(correction=0).item() == pytest.approx(1, abs=1e-3)
    assert torch.cat([y for _, y in tests]).tolist() == list(range(24))


def test_an_epoch_can_begin_in_its_middle():
    whole = list(loader(TrainBatches(24, 4, 3)))
    stopped = loader(TrainBatches(24, 4, 3))
    batches = iter(stopped)
    for _ in range(4):
        next(batches)
    fresh = loader(TrainBatches(24, 4, 3))
    fresh.load_state_dict(stopped.state_dict())
    rest = list(fresh)
    assert len(rest) == 2
    for a, b in zip(rest, whole[4:], strict=True):
        assert torch.equal(a[0], b[0])
    assert len(list(fresh)) == 6
    assert fresh.state_dict()["taken"] == 0
    with pytest.raises(ValueError, match=r"epochs of 6 steps, now they would have 3: .* the number of processes"):
        loader(TrainBatches(24, 4, 3, world=2)).load_state_dict(stopped.state_dict())


@pytest.fixture
def files(tmp_path) -> FileSet:
    generator, paths = np.random.default_rng(0), []
    for i in range(7):
        Image.fromarray(generator.integers(0, 255, (40 + i, 50, 3), dtype=np.uint8)).save(tmp_path / f"{i}.png")
        paths.append(tmp_path / f"{i}.png")
    return FileSet(tuple(paths), torch.arange(7), tuple("abcdefg"))


def test_files_are_decoded_alike_by_any_number_of_workers_and_processes(files):
    alone = list(FileLoader(files, TrainBatches(7, 4, 1), 16))
    assert alone[0][0].shape == (4, 3, 16, 16)
    for a, b in zip(alone, FileLoader(files, TrainBatches(7, 4, 1), 16, workers=2), strict=True):
        assert torch.equal(a[0], b[0])
    parts = [list(FileLoader(files, TrainBatches(7, 2, 1, rank, 2), 16)) for rank in range(2)]
    assert torch.equal(torch.cat([part[0][0] for part in parts]), alone[0][0])
    later = FileLoader(files, TrainBatches(7, 4, 1), 16)
    later.batches.set_epoch(1)
    assert not torch.equal(next(iter(later))[0], alone[0][0])


def test_test_files_show_their_centre(files):
    ((images, labels),) = list(FileLoader(files, TestBatches(7, 10), 16))
    assert labels.tolist() == list(range(7))
    side = 40 * 0.875
    box = ((50 - side) / 2, (40 - side) / 2, (50 + side) / 2, (40 + side) / 2)
    with Image.open(files.files[0]) as image:
        expected = torch.from_numpy(np.asarray(image.resize((16, 16), Image.Resampling.BILINEAR, box)).copy())
    back = images[0] * IMAGENET_STATISTICS[1][:, None, None] + IMAGENET_STATISTICS[0][:, None, None]
    torch.testing.assert_close(back, expected.permute(2, 0, 1).float(), rtol=0, atol=1e-3)


def test_random_parts_lie_in_the_image_and_have_the_sizes_they_should():
    areas = []
    for i in range(500):
        left, top, right, bottom = random_box(60, 40, generator_for(i))
        assert 0 <= left < right <= 60 + 1e-6
        assert 0 <= top < bottom <= 40 + 1e-6
        assert 3 / 4 - 1e-6 <= (right - left) / (bottom - top) <= 4 / 3 + 1e-6
        areas.append((right - left) * (bottom - top) / 2400)
    assert min(areas) >= 0.08 - 1e-6
    assert min(areas) < 0.12
    assert max(areas) > 0.8
    assert random_box(1000, 1, generator_for(0)) == (499.5625, 0.0625, 500.4375, 0.9375)


def test_other_images_with_the_same_labels_are_noticed():
    begun, other = loader(TrainBatches(24, 4, 3)), loader(TrainBatches(24, 4, 3))
    other.set.images[5, 0, 0, 0] += 1
    with pytest.raises(ValueError, match="started with other images than there are now"):
        other.load_state_dict(begun.state_dict())


@pytest.mark.parametrize("workers", [0, 2])
def test_an_image_that_breaks_in_the_middle_is_one_line_with_its_name(files, workers):
    content = files.files[3].read_bytes()
    files.files[3].write_bytes(content[: len(content) // 2])
    with pytest.raises(ValueError, match=r"3\.png cannot be read as an image") as caught:
        list(FileLoader(files, TrainBatches(7, 2, 1), 16, workers=workers))
    assert "\n" not in str(caught.value)
    assert "DataLoader" not in str(caught.value)


class Deadly:
    def __getitem__(self, index):
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_was_killed_is_one_line(files, monkeypatch):
    loader = FileLoader(files, TrainBatches(7, 2, 1), 16, workers=1)
    monkeypatch.setattr(loader, "images", lambda seed: Deadly())
    with pytest.raises(ValueError, match=r"reads images was killed \(.*\)\. Try fewer --workers") as caught:
        list(loader)
    assert "\n" not in str(caught.value)
