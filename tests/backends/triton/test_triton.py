"""When the kernels run, and the reasons why they do not. Fake tensors replace those of a GPU."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from acda.backends import choose, native, reference, triton
from acda.functional import adaptive_conv2d

no_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
needs_triton = pytest.mark.skipif(triton.find_spec("triton") is None, reason="Triton is not installed")


@pytest.fixture(autouse=True)
def _asked_afresh():
    triton._ask_once.cache_clear()
    yield
    triton._ask_once.cache_clear()


def on_gpu(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    with FakeTensorMode():
        return torch.empty(1, 2, 5, 5, device="cuda", dtype=dtype)


@no_gpu
@needs_triton
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_auto_is_triton_on_a_gpu(dtype):
    assert choose("auto", on_gpu(dtype)) is triton


def test_auto_is_native_on_the_cpu():
    assert choose("auto", torch.ones(1, 2, 5, 5)) is (native if native.MISSING is None else reference)


@no_gpu
def test_double_precision_goes_to_the_reference():
    x = on_gpu(torch.float64)
    assert triton.why_not(x) == "it computes in float32, float16 and bfloat16; the input is torch.float64"
    assert choose("auto", x) is reference


@no_gpu
def test_without_triton_the_reference_runs(monkeypatch):
    monkeypatch.setattr(triton, "find_spec", lambda name: None)
    assert "Triton is not installed" in str(triton.why_not(on_gpu()))
    assert choose("auto", on_gpu()) is reference


@pytest.mark.parametrize(
    ("capability", "hip", "runs"), [((7, 5), None, False), ((8, 0), None, True), ((7, 0), "6", True)]
)
def test_nvidias_gpus_need_compute_capability_8(capability, hip, runs, monkeypatch):
    """AMD's GPUs number theirs differently."""
    monkeypatch.setattr(triton, "find_spec", lambda name: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(triton, "_try_out", lambda device, dtype: None)
    reason = None if runs else "it needs compute capability 8.0, for TF32 and bfloat16; this GPU has 7.5"
    assert triton.why_not_here() == reason


def test_every_device_and_dtype_is_tried_once(monkeypatch):
    tried = []
    monkeypatch.setattr(triton, "find_spec", lambda name: True)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda index: (9, 0))
    monkeypatch.setattr(triton, "_try_out", lambda device, dtype: tried.append((device.index, dtype)))
    for _ in range(2):
        for index in (0, 1):
            for dtype in (torch.float32, torch.bfloat16):
                triton.why_not_here(index, dtype)
    assert len(tried) == len(set(tried)) == 4
    before, torch.backends.cudnn.conv.fp32_precision = torch.backends.cudnn.conv.fp32_precision, "ieee"
    try:
        for dtype in (torch.float32, torch.bfloat16):
            triton.why_not_here(0, dtype)
    finally:
        torch.backends.cudnn.conv.fp32_precision = before
    assert tried[4:] == [(0, torch.float32)], "without TF32 float32 has kernels of its own"


def test_without_a_gpu_the_trial_fails_with_a_warning_and_not_an_error():
    """The kernels cannot be launched on the CPU, as with a GPU driver that is too old."""
    with pytest.warns(RuntimeWarning, match=r"not used on cpu for torch.float32: a trial call failed .* Plain torch"):
        reason = triton._try_out(torch.device("cpu"), torch.float32)
    assert reason.startswith("a trial call failed there (")


@no_gpu
def test_vmap_goes_to_the_reference():
    reasons = []

    def look(x: torch.Tensor) -> torch.Tensor:
        reasons.append(triton.why_not(x))
        return x

    with FakeTensorMode():
        torch.vmap(look)(torch.empty(2, 1, 2, 5, 5, device="cuda"))
    assert reasons == ["it has no rule for vmap and forward-mode derivatives"]


@no_gpu
def test_export_goes_to_the_reference(monkeypatch):
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)
    assert triton.why_not(on_gpu()) == "an exported program consists of standard operations"
    assert choose("auto", on_gpu()) is reference


def test_compiling_asks_for_the_gpu_without_breaking_the_graph():
    def run(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if triton.why_not_here(0) is None else x - 1

    expected = run(torch.ones(1))
    assert torch.equal(torch.compile(run, fullgraph=True, backend="eager")(torch.ones(1)), expected)


def test_insisting_on_it_elsewhere_says_why_not():
    x, alpha, mixing = torch.ones(1, 1, 4, 4), torch.ones(1, 1, 9, 2, 2), torch.ones(1, 1, 1)
    with pytest.raises(ValueError, match='"triton" cannot run: it runs on CUDA and ROCm devices; the input is on cpu'):
        adaptive_conv2d(x, alpha, None, mixing, backend="triton")


def test_an_unknown_backend_is_named():
    with pytest.raises(ValueError, match='"auto", "triton", "native" or "reference"; got \'cuda\''):
        choose("cuda", torch.ones(1, 1, 4, 4))
