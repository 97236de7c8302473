"""How the driver chooses the precision. Its results are compared in interpreted.py."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from acda.backends.triton import driver


@pytest.fixture(autouse=True)
def _switches_as_they_were():
    convolutions, products = torch.backends.cudnn.conv, torch.backends.cuda.matmul
    before = convolutions.fp32_precision, products.fp32_precision
    yield
    convolutions.fp32_precision, products.fp32_precision = before


@pytest.mark.parametrize(("switch", "precision"), [("tf32", "tf32"), ("ieee", "tf32x3"), ("none", "tf32x3")])
def test_float32_follows_torchs_switch_for_convolutions(switch, precision):
    torch.backends.cuda.matmul.fp32_precision = "ieee" if switch == "tf32" else "tf32"
    torch.backends.cudnn.conv.fp32_precision = switch
    assert driver.precision(torch.ones(1)) == precision


def test_torchs_default_is_tf32():
    """In a fresh process torch's convolutions are TF32, and its matrix products are not."""
    assert driver.precision(torch.ones(1)) == "tf32"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_has_one_way(dtype):
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert driver.precision(torch.ones(1, dtype=dtype)) == "half"


def test_amds_gpus_have_float32_itself(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.4")
    torch.backends.cudnn.conv.fp32_precision = "ieee"
    assert driver.precision(torch.ones(1)) == "ieee"


def test_the_matrices_are_the_mixing_in_zs_order():
    mixing = torch.randn(6, 2, 5)
    A = driver._as_matrices(mixing, 3)
    assert A.shape == (3, 5 * 2, 2)
    assert A[1, 4 * 2 + 1, 0] == mixing[2, 1, 4]
    assert torch.equal(driver._as_mixing(A, 5), mixing)
