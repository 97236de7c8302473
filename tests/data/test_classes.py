import numpy as np
import pytest
import torch
from PIL import Image

from acda.data.batches import TestBatches, TrainBatches
from acda.data.classes import (
    ImageSet,
    MemoryLoader,
    channel_statistics,
    read_image_sets,
    read_test_set,
    shifted_and_mirrored,
)
from acda.data.image_files import read_rgb


def picture(size=(8, 6), mode="RGB") -> Image.Image:
    """Width and height; colours that tell the places apart."""
    generator = np.random.default_rng(0)
    return Image.fromarray(generator.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).convert(mode)


def make(folder, **splits) -> None:
    """splits: name → class → list of (file name, image or bytes)."""
    for split, classes in splits.items():
        for name, files in classes.items():
            (folder / split / name).mkdir(parents=True)
            for file, content in files:
                path = folder / split / name / file
                path.write_bytes(content) if isinstance(content, bytes) else content.save(path)


@pytest.fixture
def folder(tmp_path):
    make(
        tmp_path,
        train={"b": [("1.png", picture()), ("2.PNG", picture())], "a": [("1.png", picture())]},
        val={"b": [("1.png", picture())]},
    )
    return tmp_path


def test_a_folder_of_folders(folder):
    train, test = read_image_sets(folder)
    assert train.classes == test.classes == ("a", "b")
    assert train.labels.tolist() == [0, 1, 1]
    assert test.labels.tolist() == [1]
    assert train.images.shape == (3, 3, 6, 8)
    assert train.images.dtype == torch.uint8
    assert np.array_equal(train.images[0].permute(1, 2, 0).numpy(), np.asarray(picture()))
    assert read_test_set(folder, ("a", "b")).labels.tolist() == [1]


@pytest.mark.parametrize("mode", ["L", "CMYK", "P", "RGBA", "LA", "1"])
def test_other_modes_become_rgb(tmp_path, mode):
    suffix = "tif" if mode == "CMYK" else "png"
    picture(mode=mode).save(tmp_path / f"a.{suffix}")
    image = read_rgb(tmp_path / f"a.{suffix}")
    assert image.shape == (6, 8, 3)
    assert np.array_equal(image, np.asarray(picture(mode=mode).convert("RGB")))


def test_sixteen_bits_are_scaled_not_cut(tmp_path):
    values = np.array([[0, 257, 65535], [32768, 100, 65000]], dtype=np.uint16)
    Image.fromarray(values).save(tmp_path / "deep.png")
    expected = np.round(values / 257).astype(np.uint8)
    assert np.array_equal(read_rgb(tmp_path / "deep.png"), np.repeat(expected[:, :, None], 3, axis=2))


@pytest.mark.parametrize(
    ("splits", "complaint"),
    [
        ({"train": {"a": [("1.png", picture())]}}, "needs the folders train and test"),
        ({"train": {"a": [("1.png", picture())], "b": []}, "test": {"a": [("1.png", picture())]}}, "b has no images"),
        (
            {
                "train": {"a": [("1.png", picture())]},
                "test": {"a": [("1.png", picture())], "c": [("1.png", picture())]},
            },
            "no training for: c",
        ),
        (
            {"train": {"a": [("1.png", b"not an image")]}, "test": {"a": [("1.png", picture())]}},
            r"1\.png cannot be read",
        ),
        (
            {"train": {"a": [("1.png", picture()), ("2.png", picture((9, 6)))]}, "test": {"a": [("1.png", picture())]}},
            r"need one size; .*1\.png has 8×6, .*2\.png has 9×6",
        ),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, splits, complaint):
    make(tmp_path, **splits)
    with pytest.raises(ValueError, match=complaint):
        read_image_sets(tmp_path)


def test_a_truncated_file_is_named(folder):
    whole = (folder / "train" / "a" / "1.png").read_bytes()
    (folder / "train" / "a" / "1.png").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"a/1\.png cannot be read as an image"):
        read_image_sets(folder)


def test_other_classes_than_the_network_knows(folder):
    with pytest.raises(ValueError, match="no training for: b"):
        read_test_set(folder, ("a",))


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


def test_statistics_are_numpys():
    images = torch.randint(256, (7, 3, 5, 4), dtype=torch.uint8)
    mean, deviation = channel_statistics(images)
    values = images.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.double(), values.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(deviation.double(), values.std(1, correction=0), rtol=1e-6, atol=0)
    assert channel_statistics(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))[1].tolist() == [1, 1, 1]


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
