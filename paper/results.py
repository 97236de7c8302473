"""The results files: rows of identifiers with a value, and the circumstances of the measurement."""

import json
import statistics
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from acda.support.environment import write_results

HERE = Path(__file__).parent
ROOT = HERE.parent
RESULTS = HERE / "results"
PICTURES = HERE / "pictures"
Row = dict[str, Any]


def result(table: str, dataset: str, model: str, metric: str, value: float, **facts: Any) -> Row:
    """One figure. dataset is "" for what belongs to no dataset; facts are anything else that is known of it."""
    return {"table": table, "dataset": dataset, "model": model, "metric": metric, "value": value, **facts}


def path_of(row: Row) -> str:
    """The name of a figure in markers.

    >>> path_of(result("lenet", "cifar10", "lenet_acda", "top1_error", 22.96))
    'lenet/lenet_acda/cifar10/top1_error'
    >>> path_of(result("denoising", "", "dncnn", "parameters", 0.558))
    'denoising/dncnn/parameters'
    """
    return "/".join(part for part in (row["table"], row["model"], row["dataset"], row["metric"]) if part)


def read(name: str) -> dict[str, Any]:
    """results/NAME.json; without rows where there is no such file."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": [], "circumstances": {}}


def write(name: str, rows: list[Row], **facts: Any) -> None:
    """results/NAME.json: the rows, and their circumstances with these facts."""
    write_results(RESULTS / f"{name}.json", rows, **facts)


def rows_made_with(budget: str, path: Path) -> list[Row]:
    """The rows of a results file, none where there is no file; one that was made with another budget is refused."""
    if not path.exists():
        return []
    found = json.loads(path.read_text())
    if found["circumstances"]["budget"] != budget:
        raise SystemExit(f"{path} is for {found['circumstances']['budget']}, not for {budget}. Choose another --out.")
    return list(found["rows"])


def with_seed(
    rows: list[Row], table: str, dataset: str, model: str, seed: int, found: dict[str, float], **facts: Any
) -> list[Row]:
    """The rows with one more seed of a model: means, standard deviations, and the value of each seed.

    >>> rows = with_seed([], "heads", "shanghaitech_a", "conv", 0, {"mae": 80.0})
    >>> with_seed(rows, "heads", "shanghaitech_a", "conv", 1, {"mae": 90.0})[0]["value"]
    85.0
    """
    for metric, value in found.items():
        own = [r for r in rows if (r["model"], r["dataset"], r["metric"]) == (model, dataset, metric)]
        seeds = {**(own[0]["seeds"] if own else {}), str(seed): value}
        mean, varies = round(statistics.mean(seeds.values()), 3), len(set(seeds.values())) > 1
        spread = {"deviation": round(statistics.stdev(seeds.values()), 3)} if varies else {}
        new = result(table, dataset, model, metric, mean, seeds=seeds, **spread, **facts)
        rows = [r for r in rows if r not in own] + [new]
    return rows


def seeds_of(rows: Iterable[Row]) -> list[int]:
    """Every seed that some row has."""
    return sorted({int(seed) for row in rows for seed in row["seeds"]})
