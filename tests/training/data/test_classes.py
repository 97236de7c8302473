import numpy as np
import pytest
import torch
from PIL import Image

from acda.photos.image_files import check_whole, read_rgb
from acda.training.data.classes import (
    channel_statistics,
    list_image_sets,
    list_test_set,
    read_image_sets,
    read_test_set,
)


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
        ({"train": {"a": [("1.png", picture())]}}, "needs the folders train and val"),
        ({"train": {"a": [("1.png", picture())], "b": []}, "test": {"a": [("1.png", picture())]}}, "b has no images"),
        (
            {
                "train": {"a": [("1.png", picture())]},
                "test": {"a": [("1.png", picture())], "c": [("1.png", picture())]},
            },
            "not in the training set: c",
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


def test_the_labelled_folder_is_taken_where_there_are_two(folder):
    """ImageNet's test images have no classes."""
    (folder / "test").mkdir()
    picture().save(folder / "test" / "1.png")
    assert read_image_sets(folder)[1].labels.tolist() == [1]


def test_the_wanted_cifar_or_none(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(ValueError, match="has CIFAR10; CIFAR100 is needed"):
        read_image_sets(tmp_path, "CIFAR100")
    with pytest.raises(ValueError, match="CIFAR10's files are not complete"):
        read_image_sets(tmp_path)
    (tmp_path / "cifar-100-python").mkdir()
    with pytest.raises(ValueError, match="CIFAR100's files are not complete"):
        read_image_sets(tmp_path, "CIFAR100")
    with pytest.raises(ValueError, match="has CIFAR10 and CIFAR100; one of them is needed"):
        read_image_sets(tmp_path)


def test_a_file_with_something_behind_its_end_is_whole(tmp_path):
    """As phones write it: a short film after the photo."""
    picture().save(tmp_path / "a.jpg")
    check_whole(tmp_path / "a.jpg")
    with (tmp_path / "a.jpg").open("ab") as file:
        file.write(b"film" * 5000)
    check_whole(tmp_path / "a.jpg")
    picture((200, 200)).save(tmp_path / "cut.bmp")
    (tmp_path / "cut.bmp").write_bytes((tmp_path / "cut.bmp").read_bytes()[:5000])
    with pytest.raises(ValueError, match=r"cut.bmp cannot be read as an image"):
        check_whole(tmp_path / "cut.bmp")


def test_other_classes_than_the_network_knows(folder):
    with pytest.raises(ValueError, match="not in the training set: b"):
        read_test_set(folder, ("a",))


def test_statistics_are_numpys():
    images = torch.randint(256, (7, 3, 5, 4), dtype=torch.uint8)
    mean, deviation = channel_statistics(images)
    values = images.double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(mean.double(), values.mean(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(deviation.double(), values.std(1, correction=0), rtol=1e-6, atol=0)
    assert channel_statistics(torch.zeros(1, 3, 2, 2, dtype=torch.uint8))[1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_files_are_listed_and_a_truncated_one_is_named(tmp_path, suffix):
    make(
        tmp_path,
        train={"a": [(f"1.{suffix}", picture((90, 60)))], "b": [(f"2.{suffix}", picture((60, 90)))]},
        val={"b": [(f"3.{suffix}", picture((70, 70)))]},
    )
    train, test = list_image_sets(tmp_path)
    assert [path.name for path in train.files] == [f"1.{suffix}", f"2.{suffix}"]
    assert train.labels.tolist() == [0, 1]
    assert test.labels.tolist() == [1]
    assert list_test_set(tmp_path, ("a", "b")).labels.tolist() == [1]
    whole = train.files[1].read_bytes()
    train.files[1].write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(ValueError, match=rf"b/2\.{suffix} cannot be read as an image \(.*truncated"):
        list_image_sets(tmp_path)
    train.files[1].write_bytes(b"")
    with pytest.raises(ValueError, match=rf"b/2\.{suffix} cannot be read"):
        list_image_sets(tmp_path)
