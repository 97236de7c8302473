"""The table of `benchmarks/neighbours.py`: operators of acda.compat, their time relative to the way with F.unfold.

`table: neighbours` has a line for each operator and columns for each processor, from
benchmarks/results/neighbours-PROCESSOR.json.
"""

from typing import Any

MODES = {"forward": "inference", "training": "training"}


def neighbour_table(saved: dict[str, dict[str, Any]]) -> str:
    """saved: by processor, each file as it is."""
    heads = [f"{words}, {processor}" for processor in saved for words in MODES.values()]
    lines = [f"| operator | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    ratios = {
        (row["name"], processor, row["metric"].partition(",")[0]): row["value"]
        for processor, found in saved.items()
        for row in found["rows"]
    }
    for name in dict.fromkeys(name for name, _, _ in ratios):
        values = [ratios.get((name, processor, mode)) for processor in saved for mode in MODES]
        lines.append(f"| {name} | {' | '.join('' if v is None else f'{v:.2f}' for v in values)} |")
    return "\n".join([*lines, "", *(f"<sub>{processor}: {_where(found)}</sub>" for processor, found in saved.items())])


def _where(found: dict[str, Any]) -> str:
    facts = found["circumstances"]
    case = found["rows"][0]["dataset"]
    return f"{case}; {facts['threads']} threads, torch {facts['torch']}, commit {facts['commit']}, {facts['budget']}"
