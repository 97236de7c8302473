"""Rows are found by their paths, and have words."""

import json
from pathlib import Path

import pytest

from paper.record import Record
from paper.results import HERE
from tests.paper.records import record_of, row


def test_a_figure_has_one_path():
    record = record_of(row("a", 1.0), row("a", 2.0, dataset=""), row("a", 3.0, "psnr", "e"))
    assert {path: found["value"] for path, found in record.figures.items()} == {
        "t/a/d/error": 1.0,
        "t/a/error": 2.0,
        "t/a/e/psnr": 3.0,
    }


def test_seeds_are_told_apart_and_doubles_are_refused():
    record = record_of(row("a", 1.0, seed=0), row("a", 2.0, seed=1))
    assert list(record.figures) == ["t/a/d/error/seed_0", "t/a/d/error/seed_1"]
    with pytest.raises(ValueError, match="two rows for t/a/d/error/seed_0"):
        record_of(row("a", 1.0, seed=0), row("a", 2.0, seed=0)).check()


def test_the_paper_prints_a_figure_for_a_dataset_or_for_all():
    record = record_of()
    assert record.published == {"t/a/d/error": "12.30", "t/c/d/error": "9", "t/c/psnr": "1"}
    assert record.published_beside(row("c", 0.0, "psnr", "e")) == "1"
    assert record.published_beside(row("c", 0.0, "error", "e")) is None


def test_words_may_use_the_row_and_a_table_its_own():
    record = record_of(models={"a": "A of {seed}"})
    assert record.model(row("a", 1.0, seed=3)) == "A of 3"
    assert record.model(row("b", 1.0)) == "B"
    assert record.word("metrics", "count", row("a", 1.0, heads=7)) == "heads up to 7"
    with pytest.raises(ValueError, match=r"'z' is not in \[models\] of words.toml"):
        record.model(row("z", 1.0))


def copied(folder: Path) -> Path:
    for name in ("published.toml", "words.toml"):
        (folder / name).write_text((HERE / name).read_text())
    (folder / "results").mkdir()
    return folder


def test_a_row_of_no_table_is_refused(tmp_path):
    rows = [row("a", 1.0)]
    (copied(tmp_path) / "results" / "a.json").write_text(json.dumps({"rows": rows, "circumstances": {}}))
    with pytest.raises(ValueError, match=r"a.json: there is no table 't'"):
        Record.read(tmp_path)


@pytest.mark.parametrize("path", sorted((HERE / "results").glob("*.json")), ids=lambda p: p.name)
def test_every_results_file_has_identifiers_and_its_circumstances(path):
    saved = json.loads(path.read_text())
    assert {"commit", "machine", "torch", "threads", "budget"} <= set(saved["circumstances"])
    assert "+changes" not in saved["circumstances"]["commit"]
    for each in saved["rows"]:
        assert all(each[key].replace("_", "").isalnum() and each[key].isascii() for key in ("table", "model", "metric"))
        assert each["dataset"] == "" or each["dataset"].replace("_", "").isalnum()
        assert isinstance(each["value"], int | float)
