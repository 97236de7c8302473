"""Every launch compiles for GPUs that are not present: without spills, within their memory, for their tensor cores."""

import pytest
import torch

pytest.importorskip("triton", reason="Triton is not installed")

from tests.backends.triton.compiling import TARGETS, compiled, launches, usage, uses_tensor_cores

# What a block may use on compute capability 8.6, 8.9 and 12.0, with room for what Triton adds; 8.0 and 9.0 have more.
SHARED_BYTES = 96 * 2**10
PRECISIONS = {"half": torch.bfloat16, "tf32": torch.float32, "tf32x3": torch.float32}
# AMD's has no product of three. NVIDIA's sm_75 is left to the reference: it has no TF32 and no bfloat16, and the
# kernels spill there.
SLOW = [
    *(("sm_100", precision, dtype) for precision, dtype in PRECISIONS.items()),
    ("gfx942", "half", torch.float16),
    ("gfx942", "tf32", torch.float32),
    ("gfx942", "ieee", torch.float32),
]
OTHER_LAYERS = {
    "3×3": {"side": 3},
    "11×11": {"side": 11},
    "strided": {"stride": 2},
    "fifteen atoms": {"atoms": 15},
    "one atom": {"atoms": 1},
    "groups": {"groups": 4},
    "narrow": {"channels": 24},
}


def assert_fits(target: str, precision: str, dtype: torch.dtype, record, folder, **layer: int) -> None:
    gpu = TARGETS[target]
    for name, launch in launches("hip" if gpu.backend == "hip" else gpu.arch // 10, precision, dtype, **layer).items():
        kernel = compiled(launch, gpu)
        taken = usage(kernel, folder)
        record(f"registers of {name}, {precision}, {target}", taken.registers)
        assert taken.spilled_bytes == 0, name
        assert taken.shared_bytes <= SHARED_BYTES, name
        assert uses_tensor_cores(kernel), name


@pytest.fixture(autouse=True)
def _compiled_afresh(monkeypatch, tmp_path):
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("target", ["sm_80", "sm_90"])
def test_the_kernels_fit(target, precision, record_property, tmp_path):
    assert_fits(target, precision, PRECISIONS[precision], record_property, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("target", "precision", "dtype"), SLOW, ids=lambda value: str(value))
def test_the_kernels_fit_elsewhere(target, precision, dtype, record_property, tmp_path):
    assert_fits(target, precision, dtype, record_property, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("layer", OTHER_LAYERS.values(), ids=OTHER_LAYERS)
@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_kernels_of_other_layers_fit(precision, layer, record_property, tmp_path):
    assert_fits("sm_80", precision, PRECISIONS[precision], record_property, tmp_path, **layer)
