"""The results files: rows of identifiers with a value, and the circumstances of the measurement."""

import json
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
