"""The comparison in a residual network: where its layers differ, which images it sees, and what a run writes."""

import json

import pytest
import torch
from torch import nn

from acda.training.data.classes import ImageSet
from paper import residual


def images(classes=3, each=30, side=32):
    draw = torch.Generator().manual_seed(0)
    labels = torch.arange(classes).repeat_interleave(each)
    pixels = torch.randint(256, (len(labels), 3, side, side), generator=draw, dtype=torch.uint8)
    return ImageSet(pixels // 2 + 40 * labels[:, None, None, None].byte(), labels, tuple(map(str, range(classes))))


@pytest.mark.parametrize("method", residual.METHODS)
def test_methods_differ_where_maps_are_half_the_size_of_the_image(method):
    model = residual.network(method, 10)
    sides = {}
    for name, part in model.named_modules():
        if getattr(part, "kernel_size", (1, 1)) != (1, 1) and "generator" not in name:
            part.register_forward_hook(lambda part, _, y: sides.setdefault(y.shape[2], []).append(part))
    model.eval()(torch.zeros(1, 3, 32, 32))
    own, others = sides.pop(16), [part for parts in sides.values() for part in parts]
    kind, side = residual.METHODS[method]
    assert len(own) == 6
    assert {type(part) for part in own} == {getattr(kind, "func", kind)}
    assert {part.kernel_size for part in own} == {(side, side)}
    assert len(others) == 13
    assert {(type(part), part.kernel_size) for part in others} == {(nn.Conv2d, (3, 3))}


def test_the_cost_is_that_of_resnet_20_and_less_with_a_filter_per_pixel_than_with_large_convolutions():
    found = {name: residual.costs(name, 10, 32, rounds=1)["multiply_adds_32"] for name in ("conv_3", "pixel", "conv_7")}
    assert found["conv_3"] == pytest.approx(41, abs=1)
    assert found["conv_3"] < found["pixel"] < found["conv_7"]


def test_no_image_is_for_training_and_for_validation():
    data = images()
    train, validation = residual.split(data, 10)
    assert train.labels.bincount().tolist() == [10, 10, 10]
    assert validation.labels.bincount().tolist() == [residual.VALIDATION] * 3
    seen = {image.numpy().tobytes() for image in train.images}
    assert not any(image.numpy().tobytes() in seen for image in validation.images)
    # Their order is not that of the classes.
    assert len(validation.labels[: residual.VALIDATION].unique()) == 3
    with pytest.raises(SystemExit, match="--images needs to be at most 10; got 11"):
        residual.split(data, 11)


def test_a_run_learns_and_is_written_with_its_curve(tmp_path):
    for name in ("results", "studies"):
        (tmp_path / name).mkdir()
    data = images(each=60)
    train, validation = residual.split(data, 40)
    for seed in (0, 1):
        found = residual.run("conv_3", train, validation, validation, 0.05, 3, seed)
        assert found["top1_error"] == found["validation_error"]
        assert found["top1_error"] < 50  # classes differ in brightness; by chance it is 67
        residual.add_run(tmp_path, "cifar100", "conv_3", seed, found, "a budget")
    rows = json.loads((tmp_path / "results" / "residual.json").read_text())["rows"]
    assert {row["metric"] for row in rows} == {"top1_error", "validation_error", "statistics_gap"}
    assert all(set(row["seeds"]) == {"0", "1"} for row in rows)
    curves = json.loads((tmp_path / "studies" / "residual_curves.json").read_text())["rows"]
    assert [len(row["curve"]) for row in curves] == [3, 3]
    gap = max(abs(tested - trained) for _, tested, trained in curves[1]["curve"])
    own = next(row for row in rows if row["metric"] == "statistics_gap")
    assert own["seeds"]["1"] == pytest.approx(gap, abs=0.01)
    with pytest.raises(SystemExit, match="is for a budget, not for another"):
        residual.add_run(tmp_path, "cifar100", "conv_3", 2, found, "another")


def test_testing_leaves_the_network_as_it_was(monkeypatch):
    """With a test after each epoch and without, the same weights."""
    train, validation = residual.split(images(), 10)
    losses = []
    for test in (lambda model, data, like: 0.0, residual.error):
        monkeypatch.setattr(residual, "error", test)
        monkeypatch.setattr(residual, "BATCH", 10)
        losses.append([row[0] for row in residual.run("pixel", train, validation, None, 0.05, 2, 0)["curve"]])
    assert losses[0] == losses[1]
