import pytest
import torch

from acda import bench
from acda.backends import native
from tests.clock import Clock, Takes

pytestmark = pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))


def test_the_unfold_way_is_the_same_function():
    case = bench.Case(6, 12, 5)
    unfolded, ours = bench.unfolded(case).eval(), bench.adaptive(case, "reference").eval()
    ours.load_state_dict(unfolded.state_dict())
    x = case.input()
    torch.testing.assert_close(unfolded(x), ours(x), rtol=1e-4, atol=1e-5)


def test_a_row_has_the_time_in_the_faster_format_as_a_ratio_to_conv2d(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(bench, "time", clock)
    forward = {"conv": {True: 2, False: 8}, "native": {True: 9, False: 3}}  # seconds where x is contiguous, or not
    contenders = {
        name: lambda case, taken=taken: Takes(clock, lambda x: taken[x.is_contiguous()], backward=1)
        for name, taken in forward.items()
    }
    monkeypatch.setattr(bench, "CONTENDERS", contenders)
    rows = list(bench.measure([bench.Case(8, 10, 3, batch=2)], seconds=0, memory=False))
    ratios = {(row["name"], row["metric"].partition(",")[0]): row["value"] for row in rows}
    assert ratios["native", "forward"] == 3 / 2
    assert ratios["native", "training"] == round((3 + 1) / (2 + 1), 3)
    (native_row, *_) = [row for row in rows if row["name"] == "native"]
    assert native_row["milliseconds"] == 3000


@pytest.mark.slow
def test_large_cases_have_the_peak_of_a_process_too(monkeypatch):
    monkeypatch.setattr(bench, "CONTENDERS", {"native": bench.CONTENDERS["native"], "conv": bench.CONTENDERS["conv"]})
    small, large = bench.Case(8, 10, 3, batch=2), bench.Case(9, 500, 3)
    rows = [row for row in bench.measure([small, large], seconds=0, memory=True) if row["table"] == "memory"]
    assert {row["dataset"] for row in rows} == {large.name}
    assert len(rows) == 2 * 2
    assert all(row["value"] >= row["imported"] > 50 for row in rows)


@pytest.mark.slow
def test_a_failing_process_says_why():
    with pytest.raises(ValueError, match="nothing on 3×3, 8 channels, 10×10 failed: KeyError"):
        bench.peak_memory(bench.Case(8, 10, 3), "forward", "nothing")
