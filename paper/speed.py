"""The table of `acda bench`: time of one layer relative to nn.Conv2d, from benchmarks/results/speed.json.

`table: speed` has all cases and contenders. rows= are cases, SIDE_CHANNELS_SIZE with _BATCH behind it for batches
(7x7_64_100, 7x7_128_14_8); columns= are forward/native, training/unfold and so on. A single ratio is the figure
speed/native/7x7_64_100/forward, a peak of memory in MB memory/native/7x7_64_100/training.
"""

from typing import Any

from paper.results import Row, result

CONTENDERS = {"unfold": "unfold", "reference": "plain torch", "native": "native"}
MODES = {"forward": "inference", "training": "training"}


def speed_rows(saved: list[dict[str, Any]]) -> list[Row]:
    """The rows of speed.json, with a case for their dataset and a mode for their metric."""
    return [
        result(
            row["table"],
            case_of(row),
            row["name"],
            row["metric"].partition(",")[0],
            row["value"],
            case=words_of(row),
        )
        for row in saved
    ]


def case_of(row: dict[str, Any]) -> str:
    batch = f"_{row['batch']}" if row["batch"] > 1 else ""
    return f"{row['side']}x{row['side']}_{row['channels']}_{row['size']}{batch}"


def words_of(row: dict[str, Any]) -> str:
    batch = f", batch {row['batch']}" if row["batch"] > 1 else ""
    return f"{row['side']}×{row['side']}, {row['channels']} channels, {row['size']}×{row['size']}{batch}"


def speed_table(saved: list[Row], rows: list[str] | None = None, columns: list[str] | None = None) -> str:
    """Cases in lines, modes and contenders in columns; below 1 is faster than Conv2d."""
    ratios = {(row["dataset"], row["metric"], row["model"]): row for row in saved if row["table"] == "speed"}
    rows = rows or list(dict.fromkeys(case for case, _, _ in ratios))
    columns = columns or [f"{mode}/{contender}" for mode in MODES for contender in CONTENDERS]
    split = [(mode, contender) for mode, _, contender in (column.partition("/") for column in columns)]
    heads = [f"{MODES[mode]}, {CONTENDERS[contender]}" for mode, contender in split]
    lines = [f"| time / Conv2d of the same size | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for case in rows:
        found = [ratios.get((case, *column)) for column in split]
        first = next((row for row in found if row), None)
        if first is None:
            raise ValueError(f"there is no case {case!r}. There are: {', '.join(sorted({key[0] for key in ratios}))}.")
        lines.append(f"| {first['case']} | {' | '.join(ratio(row) for row in found)} |")
    return "\n".join(lines)


def ratio(row: Row | None) -> str:
    """Two decimals, none from ten on: times on a shared machine vary by several percent."""
    return "" if row is None else f"{row['value']:.0f}" if row["value"] >= 10 else f"{row['value']:.2f}"
