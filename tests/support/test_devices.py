import pytest
import torch

from acda.support.devices import device_named, free_bytes
from tests.devices import DEVICES


@pytest.fixture
def there(monkeypatch):
    """Say which accelerators torch finds."""

    def find(*names: str) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: "cuda" in names)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda: "mps" in names)

    return find


@pytest.mark.parametrize(
    ("found", "taken"), [(("cuda", "mps"), "cuda"), (("cuda",), "cuda"), (("mps",), "mps"), ((), "cpu")]
)
def test_auto_takes_cuda_then_mps_then_the_cpu(there, found, taken):
    there(*found)
    assert device_named("auto").type == taken
    assert device_named("cpu").type == "cpu"
    for name in found:
        assert device_named(name).type == name


@pytest.mark.parametrize("name", ["cuda", "mps"])
def test_a_device_that_is_not_there_is_refused_with_the_reason(there, monkeypatch, name):
    there()
    with pytest.raises(ValueError, match=rf"^--device {name} cannot be used: .* Use --device cpu, or leave it out\.$"):
        device_named(name)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", None)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: False)
    with pytest.raises(ValueError, match="this torch is built without"):
        device_named(name)


def test_other_names_are_refused():
    with pytest.raises(ValueError, match="one of auto, cpu, cuda, mps; got 'gpu'"):
        device_named("gpu")


@pytest.mark.parametrize("device", DEVICES)
def test_free_memory_is_asked_of_the_device(device):
    free = free_bytes(torch.device(device))
    assert free is None or free > 2**20


def test_what_torch_holds_unused_on_a_gpu_is_free(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 8000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 500)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 200)
    assert free_bytes(torch.device("cuda")) == 1300


def test_where_memory_cannot_be_asked_nothing_is_said():
    assert free_bytes(torch.device("meta")) is None
