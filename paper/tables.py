"""Tables of Markdown: ours beside the paper's, ours alone, the paper's alone, and chosen rows and columns."""

from collections import Counter
from collections.abc import Collection, Iterable

from paper.numbers import written
from paper.record import Record, Table
from paper.results import Row, path_of


def whole(record: Record, table: Table) -> list[str]:
    """Our figures of a table, beside the paper's where it prints some of them; then what only the paper has."""
    mine = record.of_table(table["id"])
    parts = []
    if mine and all(record.published_beside(row) is None for row in mine):
        parts.append(side_by_side(record, table, mine))
    elif mine:
        parts.append(beside_the_paper(record, mine))
    missing = only_published(record, table, mine)
    return [*parts, missing] if missing else parts


def beside_the_paper(record: Record, rows: list[Row]) -> str:
    """A line a figure: the paper's, ours, and the difference."""
    body = ([record.model(row), where(record, row, rows), *compare(record, row)] for row in rows)
    return markdown(["", "", "published", "ours", "difference"], body, numbers_from=2)


def where(record: Record, row: Row, rows: list[Row]) -> str:
    dataset = record.word("datasets", row["dataset"], row) if row["dataset"] else ""
    return heading(dataset, seed_of(row, rows), record.word("metrics", row["metric"], row))


def compare(record: Record, row: Row) -> tuple[str, str, str]:
    """The paper's value, ours, and ours minus the paper's, in the digits that the paper prints."""
    published, text = record.published_beside(row), written(record, row)
    if published is None or not numeric(published) or "refused" in row:
        return published or "–", text, ""
    digits = len(published.partition(".")[2])
    difference = round(row["value"], digits) - float(published)
    sign = "0" if abs(difference) < 0.5 * 10**-digits else f"{difference:+,.{digits}f}"
    return f"{float(published):,.{digits}f}", f"{row['value']:,.{digits}f}", sign


def numeric(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


def side_by_side(record: Record, table: Table, rows: list[Row]) -> str:
    """Ours alone: a line for each model, a column for each dataset and metric."""
    columns: dict[str, dict[str, Row]] = {}
    for row in rows:
        dataset = record.word("datasets", row["dataset"], row) if row["dataset"] else ""
        in_columns, in_rows = {"columns": (dataset, ""), "rows": ("", dataset), "title": ("", "")}[
            table.get("datasets", "columns")
        ]
        name = heading(record.model(row), in_rows, seed_of(row, rows))
        columns.setdefault(heading(in_columns, record.word("metrics", row["metric"], row)), {})[name] = row
    names = dict.fromkeys(name for column in columns.values() for name in column)
    cells = [evenly(record, column) for column in columns.values()]
    body = ([name, *(column.get(name, "") for column in cells)] for name in names)
    return markdown(["", *columns], body)


def seed_of(row: Row, rows: list[Row]) -> str:
    """The seed, where the same was measured with several."""
    times = Counter(path_of(each) for each in rows)
    return f"seed {row['seed']}" if times[path_of(row)] > 1 else ""


def evenly(record: Record, column: dict[str, Row]) -> dict[str, str]:
    """The figures of a column, with zeros behind those that would end before the others."""
    texts = {name: written(record, row) for name, row in column.items()}
    plain = {name: text for name, text in texts.items() if numeric(text.lstrip("-"))}
    digits = max(len(text.partition(".")[2]) for text in ["", *plain.values()])
    rounded = [name for name in plain if isinstance(column[name]["value"], float)]
    return texts | {name: f"{column[name]['value']:.{digits}f}" for name in rounded}


def only_published(record: Record, table: Table, mine: list[Row]) -> str:
    """What the paper prints of models where we lack a figure; "" where we lack none."""
    have = {(row["model"], dataset, row["metric"]) for row in mine for dataset in (row["dataset"], "")}
    columns = [tuple(column) for column in table["columns"]]
    rest = [
        [record.model({"table": table["id"], "model": model}), *map(str, values)]
        for model, *values in table["rows"]
        if any((model, *c) not in have and value != "-" for c, value in zip(columns, values, strict=True))
    ]
    heads = (heading(record.word("datasets", d) if d else "", record.word("metrics", m)) for d, m in columns)
    return markdown(["published", *heads], rest) if rest else ""


def chosen(record: Record, table: Table, models: list[str], columns: list[str]) -> str:
    """These models and columns of a table. A column is dataset/metric or metric, with paper: before the paper's own."""
    known = {row["model"]: row for row in record.of_table(table["id"])}
    names = {model: record.model(known.get(model, {"table": table["id"], "model": model})) for model in models}
    cells = [column_of(record, table["id"], models, column) for column in columns]
    for model in models:
        if not any(model in column for column in cells):
            raise ValueError(f"there is no figure of {model} in the columns {', '.join(columns)}.")
    body = ([names[model], *(column.get(model, "") for column in cells)] for model in models)
    return markdown(["", *heads_of(record, columns)], body)


def column_of(record: Record, table: str, models: list[str], column: str) -> dict[str, str]:
    """The figures of a column by model."""
    wanted = column.removeprefix("paper:")
    known: Collection[str] = record.published if column != wanted else record.figures
    paths = {model: f"{table}/{model}/{wanted}" for model in models if f"{table}/{model}/{wanted}" in known}
    if not paths:
        raise ValueError(f"there is no figure of {', '.join(models)} in the column {column}.")
    if column != wanted:
        return {model: record.published[path] for model, path in paths.items()}
    return evenly(record, {model: record.figures[path] for model, path in paths.items()})


def heads_of(record: Record, columns: list[str]) -> list[str]:
    """The words for columns; a dataset that all of them share is left to the text around the table."""
    split = [column.removeprefix("paper:").rpartition("/") for column in columns]
    several = len({dataset for dataset, _, _ in split if dataset}) > 1
    words = [
        heading(record.word("datasets", dataset) if dataset and several else "", record.word("metrics", metric))
        for dataset, _, metric in split
    ]
    return [f"paper: {w}" if c.startswith("paper:") else w for w, c in zip(words, columns, strict=True)]


def heading(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def markdown(heads: list[str], body: Iterable[list[str] | tuple[str, ...]], numbers_from: int = 1) -> str:
    rule = "|".join(["---"] * numbers_from + ["---:"] * (len(heads) - numbers_from))
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}|", *(f"| {' | '.join(cells)} |" for cells in body)])
