"""Numbers as text: how a value is written, and the values of the expressions in markers."""

import math
import statistics

from acda.support.names import unknown
from paper.record import Record
from paper.results import Row


def shown(value: float) -> str:
    """Four digits; from a thousand on, whole numbers."""
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}"


def written(record: Record, row: Row) -> str:
    """A row's value, with its standard deviation or the reason why it is missing."""
    for kind, words in record.words["values"].items():
        if kind in row:
            return words.format(**row)
    return shown(row["value"])


def evaluate(record: Record, kind: str, expression: str) -> str:
    """The text for a marker `kind: expression`.

    figure    a value: PATH; a field of its row: PATH@hours; a difference: PATH - PATH
    lead      the mean difference over the test photos, and its standard error: PATH - PATH
    smallest, largest    the smallest and the largest value over the test photos: PATH, or PATH - PATH

    PATH is table/model/dataset/metric, and paper:table/… for what the paper prints. At the end, `as .1f` says how many
    digits are wanted.
    """
    expression, _, digits = (part.strip() for part in expression.partition(" as "))
    first, _, second = (part.strip() for part in expression.partition(" - "))
    if kind == "figure":
        return difference(record, first, second, digits or ".2f") if second else single(record, first, digits)
    over_photos = each_of(record, first, second)
    if kind == "lead":
        error = statistics.stdev(over_photos) / math.sqrt(len(over_photos))
        return f"{statistics.mean(over_photos):{digits or '.2f'}} ± {error:{digits or '.2f'}}"
    chosen = {"smallest": min, "largest": max}[kind](over_photos)
    return f"{chosen:{digits or '.2f'}}"


def single(record: Record, path: str, digits: str) -> str:
    if path.startswith("paper:"):
        text = printed(record, path)
        return f"{float(text):,{digits}}" if digits else text
    path, _, field = path.partition("@")
    row = figure(record, path)
    if not field:
        return f"{row['value']:,{digits}}" if digits else written(record, row)
    if field not in row:
        raise unknown(f"field of {path}", field, row)
    return f"{row[field]:,{digits}}" if digits else str(row[field])


def difference(record: Record, first: str, second: str, digits: str) -> str:
    """Over the photos where both have them, which is exact; of the rounded values otherwise."""
    if first.startswith("paper:"):
        return f"{float(printed(record, first)) - float(printed(record, second)):{digits}}"
    a, b = figure(record, first), figure(record, second)
    exact = "each" in a and "each" in b
    value = statistics.mean(each_of(record, first, second)) if exact else a["value"] - b["value"]
    return f"{value:{digits}}"


def figure(record: Record, path: str) -> Row:
    if path not in record.figures:
        raise unknown("figure", path, record.figures, f"python -m paper.render --list {path.partition('/')[0]}")
    return record.figures[path]


def printed(record: Record, path: str) -> str:
    path = path.removeprefix("paper:")
    if path not in record.published:
        raise unknown("figure of the paper", path, record.published)
    return record.published[path]


def each_of(record: Record, first: str, second: str) -> list[float]:
    """The values of every test photo, or their differences."""
    rows = [figure(record, path) for path in (first, second) if path]
    for path, row in zip((first, second), rows, strict=False):
        if not isinstance(row.get("each"), list):
            raise ValueError(f"{path} has no values photo by photo.")
    a, *others = (row["each"] for row in rows)
    return [x - y for x, y in zip(a, others[0], strict=True)] if others else list(a)
