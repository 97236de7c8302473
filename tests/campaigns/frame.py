"""Campaigns try to break one part of the library with random cases, for a given time.

A campaign is a file `tests/campaigns/test_NAME.py` with a function that tries one random case and raises when it finds
a defect:

    def try_case(random: Random) -> str | None:
        '''One picture with one byte changed: it is read, or refused in one line.'''
        ...
        return "png"  # optional: the kind of case, which is counted

    @pytest.mark.campaign
    def test_no_changed_byte_ends_in_a_traceback(run_campaign):
        run_campaign(Campaign("images", try_case))

    if __name__ == "__main__":
        Campaign("images", try_case).main()

`make campaign MINUTES=60` runs all of them and divides the minutes evenly. `make campaign ONLY=images` runs one. A
failing case is printed as a command that repeats this case alone; to repeat exactly, `try_case` takes every random
decision from `random` (for torch and numpy: from seeds that it draws there).
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

MOST_FAILURES = 20  # after so many, one cause fails over and over


@dataclass
class Outcome:
    """What a campaign tried, and the commands that repeat its failures."""

    name: str
    seed: int
    cases: int = 0
    seconds: float = 0.0
    kinds: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """A row of the results file."""
        return {
            "campaign": self.name,
            "seed": self.seed,
            "cases": self.cases,
            "kinds": dict(sorted(self.kinds.items())),
            "seconds": round(self.seconds, 1),
            "failures": len(self.failures),
        }

    def __str__(self) -> str:
        return f"{self.name}: {self.cases} cases in {self.seconds:.0f} s, seed {self.seed}, {len(self.failures)} failed"


@dataclass(frozen=True)
class Campaign:
    """Random cases for one part of the library.

    try_case: takes the random numbers of one case, raises where it finds a defect, returns the kind of case or None.

    >>> outcome = Campaign("nothing", lambda random: "idle").run(seed=1, seconds=0, say=lambda line: None)
    >>> outcome.cases, dict(outcome.kinds)
    (1, {'idle': 1})
    """

    name: str
    try_case: Callable[[Random], str | None]

    def run(self, seed: int, seconds: float, say: Callable[[str], None] = print) -> Outcome:
        """Try cases 0, 1, 2 … of this seed until the time is over; at least one."""
        outcome, start = Outcome(self.name, seed), time.monotonic()
        with tempfile.NamedTemporaryFile("w", prefix=f"campaign-{self.name}-", delete=False) as under_way:
            say(f"{self.name}: {seconds:.0f} s, seed {seed}. If the process dies, its case is in {under_way.name}")
            while not outcome.cases or time.monotonic() - start < seconds:
                _overwrite(under_way.fileno(), self.command(seed, outcome.cases))
                self._count_one(outcome, say)
                if len(outcome.failures) == MOST_FAILURES:
                    break
        Path(under_way.name).unlink()
        outcome.seconds = time.monotonic() - start
        say(str(outcome))
        return outcome

    def _count_one(self, outcome: Outcome, say: Callable[[str], None]) -> None:
        case = outcome.cases
        outcome.cases += 1
        try:
            kind = self.try_one(outcome.seed, case)
        except Exception as error:
            message = (str(error).splitlines() or [""])[0]
            outcome.failures.append(f"{self.command(outcome.seed, case)}  # {type(error).__name__}: {message}"[:300])
            say(outcome.failures[-1])
            kind = "failed"
        outcome.kinds[kind or "case"] += 1

    def try_one(self, seed: int, case: int) -> str | None:
        """One case. Its random numbers depend on the campaign, the seed and the case alone."""
        return self.try_case(Random(f"{self.name} {seed} {case}"))

    def command(self, seed: int, case: int) -> str:
        """The command that repeats one case."""
        return f"python -m {self.try_case.__module__} --seed {seed} --case {case}"

    def main(self, arguments: list[str] | None = None) -> None:
        """Repeat one case and show its traceback, or run for some seconds: `python -m tests.campaigns.test_NAME`."""
        parser = argparse.ArgumentParser(description=f"The campaign '{self.name}'.")
        parser.add_argument("--seed", type=int, default=0)
        parser.add_argument("--case", type=int, help="try this case alone")
        parser.add_argument("--seconds", type=float, default=10)
        given = parser.parse_args(arguments)
        if given.case is not None:
            print(f"{self.name}: this case passes ({self.try_one(given.seed, given.case) or 'case'})")
        elif self.run(given.seed, given.seconds).failures:
            raise SystemExit(1)


def _overwrite(file: int, line: str) -> None:
    """Replace the content of the file without buffering: a process that is killed does not flush buffers."""
    os.ftruncate(file, 0)
    os.pwrite(file, f"{line}\n".encode(), 0)
