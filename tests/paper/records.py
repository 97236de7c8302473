"""A small record of what was published and measured."""

from paper.record import Record
from paper.results import result

WORDS = {
    "datasets": {"d": "Data", "e": "Other data"},
    "metrics": {"error": "error, %", "psnr": "PSNR, dB", "count": "heads up to {heads}"},
    "models": {"a": "A", "b": "B", "c": "C"},
    "values": {"deviation": "{value:.2f} ± {deviation:.2f}", "refused": "refused: {value}"},
}
TABLE = {
    "id": "t",
    "title": "T",
    "columns": [["d", "error"], ["", "psnr"]],
    "rows": [["a", "12.30", "-"], ["c", "9", "1"]],
}


def row(model, value, metric="error", dataset="d", **facts):
    return result("t", dataset, model, metric, value, **facts)


def record_of(*rows, **table):
    results = {"t.json": {"rows": list(rows), "circumstances": {}}}
    return Record([{**TABLE, **table}], WORDS, results)
