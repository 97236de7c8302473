"""Campaigns run only when asked for: `make campaign`, which is `pytest tests/campaigns -m campaign`."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from acda.support.environment import write_results
from tests.campaigns.frame import Campaign, Outcome

outcomes = pytest.StashKey[list[Outcome]]()
the_seed = pytest.StashKey[int]()


def pytest_addoption(parser):
    group = parser.getgroup("campaigns")
    group.addoption("--minutes", type=float, default=10, help="time for all campaigns together")
    group.addoption("--seed", type=int, default=None, help="what the random cases come from (default: the clock)")
    group.addoption("--figures", type=Path, default=None, help="a JSON file for cases, seconds and failures")


@pytest.fixture
def run_campaign(request, capsys) -> Callable[[Campaign], None]:
    """Run a campaign for its share of the minutes, print as it goes, keep its figures; failures fail the test."""
    config = request.config
    campaigns = [item for item in request.session.items if item.get_closest_marker("campaign")]
    seconds = 60 * config.getoption("--minutes") / len(campaigns)
    given = config.getoption("--seed")
    seed = config.stash.setdefault(the_seed, int(time.time()) if given is None else given)

    def run(campaign: Campaign) -> None:
        with capsys.disabled():
            outcome = campaign.run(seed, seconds, lambda line: print(line, flush=True))
        done = config.stash.setdefault(outcomes, [])
        done.append(outcome)
        if (path := config.getoption("--figures")) is not None:
            minutes = config.getoption("--minutes")
            write_results(path, [each.figures() for each in done], minutes=minutes, seed=outcome.seed)
        assert not outcome.failures, "\n".join(outcome.failures)

    return run
