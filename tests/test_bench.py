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
def test_rows_tell_a_ratio_to_conv2d_and_a_peak(monkeypatch):
    monkeypatch.setattr(bench, "CONTENDERS", {name: bench.CONTENDERS[name] for name in ("conv", "native")})
    monkeypatch.setattr(bench, "LARGE", 2_000_000)
    small, large = bench.Case(8, 10, 3, batch=2), bench.Case(9, 500, 3)
    rows = list(bench.measure([small, large], seconds=0, memory=True))
    assert [(row["table"], row["channels"], row["name"]) for row in rows] == [
        *[("speed", 8, "native")] * 2,
        *[("memory", 9, "conv"), ("speed", 9, "native"), ("memory", 9, "native")] * 2,
    ]
    for row in rows:
        assert {"table", "dataset", "name", "metric", "value"} <= set(row)
        if row["table"] == "speed":
            assert row["value"] == round(row["milliseconds"] / row["conv_milliseconds"], 3)
    assert all(row["value"] >= row["imported"] > 50 for row in rows if row["table"] == "memory")


def test_a_slow_contender_goes_on_in_its_faster_format_only(monkeypatch):
    taken = []
    monkeypatch.setattr(bench, "MODES", {"forward": lambda layer, x: taken.append(x.is_contiguous())})
    clock = iter(range(1000))  # a second between any two looks at it
    monkeypatch.setattr(bench.time, "perf_counter", lambda: float(next(clock)))
    figures = bench.times(bench.Case(4, 6, 3), "forward", ["conv"], seconds=1)
    assert taken == [True, False] + [True] * bench.LEAST_ROUNDS
    assert figures["conv"] == {"milliseconds": 1000, "memory_format": "contiguous", "rounds": 1 + bench.LEAST_ROUNDS}


@pytest.mark.slow
def test_a_failing_process_says_why():
    with pytest.raises(ValueError, match="nothing on 3×3, 8 channels, 10×10 failed: KeyError"):
        bench.peak_memory(bench.Case(8, 10, 3), "forward", "nothing")
