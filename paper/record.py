"""All that was published and measured, in one place, and the words for it."""

import json
import tomllib
from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from acda.support.names import unknown
from paper.campaigns import campaign_rows
from paper.results import HERE, Row, path_of
from paper.speed import speed_rows

Table = dict[str, Any]
CAMPAIGNS = "campaigns.json"


@dataclass(frozen=True)
class Record:
    """published.toml, words.toml and results/*.json of a folder."""

    tables: list[Table]
    words: dict[str, dict[str, str]]
    results: dict[str, dict[str, Any]]
    """by the name of the file"""
    speed: list[Row] = field(default_factory=list)
    """of `acda bench`, for each processor"""
    campaigns: dict[str, Any] | None = None
    """of `make campaign`, as the file has it"""
    neighbours: dict[str, dict[str, Any]] = field(default_factory=dict)
    """of `benchmarks/neighbours.py`, by processor, as the files have it"""
    networks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """of `benchmarks/networks.py`, likewise"""

    @classmethod
    def read(cls, folder: Path = HERE) -> "Record":
        # Numbers stay text, so that they are printed with the digits that the paper prints.
        tables = tomllib.loads((folder / "published.toml").read_text(), parse_float=str)["tables"]
        words = tomllib.loads((folder / "words.toml").read_text())
        files = sorted((folder / "results").glob("*.json"))
        measured = folder.parent / "benchmarks" / "results"
        benches = sorted(measured.glob("speed-*.json"))
        speed = [row for path in benches for row in speed_rows(json.loads(path.read_text()), path.stem)]
        results = {path.name: json.loads(path.read_text()) for path in files}
        neighbours, networks = (_by_processor(measured, kind) for kind in ("neighbours", "networks"))
        record = cls(tables, words, results, speed, _read(measured / CAMPAIGNS), neighbours, networks)
        record.check()
        return record

    def check(self) -> None:
        """Refuse a row of an unknown table, and two rows for one figure."""
        known = [table["id"] for table in self.tables]
        for name, result in self.results.items():
            for row in result["rows"]:
                if row["table"] not in known:
                    raise ValueError(f"{name}: {unknown('table', row['table'], known)}")
        assert self.figures  # which looks for doubles

    @cached_property
    def rows(self) -> list[Row]:
        return [row for result in self.results.values() for row in result["rows"]]

    def of_table(self, table: str) -> list[Row]:
        return [row for row in self.rows if row["table"] == table]

    @cached_property
    def figures(self) -> dict[str, Row]:
        """Every row by its path; where there are several seeds, their paths end with /seed_N."""
        rows = [*self.rows, *self.speed, *(campaign_rows(self.campaigns) if self.campaigns else [])]
        times = Counter(path_of(row) for row in rows)
        found: dict[str, Row] = {}
        for row in rows:
            path = path_of(row) if times[path_of(row)] == 1 else f"{path_of(row)}/seed_{row['seed']}"
            if path in found:
                raise ValueError(f"there are two rows for {path} in results/*.json.")
            found[path] = row
        return found

    @cached_property
    def published(self) -> dict[str, str]:
        """What the paper prints, as text, by path; its dashes are left out."""
        return {
            path_of({"table": table["id"], "model": model, "dataset": dataset, "metric": metric}): str(value)
            for table in self.tables
            for model, *values in table["rows"]
            for (dataset, metric), value in zip(table["columns"], values, strict=True)
            if value != "-"
        }

    def published_beside(self, row: Row) -> str | None:
        """What the paper prints for a row: of its dataset, or of none in particular."""
        return self.published.get(path_of(row)) or self.published.get(path_of({**row, "dataset": ""}))

    def table(self, identifier: str) -> Table:
        found = {table["id"]: table for table in self.tables}
        if identifier not in found:
            raise unknown("table", identifier, found)
        return found[identifier]

    def model(self, row: Row) -> str:
        """The words for a row's model, in its table."""
        own = self.table(row["table"]).get("models", {})
        return own[row["model"]].format(**row) if row["model"] in own else self.word("models", row["model"], row)

    def word(self, kind: str, identifier: str, row: Row | None = None) -> str:
        """The words for a dataset, a metric or a model."""
        if identifier not in self.words[kind]:
            raise ValueError(f"{identifier!r} is not in [{kind}] of words.toml: add what people call it.")
        return self.words[kind][identifier].format(**row or {})


def _read(path: Path) -> dict[str, Any] | None:
    """A results file, where there is one."""
    return json.loads(path.read_text()) if path.exists() else None


def _by_processor(folder: Path, kind: str) -> dict[str, dict[str, Any]]:
    """The files KIND-PROCESSOR.json of a folder."""
    files = sorted(folder.glob(f"{kind}-*.json"))
    return {path.stem.removeprefix(f"{kind}-"): json.loads(path.read_text()) for path in files}
