"""Heads on frozen features: the parts that need neither the photos nor ImageNet's weights."""

import math

import numpy as np
import pytest
import torch
from PIL import Image

import acda
from acda.models.efficientnet_lite import EfficientNetLite
from acda.models.lite_counter import LiteCounter
from acda.training.data.crowds import Crowd
from paper import crowd_views, heads, lite_counter
from paper.crowd_views import View, Views, batch_of, held_out, scene_of, view_of


@pytest.fixture
def crowd(tmp_path):
    """Heads are white pixels on black, so that they can be found again."""
    pixels = np.zeros((280, 300, 3), np.uint8)
    points = np.array([[20.5, 30.5], [200.5, 100.5], [299.5, 279.5]])
    for x, y in points.astype(int):
        pixels[y, x] = 255
    Image.fromarray(pixels).save(tmp_path / "crowd.png")
    return Crowd(tmp_path / "crowd.png", (280, 300), points)


def view(heads_at, side=9):
    density = torch.zeros(1, 4 * side, 4 * side)
    for row, column in heads_at:
        density[0, row, column] = 1
    maps = tuple(
        torch.zeros(width, times * side, times * side).half() for width, times in ((40, 4), (112, 2), (320, 1))
    )
    return View((maps[0] + density, *maps[1:]), density)


def test_a_photo_is_extended_to_whole_strides(crowd):
    scene = scene_of(crowd)
    assert scene.pixels.shape == (3, 288, 320)
    assert float(scene.pixels[:, 280:].abs().max()) == 0
    assert [float(scene.pixels[0, int(y), int(x)]) for x, y in scene.points] == [1, 1, 1]


def test_a_mirrored_photo_has_its_heads_where_they_are(crowd):
    scene = scene_of(crowd, mirrored=True)
    assert [float(scene.pixels[0, int(y), int(x)]) for x, y in scene.points] == [1, 1, 1]
    half = scene_of(crowd, 0.5, mirrored=True)
    np.testing.assert_allclose(half.points, scene.points / 2)


def test_a_view_has_every_head(crowd):
    found = view_of(scene_of(crowd), EfficientNetLite().eval())
    assert [each.shape[1:] for each in found.maps] == [(36, 40), (18, 20), (9, 10)]
    assert float(found.density.sum()) == pytest.approx(3)


def test_crops_keep_maps_and_density_together():
    views = Views([[view([(3, 4), (30, 35)])]], [], [view([])], [])
    maps, densities = batch_of(views, 4, 1, torch.Generator().manual_seed(0))
    assert [tuple(each.shape) for each in maps] == [(4, 40, 32, 32), (4, 112, 16, 16), (4, 320, 8, 8)]
    torch.testing.assert_close(maps[0][:, :1], densities)
    assert float(densities[0].sum()) == 0


def test_choosing_sees_no_test_photo():
    each = [[view([(i, 0)]), view([])] for i in range(20)]
    parts = held_out(Views(each, [view([])], [view([])] * 20, [view([])]))
    trained, tested = {id(a) for views in parts.crowds for a in views}, {id(a) for a in parts.tested}
    assert (len(parts.crowds), len(parts.tested), len(parts.empty), len(parts.empty_tested)) == (18, 2, 18, 2)
    assert not trained & tested
    assert tested == {id(each[0][0]), id(each[10][0])}


@pytest.mark.parametrize("loss", heads.LOSSES)
def test_the_truth_has_the_least_loss(loss):
    truth = torch.rand(2, 1, 32, 32) / 10 + 0.01
    best = heads.LOSSES[loss](truth, truth)
    assert all(heads.LOSSES[loss](truth * factor, truth) > best for factor in (0.5, 0.9, 1.1, 2.0))


@pytest.mark.parametrize("method", ["pixel", "conv"])
def test_a_seed_gives_a_decoder_that_learns(method):
    views = Views([[view([(3, 4), (30, 35)])]], [view([(3, 4)])], [view([])], [view([])])
    decoder = heads.new_decoder(method, 0)
    heads.train(decoder, views, 2, 0, "blocks")
    again = heads.new_decoder(method, 0)
    heads.train(again, views, 2, 0, "blocks")
    assert all(torch.equal(a, b) for a, b in zip(decoder.parameters(), again.parameters(), strict=True))
    found = heads.scores(decoder, views)
    assert found["mae"] == found["rmse"]
    assert found["most_without_people"] >= 0


def test_crops_for_all_layers_keep_heads_and_pixels_together(crowd, monkeypatch):
    monkeypatch.setattr(lite_counter, "SCALES", (1.0, 1.0))
    monkeypatch.setattr(lite_counter, "CROP", 256)
    for seed in range(8):
        pixels, density = lite_counter.crop_of(crowd, torch.Generator().manual_seed(seed))
        assert pixels.shape == (3, 256, 256)
        assert float(density.sum()) == pytest.approx(float((pixels[0] == 1).sum()))


def test_a_step_can_be_repeated_and_resumed(crowd, tmp_path):
    a, b = (lite_counter.batch_at(3, [crowd], [crowd]) for _ in range(2))
    assert torch.equal(a[0], b[0])
    model, other = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    assert lite_counter.resumed(tmp_path / "last.pt", {"model": other}) == 0
    lite_counter.keep(tmp_path / "last.pt", 7, 100, {"model": model})
    assert lite_counter.resumed(tmp_path / "last.pt", {"model": other}, 100) == 7
    assert torch.equal(model.weight, other.weight)
    with pytest.raises(SystemExit, match="of a run of 100 steps, not of 200"):
        lite_counter.resumed(tmp_path / "last.pt", {"model": other}, 200)


def test_the_packaged_file_loads(tmp_path):
    torch.manual_seed(0)
    model = acda.create_model("lite_counter").eval()
    assert isinstance(model, LiteCounter)
    lite_counter.package(model, tmp_path / "lite_counter.safetensors", 100)
    trained = acda.load(tmp_path / "lite_counter.safetensors")
    white = torch.full((1, 3, 64, 64), 255, dtype=torch.uint8)
    assert float(trained.normalised(white).max()) == 1
    assert math.isfinite(float(trained(white)))
    assert (tmp_path / "lite_counter.safetensors").stat().st_size < 10e6


def test_no_photo_with_people_is_a_negative(tmp_path):
    (tmp_path / "free_photos").mkdir()
    for i, name in enumerate(("001", "002", "003", "195")):
        Image.new("RGB", (8, 8), (i, i, i)).save(tmp_path / "free_photos" / f"{name}.png")
    train, test = crowd_views.without_people(tmp_path)
    assert [each.file.stem for each in (*train, *test)] == ["002", "003", "001"]
