"""Render published.toml and results/*.json into RESULTS.md.

python paper/render.py            # writes RESULTS.md
python paper/render.py --check    # fails when RESULTS.md is not what the files say
"""

import argparse
import json
import sys
import tomllib
from pathlib import Path
from typing import Any

from acda.support.files import written_whole

HERE = Path(__file__).parent
PAGE = HERE / "RESULTS.md"
HEAD = """# Results, beside the paper's

Rendered by `python paper/render.py` from `published.toml` and `results/*.json`; a test fails when they disagree.
*published* is what the paper prints, *ours* what was measured or counted here, with the circumstances below each table.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    page = render()
    if parser.parse_args().check:
        if not PAGE.exists() or PAGE.read_text() != page:
            sys.exit(f"{PAGE.name} is not what the files say: run python paper/render.py")
        return
    with written_whole(PAGE) as file:
        file.write_text(page)


def render(folder: Path = HERE) -> str:
    """The whole page, from the files in this folder."""
    # Numbers stay text, so that they are printed with the digits that the paper prints.
    tables = tomllib.loads((folder / "published.toml").read_text(), parse_float=str)["tables"]
    results = {path.name: json.loads(path.read_text()) for path in sorted((folder / "results").glob("*.json"))}
    known = {table["id"] for table in tables}
    for name, result in results.items():
        for row in result["rows"]:
            if row["table"] not in known:
                raise ValueError(f"{name}: there is no table {row['table']!r} in published.toml.")
    return "\n".join([HEAD, *(part for table in tables if (part := section(table, results)))])


def section(table: dict[str, Any], results: dict[str, Any]) -> str:
    """One table of the paper: what we have beside what it prints, then what it prints and we do not have.

    Where the paper prints none of these figures there is nothing to stand beside: a line a network, a column a figure;
    and no table until there are results.
    """
    mine = [(name, row) for name, result in results.items() for row in result["rows"] if row["table"] == table["id"]]
    if not mine and not table["rows"]:
        return ""
    parts = [f"## {table['title']}\n"]
    if mine and all(published_value(table, row) is None for _, row in mine):
        parts += [*side_by_side([row for _, row in mine]), ""]
    elif mine:
        parts.append("| | | published | ours | difference |\n|---|---|---:|---:|---:|")
        parts += [compare(row, published_value(table, row)) for _, row in mine]
        parts.append("")
    have = {(row["name"], *column) for _, row in mine for column in columns_of(row)}
    rest = [
        (name, *values)
        for name, *values in table["rows"]
        if any((name, *c) not in have and value != "-" for c, value in zip(table["columns"], values, strict=True))
    ]
    if rest:
        heads = [heading(*column) for column in table["columns"]]
        parts.append(f"| published | {' | '.join(heads)} |\n|---|{'---:|' * len(heads)}")
        parts += [f"| {' | '.join(str(cell) for cell in row)} |" for row in rest]
        parts.append("")
    notes = [table.get("note"), table.get("ours") if mine else None]
    if any(notes):
        parts.append(" ".join(note for note in notes if note) + "\n")
    for name in dict.fromkeys(name for name, _ in mine):
        parts.append(circumstances(name, results[name]["circumstances"]) + "\n")
    return "\n".join(parts)


def side_by_side(rows: list[dict[str, Any]]) -> list[str]:
    """Ours alone: a line for each name, a column for each dataset and metric, whose figures end at the same digit."""
    columns: dict[str, dict[str, float | str]] = {}
    names: dict[str, None] = {}
    for row in rows:
        dataset, seed = without_seed(row["dataset"])
        name = heading(row["name"], seed)
        names[name] = None
        columns.setdefault(heading(dataset, row["metric"]), {})[name] = row["value"]
    cells = {head: evenly(values) for head, values in columns.items()}
    body = [f"| {name} | {' | '.join(cells[head].get(name, '') for head in columns)} |" for name in names]
    return [f"| ours | {' | '.join(columns)} |\n|---|{'---:|' * len(columns)}", *body]


def evenly(values: dict[str, float | str]) -> dict[str, str]:
    """The figures of a column, with zeros behind those that would end before the others."""
    texts = {name: shown(value) for name, value in values.items()}
    broken = {name: value for name, value in values.items() if isinstance(value, float) and "." in texts[name]}
    digits = max((len(texts[name].partition(".")[2]) for name in broken), default=0)
    return {**texts, **{name: f"{value:,.{digits}f}" for name, value in broken.items()}}


def heading(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def shown(value: float | str) -> str:
    """Text as it is, numbers to four digits, large ones whole."""
    if isinstance(value, str):
        return value
    return f"{value:,.4g}" if isinstance(value, float) and abs(value) < 1000 else f"{value:,.0f}"


def columns_of(row: dict[str, Any]) -> list[tuple[str, str]]:
    """The published columns that a row belongs to: of its dataset, or of any."""
    return [(without_seed(row["dataset"])[0], row["metric"]), ("", row["metric"])]


def without_seed(dataset: str) -> tuple[str, str]:
    """The name of a dataset, and the seed that stands behind it where a network was trained with several."""
    name, comma, seed = dataset.rpartition(", seed ")
    return (name, f"seed {seed}") if comma else (dataset, "")


def published_value(table: dict[str, Any], row: dict[str, Any]) -> str | None:
    """What the paper prints there, as text; None where it prints nothing."""
    for name, *values in table["rows"]:
        for column, value in zip(table["columns"], values, strict=True):
            if name == row["name"] and tuple(column) in columns_of(row) and value != "-":
                return str(value)
    return None


def compare(row: dict[str, Any], published: str | None) -> str:
    """One line: the difference is ours minus the paper's, in the digits that the paper prints."""
    label = f"| {row['name']} | {heading(row['dataset'], row['metric'])} |"
    value = row["value"]
    if published is None or not isinstance(value, int | float):
        return f"{label} {published or '–'} | {shown(value)} | |"
    digits = len(published.partition(".")[2])
    difference = round(value, digits) - float(published)
    sign = "0" if abs(difference) < 0.5 * 10**-digits else f"{difference:+,.{digits}f}"
    return f"{label} {float(published):,.{digits}f} | {value:,.{digits}f} | {sign} |"


def circumstances(name: str, facts: dict[str, Any]) -> str:
    """Where, when and with what a results file came about, in one line."""
    seed = facts.get("seeds", facts.get("seed"))
    parts = [
        f"`results/{name}`",
        f"commit {facts['commit']}",
        f"{facts['machine']}, {facts['threads']} thread{'s' if facts['threads'] != 1 else ''}",
        f"torch {facts['torch']}",
        str(facts.get("budget", "")),
        "" if seed is None else f"seed {', '.join(map(str, seed)) if isinstance(seed, list) else seed}",
    ]
    return "<sub>" + "; ".join(part for part in parts if part) + "</sub>"


if __name__ == "__main__":
    main()
