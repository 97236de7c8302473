import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from acda import multiscale_fourier_bessel
from acda.backends import reference
from acda.window import Window


class LargestTensor(TorchDispatchMode):
    """Remembers the largest storage that any operation made, the operands' own aside."""

    bytes = 0

    def __init__(self, *operands):
        super().__init__()
        self.known = {t.untyped_storage().data_ptr() for t in operands if isinstance(t, torch.Tensor)}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for t in result if isinstance(result, tuple | list) else [result]:
            if isinstance(t, torch.Tensor) and t.untyped_storage().data_ptr() not in self.known:
                self.bytes = max(self.bytes, t.untyped_storage().nbytes())
        return result


def operands(channels: int, size: int, requires_grad: bool = False):
    shapes = [(1, channels, size, size), (1, 6, 18, size, size), (4, channels, 6), (4,)]
    x, alpha, mixing, bias = (torch.randn(*s, requires_grad=requires_grad) for s in shapes)
    return x, alpha, multiscale_fourier_bessel(7), mixing, bias, Window.of(7, padding=3), 1


def test_both_orders_are_the_same_function():
    x, alpha, bases, *_ = (t.double() for t in operands(4, 12)[:4])
    window = Window.of(7, dilation=(1, 1))
    inner = alpha[..., 3:9, 3:9]
    torch.testing.assert_close(
        reference.atoms_then_taps(x, inner, bases, window), reference.bases_then_coefficients(x, inner, bases, window)
    )


@pytest.mark.parametrize("channels", [1, 24], ids=["bases first", "atoms first"])
@pytest.mark.parametrize("stride", [1, 3])
def test_strips_change_nothing(channels, stride, monkeypatch):
    # In float64: some processors sum a whole map and a strip in different orders, which float32 shows near zero.
    x, _, bases, mixing, bias = (t.double() for t in operands(channels, 40)[:5])
    window = Window.of(7, stride, padding=2, dilation=2)
    alpha = torch.randn(1, 6, 18, *window.output_size(40, 40), dtype=torch.float64)
    whole = reference.adaptive_conv2d(x, alpha, bases, mixing, bias, window, 1)
    filters = reference.compose_atoms(alpha, bases, 7)
    whole_filtered = reference.per_pixel_conv2d(x, filters, window)
    monkeypatch.setattr(reference, "STRIP_BYTES", 120_000)
    torch.testing.assert_close(reference.adaptive_conv2d(x, alpha, bases, mixing, bias, window, 1), whole)
    torch.testing.assert_close(reference.per_pixel_conv2d(x, filters, window), whole_filtered)


def test_inference_keeps_to_strips():
    operation = operands(32, 200)
    with LargestTensor(*operation) as seen, torch.no_grad():
        reference.adaptive_conv2d(*operation)
    assert seen.bytes <= reference.STRIP_BYTES
    assert seen.bytes >= reference.STRIP_BYTES / 8, "the strips are used at all"


def test_training_never_unfolds_the_input():
    operation = operands(32, 64, requires_grad=True)
    with LargestTensor(*operation) as seen:
        reference.adaptive_conv2d(*operation).sum().backward()
    unfolded = operation[0].nbytes * 49
    assert seen.bytes <= unfolded / 4


class Recorder(TorchDispatchMode):
    """Remembers the names of the operations, in order."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_backward_holds_the_gradient_of_one_tap_at_a_time():
    """Each tap's gradient is added to the input's before the next is computed; otherwise 49 of them would be kept."""
    y = reference.adaptive_conv2d(*operands(32, 10, requires_grad=True))
    with Recorder() as seen:
        y.sum().backward()
    products = [seen.names[:i].count("mul") for i, name in enumerate(seen.names) if name == "slice_backward"]
    assert len(products) >= 49, "one for each tap at least"
    waiting = [after - before for before, after in zip([0, *products], products, strict=False)]
    assert max(waiting) <= 4, "torch takes four products for one tap's two gradients"
