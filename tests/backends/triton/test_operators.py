"""The operators on fake CUDA tensors: nothing is computed, but devices, dtypes and shapes have to agree."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from acda import AdaptiveConv2d, create_model
from acda.backends import triton
from acda.functional import per_pixel_conv2d
from tests.backends.triton import walking

pytestmark = [
    pytest.mark.skipif(torch.cuda.is_available(), reason="on a GPU tests/layers/test_devices.py runs in earnest"),
    pytest.mark.skipif(triton.find_spec("triton") is None, reason="Triton is not installed"),
]


@pytest.fixture(autouse=True)
def _fake():
    with FakeTensorMode():
        yield


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("bases", "learnable"),
    [("fourier_bessel", False), ("fourier_bessel", True), (None, False)],
    ids=["fixed bases", "learnable bases", "no bases"],
)
def test_a_training_step_of_a_layer(bases, learnable, dtype):
    layer = AdaptiveConv2d(4, 6, 5, padding=2, stride=2, groups=2, bases=bases, device="cuda", dtype=dtype)
    if learnable:
        fixed, layer._buffers["bases"] = layer.bases, None
        del layer.bases
        layer.bases = nn.Parameter(fixed)
    x = torch.randn(2, 4, 9, 8, device="cuda", dtype=dtype, requires_grad=True)
    optimizer = torch.optim.AdamW(layer.parameters())
    y = layer(x)
    assert (y.shape, y.dtype, y.device.type) == ((2, 6, 5, 4), dtype, "cuda")
    names = walking.backward(y.float().square().mean())
    assert any("acda_adaptive_conv2d" in name or "LearnableBases" in name for name in names)
    assert all(p.grad is not None for p in layer.parameters())
    assert x.grad is not None
    optimizer.step()


def test_a_training_step_of_a_network():
    with torch.device("cuda"):
        network = create_model("lenet_acda", num_classes=10)
    x, labels = torch.randn(2, 3, 32, 32, device="cuda"), torch.zeros(2, dtype=torch.long, device="cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    loss = F.cross_entropy(network(x), labels)
    walking.backward(loss)
    assert all(p.grad is not None for p in network.parameters())
    optimizer.step()


def test_per_pixel_filters():
    x, filters = torch.randn(2, 3, 6, 6, device="cuda"), torch.randn(2, 4, 3, 3, 4, 4, device="cuda")
    y = per_pixel_conv2d(x, filters.requires_grad_())
    assert (y.shape, y.device.type) == ((2, 12, 4, 4), "cuda")
    walking.backward(y.sum())
    assert filters.grad.shape == filters.shape


def test_the_gpu_kernels_count_the_same_flops_as_the_cpus():
    counts = {}
    for device in ("cuda", "cpu"):
        layer = AdaptiveConv2d(4, 6, 5, padding=2, device=device).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            layer(torch.randn(1, 4, 9, 8, device=device))
        counts[device] = counter.get_total_flops()
    assert counts["cuda"] == counts["cpu"] > 0
