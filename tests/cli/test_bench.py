import json

import pytest

from acda import bench
from acda.backends import native
from acda.cli import main


@pytest.mark.skipif(native.MISSING is not None, reason=str(native.MISSING))
def test_bench_writes_numbers_with_circumstances_and_a_picture(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(bench, "CASES", (bench.Case(256, 6, 3), bench.Case(4, 6, 3)))
    assert main(["bench", "--out", str(tmp_path), "--seconds", "0", "--quick", "--threads", "1"]) == 0
    ((numbers, picture),) = [(path, path.with_suffix(".png")) for path in tmp_path.glob("speed-*.json")]
    assert numbers.stem.endswith(("-baseline", "-avx2", "-avx512")), "the file names the vectors that ran"
    results = json.loads(numbers.read_text())
    assert {row["channels"] for row in results["rows"]} == {256}
    assert {"commit", "machine", "torch", "threads", "budget", "seed"} <= set(results["circumstances"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "acda, native" in capsys.readouterr().out


def test_without_a_kernel_there_is_nothing_to_compare(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(native, "MISSING", "it was not compiled")
    assert main(["bench", "--out", str(tmp_path)]) == 1
    assert "it was not compiled" in capsys.readouterr().err
