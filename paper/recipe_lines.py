"""The results of recipes, in their docstrings: a line "Result: …" behind the command of each that was run.

    acda train cifar10_lenet --data DIR
    Result: top-1 error 27.73 % (paper: 24.74); 0.15 hours (paper/results/lenet.json).

It is the last paragraph of a docstring; `python -m paper.render` writes, changes and removes it.
"""

import re
import textwrap

from paper.numbers import written
from paper.record import Record
from paper.results import Row
from paper.runs import RUNS, identity

COMMAND = re.compile(r'(    acda train (\w+) --data DIR[^\n]*\n)(    Result: (?:(?!""").)*)?(?=    """)', re.DOTALL)
COSTS = ("parameters", "multiply_adds", "error_reduction")


def with_results(source: str, record: Record) -> str:
    """A module of recipes with the results that the files have."""
    return COMMAND.sub(lambda found: found[1] + result_line(found[2], record), source)


def result_line(recipe: str, record: Record) -> str:
    """The results of a recipe with its own settings, wrapped and indented; "" where there are none."""
    run = next((run for run in RUNS if run.name == recipe), None)
    if run is None:
        return ""
    rows = [row for row in record.of_table(run.table) if identity(row) == run.identity]
    scores = [row for row in rows if not row["metric"].startswith(COSTS)]
    if not scores:
        return ""
    hours = next((f"{row['hours']:.2g} hours" for row in scores if "hours" in row), "")
    parts = [*by_dataset(scores, record), hours]
    text = f"Result: {'; '.join(part for part in parts if part)} (paper/results/{run.table}.json)."
    return textwrap.fill(text, 116, initial_indent="    ", subsequent_indent="    ") + "\n"


def by_dataset(scores: list[Row], record: Record) -> list[str]:
    """The scores of each dataset; its name where there are several."""
    datasets = dict.fromkeys(row["dataset"] for row in scores)
    texts = {name: ", ".join(score(row, record) for row in scores if row["dataset"] == name) for name in datasets}
    if len(texts) == 1:
        return list(texts.values())
    return [f"{record.word('datasets', name)}: {text}" for name, text in texts.items()]


def score(row: Row, record: Record) -> str:
    """The metric, its value and unit, and the paper's value where it prints one."""
    metric, _, unit = record.word("metrics", row["metric"], row).partition(", ")
    published = record.published_beside(row)
    return f"{metric} {written(record, row)}{f' {unit}' if unit else ''}{f' (paper: {published})' if published else ''}"
