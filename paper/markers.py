"""Tables and figures in Markdown files, between markers that `python -m paper.render` fills.

A figure stands in a sentence, a table on separate lines. Write the markers, run the command, and commit the result:

    LeNet has an error of <!-- figure: lenet/lenet/cifar10/top1_error as .1f --><!-- end --> %.

    <!-- table: lenet -->
    <!-- end -->

    <!-- table: denoising rows=input,dncnn,restorer columns=polyu/psnr,sidd_256/psnr,parameters -->
    <!-- end -->

`table: NAME` is the whole table as in RESULTS.md. With rows= and columns= it has these models and these columns, each
dataset/metric or metric alone, or paper:dataset/metric for what the paper prints. `table: speed` is the one of
`acda bench` (see paper/speed.py for its rows), `table: network_times` that of `benchmarks/networks.py`,
`table: campaigns` that of `make campaign`, `table: neighbours` that of `benchmarks/neighbours.py`. Besides figure there
are lead, smallest and largest, for differences over test photos; numbers.evaluate says what each comes to, and
`python -m paper.render --list WORD` prints the paths.

In the notes of published.toml, where nothing has to be found again, a figure is written {figure: …}.
"""

import re

from paper.campaigns import campaign_table
from paper.neighbours import neighbour_table
from paper.numbers import evaluate
from paper.record import Record
from paper.speed import network_table, speed_table
from paper.tables import chosen, whole

KINDS = "figure|lead|smallest|largest|table"
MARKED = re.compile(rf"(<!-- ({KINDS}): ([^>]*?) -->)(.*?)(<!-- end -->)", re.DOTALL)
IN_NOTES = re.compile(rf"\{{({KINDS}): ([^}}]*)\}}")


def fill(text: str, record: Record, name: str = "the text") -> str:
    """The text with everything between markers as the results files have it."""
    filled = MARKED.sub(lambda found: replaced(found, record, name), text)
    if len(re.findall(rf"<!-- (?:{KINDS}):", text)) != len(MARKED.findall(text)):
        raise ValueError(f"{name}: a marker is not closed. It needs <!-- end --> behind it.")
    return filled


def replaced(found: re.Match[str], record: Record, name: str) -> str:
    begin, kind, expression, between, end = found.groups()
    if "<!--" in between:
        raise ValueError(f"{name}: {begin} is not closed. It needs <!-- end --> behind it.")
    try:
        if kind == "table":
            return f"{begin}\n\n{table(record, expression)}\n\n{end}"
        return f"{begin}{evaluate(record, kind, expression)}{end}"
    except ValueError as error:
        raise ValueError(f"{name}, {begin}: {error}") from error


def table(record: Record, expression: str) -> str:
    """The Markdown for `NAME`, or `NAME rows=… columns=…`."""
    name, *options = expression.split()
    wanted = {key: value.split(",") for key, _, value in (option.partition("=") for option in options)}
    known = ["rows=", "columns=", *(["processors="] if name == "speed" else [])]
    if not {f"{key}=" for key in wanted} <= set(known):
        raise ValueError(f"the table {name} takes {' and '.join(known)}; got {', '.join(options)}.")
    if name == "speed":
        return speed_table(record.speed, **wanted)
    if name == "network_times":
        return network_table(record.networks)
    if name == "campaigns":
        if record.campaigns is None:
            raise ValueError("there is no benchmarks/results/campaigns.json: make campaign FIGURES=… writes it.")
        return campaign_table(record.campaigns)
    if name == "neighbours":
        return neighbour_table(record.neighbours)
    if not wanted:
        parts = whole(record, record.table(name))
        if not parts:
            raise ValueError(f"the table {name} has no figures yet.")
        return "\n\n".join(parts)
    if len(wanted) != 2:
        raise ValueError("a table needs both rows= and columns=, or neither.")
    return chosen(record, record.table(name), wanted["rows"], wanted["columns"])


def fill_note(note: str, record: Record) -> str:
    """A note of published.toml with its figures."""
    return IN_NOTES.sub(lambda found: evaluate(record, found[1], found[2]), note)
