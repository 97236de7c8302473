"""Every page that shows results is what the files say, and the figures that can match the paper's do."""

import json
from copy import deepcopy
from dataclasses import replace

import pytest

from paper import networks, render
from paper.record import Record
from paper.results import HERE, ROOT

RECORD = Record.read()
PAGES = [path for path, _ in render.pages(RECORD)]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_is_what_the_files_say(path):
    assert path.read_text() == dict(render.pages(RECORD))[path], "run python -m paper.render"


def test_the_pages_are_results_readme_cards_and_recipes():
    names = {str(path.relative_to(ROOT)) for path in PAGES}
    assert {"paper/RESULTS.md", "README.md", "acda/training/recipes/classification.py"} <= names
    assert any(name.endswith("denoiser.md") for name in names)


def test_the_pages_notice_a_change():
    """A value changes in one results file: RESULTS.md, a card and a recipe differ, another card does not."""
    results = deepcopy(RECORD.results)
    for row in results["lenet.json"]["rows"]:
        row["value"] += 1
    changed = render.pages(replace(RECORD, results=results))
    stale = {path.name for path, text in changed if path.read_text() != text}
    assert {"RESULTS.md", "lenet_acda_cifar10.md", "classification.py"} <= stale
    assert "denoiser.md" not in stale


@pytest.mark.parametrize("name", ["Conv", "ACDA (conv only)"])
def test_table_six_matches_to_the_last_digit(name):
    page = render.results_page(RECORD).splitlines()
    lines = [line for line in page if line.startswith(f"| {name} |") and "×" in line and "multiply-adds, M" in line]
    assert len(lines) == 3
    assert all(line.endswith("| 0 |") for line in lines)


def test_table_six_is_what_is_counted_now():
    saved = json.loads((HERE / "results" / "layer.json").read_text())["rows"]
    assert saved == list(networks.layer_rows())
