"""Tiles are as large as the free memory allows; the tests use the CPU in place of a GPU."""

import pytest
import torch
from torch import nn
from torch._subclasses import FakeTensorMode

from acda import create_model
from acda.photos import memory
from acda.photos.batch import each_photo
from acda.photos.count import PeopleCounter
from acda.photos.memory import bytes_a_pixel, side_of_tiles
from acda.photos.restore import PhotoRestorer
from acda.photos.tiles import apply_in_tiles, farthest_seen
from tests.devices import DEVICES
from tests.photos.test_tiles import Plain

UNIT = torch.tensor([[0.0] * 3, [255.0] * 3])
LARGE = torch.zeros(1, 3, 5000, 5000, dtype=torch.uint8)


def network(width: int = 64) -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Conv2d(3, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1)
    return Plain(*layers, stride=1, cell=1).eval()


@pytest.fixture
def free(monkeypatch):
    """Say how many bytes are free."""
    return lambda count: monkeypatch.setattr(memory, "free_bytes", lambda device: count)


def test_the_memory_of_a_network_is_what_is_alive_at_once():
    """The image, and two maps of 64 channels where ReLU writes a new one, in float32; parameters are there before."""
    assert bytes_a_pixel(network()) == 4 * (3 + 64 + 64)
    assert bytes_a_pixel(network().double()) == 8 * (3 + 64 + 64)
    inplace = network()
    inplace.layers[1] = nn.ReLU(inplace=True)
    assert bytes_a_pixel(inplace) == 4 * (3 + 64 + 3)


@pytest.mark.parametrize("side", [150, 400, 1000])
def test_a_tile_and_its_margin_take_half_of_the_free_memory(free, side):
    each = network()
    seen = side + 2 * farthest_seen(each)
    free(2 * bytes_a_pixel(each) * seen**2)
    assert side_of_tiles(each, LARGE) == side


def test_tiles_stay_within_bounds(free):
    each = network()
    free(1)
    assert side_of_tiles(each, LARGE) == memory.SMALLEST
    free(2**50)
    assert side_of_tiles(each, LARGE) == 1024
    free(None)
    assert side_of_tiles(each, LARGE) == 1024


def test_a_network_that_looks_at_everything_gets_what_fits(free):
    whole = Plain(nn.Conv2d(3, 4, 3, padding=1), nn.InstanceNorm2d(4), stride=1, cell=1).eval()
    free(2 * bytes_a_pixel(whole) * 300**2)
    assert side_of_tiles(whole, LARGE) == 300


def test_little_memory_makes_many_tiles_and_the_same_photo(free):
    restorer, photo = PhotoRestorer(network(8), UNIT, {}), torch.rand(1, 3, 200, 300)
    seen = []
    restorer.model.register_forward_hook(lambda module, inputs, output: seen.append(output.shape[2:].numel()))
    free(2**40)
    at_once = restorer(photo)
    seen.clear()
    free(1)
    torch.testing.assert_close(restorer(photo), at_once, rtol=0, atol=1e-6)
    assert len(seen) == 6
    assert max(seen) < 200 * 300 / 2


def test_what_does_not_fit_is_told_in_a_line(tmp_path, capsys):
    def fails(path):
        raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate 20 GiB\n…")

    assert each_photo("denoise", [tmp_path / "a.png"], fails) == 1
    error = capsys.readouterr().err
    assert error == f"acda denoise: {tmp_path / 'a.png'} does not fit into the free memory. Try a smaller --tile.\n"


@pytest.mark.parametrize("device", DEVICES)
def test_a_photo_and_its_result_stay_where_they_are(device):
    torch.manual_seed(0)
    model, photo = create_model("restorer").eval(), torch.rand(1, 3, 40, 61)
    right = PhotoRestorer(model, UNIT, {})(photo)
    restored = PhotoRestorer(model, UNIT, {}).to(device)(photo)
    assert restored.device == photo.device
    torch.testing.assert_close(restored, right, rtol=0, atol=1e-3)  # a quarter of a step of uint8: GPUs may use TF32


def test_a_network_on_a_gpu_takes_photos_from_the_cpu():
    """On a fake GPU: devices are tracked, nothing is computed."""
    with FakeTensorMode(), torch.device("cuda"):
        counter = PeopleCounter(create_model("crowd_counter_s"), torch.ones(2, 3), {})
        pixels = torch.zeros(1, 3, 64, 80, dtype=torch.uint8, device="cpu")
        density = apply_in_tiles(counter.model, pixels, 1024, prepare=counter.normalised)
        assert density.device.type == "cuda"
        restorer = PhotoRestorer(create_model("restorer"), torch.ones(2, 3), {})
        assert restorer._restored_pixels(pixels, 1.0, 1024, None).device.type == "cpu"
