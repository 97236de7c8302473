"""The page of results is what the files say, and the figures that can match do."""

import json

import pytest

from tests.paper.scripts import PAPER, script

render, networks = script("render"), script("networks")


def test_the_page_is_what_the_files_say():
    assert (PAPER / "RESULTS.md").read_text() == render.render(), "run python paper/render.py"


def test_the_page_notices_a_change(tmp_path):
    (tmp_path / "published.toml").write_text((PAPER / "published.toml").read_text())
    (tmp_path / "results").mkdir()
    for path in (PAPER / "results").glob("*.json"):
        (tmp_path / "results" / path.name).write_text(path.read_text())
    assert render.render(tmp_path) == render.render()
    result = json.loads((PAPER / "results" / "layer.json").read_text())
    result["rows"][0]["value"] += 0.1
    (tmp_path / "results" / "layer.json").write_text(json.dumps(result))
    assert render.render(tmp_path) != render.render()


def test_a_row_of_no_table_is_refused(tmp_path):
    (tmp_path / "published.toml").write_text((PAPER / "published.toml").read_text())
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.json").write_text(json.dumps({"rows": [{"table": "nonsense"}], "circumstances": {}}))
    with pytest.raises(ValueError, match=r"a.json: there is no table 'nonsense'"):
        render.render(tmp_path)


@pytest.mark.parametrize("name", ["Conv", "ACDA (conv only)"])
def test_table_six_matches_to_the_last_digit(name):
    lines = [
        line for line in render.render().splitlines() if line.startswith(f"| {name} |") and "multiply-adds" in line
    ]
    assert len(lines) == 3
    assert all(line.endswith("| 0 |") for line in lines)


def test_table_six_is_what_is_counted_now():
    counted = {(row["dataset"], row["name"], row["metric"]): row["value"] for row in networks.layer_rows()}
    saved = json.loads((PAPER / "results" / "layer.json").read_text())["rows"]
    assert {(row["dataset"], row["name"], row["metric"]): row["value"] for row in saved} == counted


@pytest.mark.parametrize("path", sorted((PAPER / "results").glob("*.json")), ids=lambda p: p.name)
def test_every_results_file_has_its_circumstances(path):
    result = json.loads(path.read_text())
    assert {"commit", "machine", "torch", "threads", "budget"} <= set(result["circumstances"])
    assert "+changes" not in result["circumstances"]["commit"]
    for row in result["rows"]:
        assert {"table", "dataset", "name", "metric", "value"} <= set(row)


def test_difference_is_in_the_papers_digits():
    row = {"name": "a", "dataset": "d", "metric": "m", "value": 12.3456}
    assert render.compare(row, "12.30").endswith("| 12.30 | 12.35 | +0.05 |")
    assert render.compare(row, "12.35").endswith("| 12.35 | 12.35 | 0 |")
    assert render.compare(row, None).endswith("| – | 12.35 | |")


def test_what_the_paper_does_not_print_stands_side_by_side():
    rows = [{"name": n, "dataset": "d", "metric": m, "value": v} for n, m, v in (("a", "x", 1234.5), ("b", "y", 0.5))]
    assert render.side_by_side(rows)[1:] == ["| a | 1,234 |  |", "| b |  | 0.5 |"]
    rows = [{"name": "a", "dataset": f"d, seed {seed}", "metric": "m", "value": seed} for seed in (1, 2)]
    assert render.side_by_side(rows) == ["| ours | d, m |\n|---|---:|", "| a, seed 1 | 1 |", "| a, seed 2 | 2 |"]
