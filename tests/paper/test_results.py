"""Rows of results: seeds that are added one by one, and files of another budget."""

import json

import pytest

from paper.results import rows_made_with, seeds_of, with_seed


def test_seeds_become_one_row_with_their_mean():
    rows = with_seed([], "heads", "crowds", "pixel", 0, {"mae": 80.0, "parameters": 0.5})
    rows = with_seed(rows, "heads", "crowds", "pixel", 1, {"mae": 90.0, "parameters": 0.5}, rate=0.1)
    rows = with_seed(rows, "heads", "crowds", "conv", 2, {"mae": 85.0, "parameters": 0.3})
    assert len(rows) == 4
    named = {(row["model"], row["metric"]): row for row in rows}
    mae, parameters = named["pixel", "mae"], named["pixel", "parameters"]
    assert (mae["value"], mae["seeds"], mae["deviation"]) == (85.0, {"0": 80.0, "1": 90.0}, 7.071)
    assert (parameters["value"], "deviation" in parameters, parameters["rate"]) == (0.5, False, 0.1)
    assert seeds_of(rows) == [0, 1, 2]


def test_another_budget_is_refused(tmp_path):
    out = tmp_path / "heads.json"
    assert rows_made_with("much", out) == []
    out.write_text(json.dumps({"rows": [1], "circumstances": {"budget": "little"}}))
    assert rows_made_with("little", out) == [1]
    with pytest.raises(SystemExit, match="is for little, not for much"):
        rows_made_with("much", out)
