"""The layer's main claims on every available device."""

import copy

import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d, create_model
from acda.backends import choose, reference
from acda.functional import adaptive_conv2d
from tests.devices import DEVICES

LAYERS = {
    "7×7": {"kernel_size": 7, "padding": 3},
    "strided, dilated, groups": {"kernel_size": 5, "stride": 2, "dilation": (1, 2), "groups": 2},
    "no bases, reflected": {"kernel_size": 3, "padding": 1, "bases": None, "padding_mode": "reflect"},
}
pytestmark = pytest.mark.parametrize("device", DEVICES)


@pytest.fixture(autouse=True)
def _float32_is_float32():
    """Without TF32 the tolerance is that of float32, whatever the device."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        yield


def results(layer: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """The output, and the gradients of the input and of all parameters, on the CPU in float64."""
    x = x.detach().requires_grad_()
    y = layer(x)
    grads = torch.autograd.grad(y.square().mean(), [x, *layer.parameters()])
    return [t.detach().cpu().double() for t in (y, *grads)]


def relative_error(ours: torch.Tensor, truth: torch.Tensor) -> float:
    return float((ours - truth).norm() / truth.norm().clamp_min(1e-30))


@pytest.mark.parametrize("options", LAYERS.values(), ids=LAYERS)
def test_values_and_gradients_are_those_of_the_reference_in_float64(device, options):
    layer, x = AdaptiveConv2d(4, 6, **options), torch.randn(2, 4, 13, 14)
    truth = copy.deepcopy(layer).double()
    truth.backend = "reference"
    for ours, right in zip(results(layer.to(device), x.to(device)), results(truth, x.double()), strict=True):
        # Φ's normalisations magnify the rounding of float32 in the gradients.
        assert relative_error(ours, right) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_comes_as_near_as_it_can(device, dtype):
    layer, x = AdaptiveConv2d(4, 6, 5, padding=2).eval(), torch.randn(1, 4, 9, 10)
    with torch.no_grad():
        truth = layer(x)
        y = layer.to(device, dtype)(x.to(device, dtype))
    assert y.dtype == dtype
    # Φ's two convolutions, its Tanhs, D, z and the result: about ten roundings.
    assert relative_error(y.cpu().double(), truth.double()) < 10 * torch.finfo(dtype).eps / 2


def test_the_memory_format_is_conv2ds(device):
    x = torch.randn(1, 4, 9, 10, device=device).to(memory_format=torch.channels_last)
    layer = AdaptiveConv2d(4, 6, 5, padding=2, device=device)
    assert layer(x).is_contiguous(memory_format=torch.channels_last)
    assert layer(x.contiguous()).is_contiguous()


def test_a_training_step_lowers_the_loss(device):
    network = create_model("lenet_acda", num_classes=10).to(device)
    x, labels = torch.randn(4, 3, 32, 32, device=device), torch.arange(4, device=device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        loss = nn.functional.cross_entropy(network(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_the_kernels_give_the_same_bits_every_time(device):
    shapes = (2, 4, 13, 14), (2, 6, 9, 13, 14), (9, 7, 7), (5, 4, 6)
    x, alpha, bases, mixing = (torch.randn(*shape, device=device, requires_grad=shape != (9, 7, 7)) for shape in shapes)
    if choose("auto", x, bases) is reference:
        pytest.skip("promised of the kernels, not of plain torch")

    def once() -> list[torch.Tensor]:
        y = adaptive_conv2d(x, alpha, bases, mixing, padding=3)
        return [y, *torch.autograd.grad(y.square().sum(), (x, alpha, mixing))]

    for first, second in zip(once(), once(), strict=True):
        assert torch.equal(first, second)
