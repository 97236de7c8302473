import json
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from tests.campaigns.frame import MOST_FAILURES, Campaign

ROOT = Path(__file__).parents[2]


def finds_large_numbers(random: Random) -> str:
    if (number := random.randrange(100)) >= 90:
        raise ValueError(f"{number} is too large\nand more about it")
    return "even" if number % 2 == 0 else "odd"


def quietly(campaign: Campaign, seconds: float, seed: int = 3):
    lines: list[str] = []
    return campaign.run(seed, seconds, lines.append), lines


def test_a_failure_is_one_line_that_repeats_the_case(capsys):
    outcome, lines = quietly(Campaign("numbers", finds_large_numbers), seconds=60)
    assert len(outcome.failures) == MOST_FAILURES  # it stopped there, long before its time was over
    command, _, reason = outcome.failures[0].partition("  # ")
    assert command in "\n".join(lines)
    assert reason.startswith("ValueError: ")
    assert "\n" not in outcome.failures[0]
    module, *arguments = command.split()[2:]
    assert module == __name__
    with pytest.raises(ValueError, match=reason.removeprefix("ValueError: ")):
        Campaign("numbers", finds_large_numbers).main(arguments)


def test_cases_are_counted_by_kind_and_the_same_seed_tries_the_same():
    (first, _), (again, _), (other, _) = (
        quietly(Campaign("numbers", finds_large_numbers), seconds=60, seed=seed) for seed in (3, 3, 4)
    )
    assert first.figures()["kinds"] == again.figures()["kinds"] != other.figures()["kinds"]
    assert sum(first.kinds.values()) == first.cases
    assert first.kinds["failed"] == len(first.failures) == first.figures()["failures"]


def test_a_campaign_ends_with_its_time():
    outcome, _ = quietly(Campaign("pass", lambda random: None), seconds=0.2)
    assert outcome.cases > 1
    assert outcome.kinds == {"case": outcome.cases}
    assert outcome.seconds >= 0.2


CAMPAIGN = """
import pytest
from tests.campaigns.conftest import pytest_addoption, run_campaign
from tests.campaigns.frame import Campaign

@pytest.mark.campaign
@pytest.mark.parametrize("word", ["one", "two"])
def test_it(run_campaign, word):
    run_campaign(Campaign(word, lambda random: word))
"""


@pytest.mark.slow
def test_pytest_runs_campaigns_only_when_asked_and_writes_their_figures(tmp_path):
    (tmp_path / "conftest.py").write_text(CAMPAIGN.partition("@")[0])
    (tmp_path / "test_it.py").write_text(CAMPAIGN)
    pytest_here = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        ROOT / "pyproject.toml",
        "-q",
        "-p",
        "no:cacheprovider",
        tmp_path,
    ]
    plain = subprocess.run(pytest_here, cwd=ROOT, capture_output=True, text=True)
    assert "2 deselected" in plain.stdout
    figures = tmp_path / "figures.json"
    asked = [*pytest_here, "-m", "campaign", "--minutes", "0.01", "--seed", "5", "--figures", figures]
    run = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = json.loads(figures.read_text())["rows"]
    assert [(row["campaign"], row["seed"], row["failures"]) for row in rows] == [("one", 5, 0), ("two", 5, 0)]
    assert all(row["cases"] > 0 and row["seconds"] >= 0.3 for row in rows)  # half of the minutes each
    assert "one: 0 s, seed 5" in run.stdout
