"""Readers of the official layouts, density maps whose total is the number of heads, crops that keep points and pixels
together."""

import json
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from acda.photos.weights import IMAGENET_STATISTICS
from acda.training.data.batches import TestBatches, TrainBatches
from acda.training.data.crowd_crops import CrowdLoader, cropped
from acda.training.data.crowds import density_map, read_crowds

HEADS = np.array([[3.0, 4.0], [30.5, 20.25], [39.9, 29.9]])
MEAN = IMAGENET_STATISTICS[0][:, None, None]


def photo(path: Path, size=(40, 30), mode="RGB") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, 100).save(path)
    return path


def shanghaitech(folder: Path, points=HEADS) -> Path:
    for part in ("train_data", "test_data"):
        photo(folder / part / "images" / "IMG_1.jpg")
        photo(folder / part / "images" / "IMG_10.jpg", mode="L")
        for name in ("IMG_1", "IMG_10"):
            info = np.empty((1, 1), dtype=object)
            inner = np.zeros((1, 1), dtype=[("location", object), ("number", object)])
            inner[0, 0] = (points, np.array([[len(points)]]))
            info[0, 0] = inner
            target = folder / part / "ground-truth" / f"GT_{name}.mat"
            target.parent.mkdir(exist_ok=True)
            scipy.io.savemat(target, {"image_info": info})
    return folder


def ucf_qnrf(folder: Path, points=HEADS) -> Path:
    for part in ("Train", "Test"):
        photo(folder / part / "img_0001.jpg")
        scipy.io.savemat(folder / part / "img_0001_ann.mat", {"annPoints": points})
    return folder


def own(folder: Path, text: str, name: str = "points.csv") -> Path:
    for part in ("train", "test"):
        photo(folder / part / "a.jpg")
        photo(folder / part / "b.png", mode="L")
        (folder / part / name).write_text(text)
    return folder


@pytest.mark.parametrize("layout", [shanghaitech, ucf_qnrf])
def test_official_layouts(tmp_path, layout):
    for crowds in read_crowds(layout(tmp_path)):
        for crowd in crowds:
            np.testing.assert_allclose(crowd.points, HEADS)
            assert crowd.size == (30, 40)


def test_ones_own_points(tmp_path):
    table = own(tmp_path / "csv", "file,x,y\na.jpg,1,2\na.jpg,3.5,4\nb.png,,\n")
    text = json.dumps({"a.jpg": [[1, 2], [3.5, 4]], "b.png": []})
    listed = own(tmp_path / "json", "\ufeff" + text, "points.json")  # as Windows's editors begin a file
    for folder in (table, listed):
        a, b = read_crowds(folder)[0]
        assert a.points.tolist() == [[1, 2], [3.5, 4]]
        assert b.points.shape == (0, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg,1,2\n", "b.png has no points"),
        ("a.jpg,1,2\nb.png\nc.jpg,1,1\n", "photos that are not there: c.jpg"),
        ("a.jpg,1\nb.png\n", "points.csv, line 1: a file, x and y are needed; got a.jpg,1"),
        ("a.jpg,nan,1\nb.png\n", "a.jpg have values that are not numbers"),
        ("a.jpg,100,1\na.jpg,2,200\nb.png\n", "2 of the 2 points of .*a.jpg are outside its 40×30 pixels"),
    ],
)
def test_wrong_points_are_refused_by_name(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_crowds(own(tmp_path, text))


@pytest.mark.parametrize("points", [[[1, 2, 3, 4]], [[1, 2, 0.9], [3, 4, 0.8]], [1, 2], [{"x": 1, "y": 2}]])
def test_points_of_another_form_are_no_heads(tmp_path, points):
    with pytest.raises(ValueError, match=r"the points of .*a\.jpg need the form \[\[x, y\]"):
        read_crowds(own(tmp_path, json.dumps({"a.jpg": points, "b.png": []}), "points.json"))


def test_a_head_just_outside_counts_at_the_border(tmp_path):
    (crowd,), _ = read_crowds(ucf_qnrf(tmp_path, np.array([[40.0, 30.0], [-0.5, 3.0], [5.0, 5.0]])))
    assert len(crowd.points) == 3
    assert (crowd.points >= 0).all()
    assert (crowd.points < (40, 30)).all()
    assert float(density_map(crowd.points, (8, 10), 1.0, 4).sum()) == pytest.approx(3)


def test_no_heads_at_all(tmp_path):
    (crowd,), _ = read_crowds(ucf_qnrf(tmp_path, np.empty((0, 2))))
    assert len(crowd.points) == 0
    assert float(density_map(crowd.points, (8, 10), 1.0, 4).abs().sum()) == 0


def test_missing_and_broken_annotations_are_named(tmp_path):
    folder = ucf_qnrf(tmp_path)
    annotation = folder / "Test" / "img_0001_ann.mat"
    annotation.write_bytes(annotation.read_bytes()[:150])
    with pytest.raises(ValueError, match=r"img_0001_ann.mat cannot be read as an annotation"):
        read_crowds(folder)
    scipy.io.savemat(annotation, {"other": HEADS})
    with pytest.raises(ValueError, match=r"img_0001_ann.mat .*: it has no variable annPoints"):
        read_crowds(folder)
    annotation.unlink()
    with pytest.raises(ValueError, match=r"img_0001_ann.mat is missing"):
        read_crowds(folder)
    (folder / "Train" / "img_0001.jpg").write_bytes(b"not an image")
    with pytest.raises(ValueError, match=r"img_0001.jpg cannot be read as an image"):
        read_crowds(folder)
    with pytest.raises(ValueError, match="needs the folders train_data and test_data or Train and Test or train and"):
        read_crowds(tmp_path / "Train")


@given(st.integers(0, 60), st.floats(0.3, 8), st.sampled_from([1, 4]), st.integers(0, 99))
def test_the_total_of_a_density_map_is_the_number_of_heads(heads, sigma, stride, seed):
    size = (11, 17)
    points = np.random.default_rng(seed).uniform(0, 1, (heads, 2)) * (size[1] * stride, size[0] * stride)
    density = density_map(points, size, sigma, stride)
    assert float(density.sum()) == pytest.approx(heads, abs=1e-9)
    assert density.min() >= 0


def test_a_head_is_where_it_was_marked():
    density = density_map(np.array([[41.0, 22.0]]), (20, 30), 1.5, 4)
    assert divmod(int(density.argmax()), 30) == (22 // 4, 41 // 4)


@given(st.integers(-40, 40), st.integers(-40, 60), st.booleans(), st.integers(0, 99))
def test_crops_keep_points_and_pixels_together(top, left, mirrored, seed):
    """Each head is one white pixel, and is where its point is, after any crop; beyond the photo is the mean."""
    side, random = 48, np.random.default_rng(seed)
    pixels = np.zeros((50, 70, 3), np.uint8)
    places = random.choice(50 * 70, 12, replace=False)
    points = np.stack([places % 70 + 0.5, places // 70 + 0.5], 1)
    pixels[places // 70, places % 70] = 255
    image, kept = cropped(pixels, points, top, left, side, mirrored, MEAN)
    white = {(int(x), int(y)) for y, x in (image == 255).all(0).nonzero()}
    assert {(int(x), int(y)) for x, y in kept} == white
    assert image.shape == (3, side, side)
    covered = max(0, min(50, top + side) - max(0, top)) * max(0, min(70, left + side) - max(0, left))
    assert int((image == MEAN).all(0).sum()) == side**2 - covered


def test_batches_for_training_and_testing(tmp_path):
    train, test = read_crowds(shanghaitech(tmp_path))
    loader = CrowdLoader(train, TrainBatches(2, 2, seed=0), IMAGENET_STATISTICS, side=64, sigma=4.0, cell=4)
    ((images, densities),) = list(loader)
    assert images.shape == (2, 3, 64, 64)
    assert densities.shape == (2, 1, 16, 16)
    # The photos are smaller than the crop, which holds all of them: with what is around them, zero to the network.
    torch.testing.assert_close(densities.sum((1, 2, 3)), torch.tensor([3.0, 3.0]))
    assert float((images == 0).all(1).sum()) == 2 * (64 * 64 - 40 * 30)
    again = next(iter(loader))
    torch.testing.assert_close(again[0], images)
    loader.batches.set_epoch(1)
    assert not torch.equal(next(iter(loader))[0], images)
    for photos, counts in CrowdLoader(test, TestBatches(2, 1), IMAGENET_STATISTICS, 64, 4.0, 4):
        assert photos.shape == (1, 3, 30, 40)
        assert counts.tolist() == [3]


def test_a_table_in_another_encoding_and_a_turned_photo_are_named(tmp_path):
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
        Image.new("RGB", (40, 30)).save(tmp_path / part / "a.jpg")
        (tmp_path / part / "points.csv").write_text("a.jpg,3,4\n")
    (tmp_path / "test" / "points.csv").write_bytes("café.jpg,3,4\n".encode("cp1252"))
    with pytest.raises(ValueError, match=r"points\.csv cannot be read as CSV in UTF-8"):
        read_crowds(tmp_path)
    (tmp_path / "test" / "points.csv").write_text("a.jpg,3,4\n")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(tmp_path / "test" / "a.jpg", exif=exif)
    with pytest.raises(ValueError, match=r"a\.jpg has an EXIF rotation"):
        read_crowds(tmp_path)
