"""Write every page that shows results, from published.toml, words.toml and the results files.

python -m paper.render            # RESULTS.md, and what is between markers in README.md, docs/, model cards, recipes
python -m paper.render --check    # fails when a page is not what the files say
python -m paper.render --list counting    # the figures whose path has this in it, with their values

paper/markers.py describes the markers, paper/recipe_lines.py the lines in the docstrings of recipes.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from acda.support.files import written_whole
from paper.markers import fill, fill_note
from paper.numbers import written
from paper.recipe_lines import with_results
from paper.record import Record, Table
from paper.results import HERE, ROOT
from paper.tables import whole

PAGE = HERE / "RESULTS.md"
MARKDOWN = ("README.md", "paper/EVIDENCE.md", "docs/**/*.md", "weights/**/*.md", "acda/photos/pretrained/*.md")
RECIPES = "acda/training/recipes/*.py"
HEAD = """# Results beside the paper's

Rendered by `python -m paper.render` from `published.toml` and `results/*.json`. A test fails when they disagree.
*Published* is what the paper prints. *Ours* was measured or counted here; below each table is how.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; fail when a page is not up to date")
    parser.add_argument("--list", metavar="WORD", help="print the figures whose path contains WORD")
    options = parser.parse_args()
    record = Record.read()
    if options.list is not None:
        print_figures(record, options.list)
        return
    stale = {path: text for path, text in pages(record) if not path.exists() or path.read_text() != text}
    if options.check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.exit(f"not what the results files say: {names}. Run python -m paper.render.")
    for path, text in stale.items():
        with written_whole(path) as file:
            file.write_text(text)
        print(path.relative_to(ROOT))


def print_figures(record: Record, word: str) -> None:
    for path, row in record.figures.items():
        if word in path:
            print(f"{path}  {written(record, row)}")


def pages(record: Record, root: Path = ROOT) -> Iterator[tuple[Path, str]]:
    """Every page that shows results, and what it should be."""
    yield root / PAGE.relative_to(ROOT), results_page(record)
    for path in sorted(path for pattern in MARKDOWN for path in root.glob(pattern)):
        yield path, fill(path.read_text(), record, str(path.relative_to(root)))
    for path in sorted(root.glob(RECIPES)):
        yield path, with_results(path.read_text(), record)


def results_page(record: Record) -> str:
    """The whole of RESULTS.md."""
    return "\n".join([HEAD, *(part for table in record.tables if (part := section(table, record)))])


def section(table: Table, record: Record) -> str:
    """A table, its notes and its circumstances; nothing where there is neither a published figure nor one of ours."""
    mine = record.of_table(table["id"])
    if not mine and not table["rows"]:
        return ""
    notes = [table.get("note"), table.get("ours") if mine else None]
    note = fill_note(" ".join(note for note in notes if note), record)
    files = {
        name: result["circumstances"]
        for name, result in record.results.items()
        if any(row["table"] == table["id"] for row in result["rows"])
    }
    parts = [f"## {table['title']}", *whole(record, table), note, *(circumstances(*file) for file in files.items())]
    return "\n\n".join(part for part in parts if part) + "\n"


def circumstances(name: str, facts: dict[str, Any]) -> str:
    """The circumstances of a results file in one line: commit, machine, versions, budget, seed."""
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
