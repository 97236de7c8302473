"""The tables of `acda bench`: time of one layer relative to nn.Conv2d, from benchmarks/results/speed-PROCESSOR.json.

`table: speed` has all cases and contenders, and the processors side by side where there are several. rows= are cases,
SIDE_CHANNELS_SIZE with _BATCH behind it for batches (7x7_64_100, 7x7_128_14_8); columns= are forward/native,
training/unfold and so on; processors= are those to show, such as amd-epyc-avx2. A single ratio is the figure
speed-amd-epyc-avx2/native/7x7_64_100/forward, a peak of memory in MB memory-amd-epyc-avx2/native/7x7_64_100/training:
figures belong to a processor.

`table: network_times` has the networks of `benchmarks/networks.py`, from benchmarks/results/networks-PROCESSOR.json.
"""

from typing import Any

from acda.support.environment import processor_words
from paper.results import Row, result

CONTENDERS = {"unfold": "unfold", "reference": "plain torch", "native": "native"}
MODES = {"forward": "inference", "training": "training"}


def speed_rows(saved: dict[str, Any], name: str) -> list[Row]:
    """The rows of a results file: the table names the processor, the dataset is the case, the metric the mode.

    name: the file's, speed-PROCESSOR
    """
    processor = name.removeprefix("speed-")
    facts = saved["circumstances"]
    return [
        result(
            f"{row['table']}-{processor}",
            case_of(row),
            row["name"],
            row["metric"].partition(",")[0],
            row["value"],
            case=words_of(row),
            processor=processor_of(facts, processor),
        )
        for row in saved["rows"]
    ]


def processor_of(facts: dict[str, Any], name: str) -> str:
    """Model and vectors that the kernel used. name: the processor's in the name of the file

    >>> processor_of({"machine": "Intel(R) Xeon(R) Processor"}, "intel-xeon-avx512")
    'Intel Xeon, AVX-512'
    """
    vectors = {"avx2": "AVX2", "avx512": "AVX-512"}.get(name.rpartition("-")[2], "no wide vectors")
    return f"{processor_words(facts['machine'])}, {vectors}"


def case_of(row: dict[str, Any]) -> str:
    batch = f"_{row['batch']}" if row["batch"] > 1 else ""
    return f"{row['side']}x{row['side']}_{row['channels']}_{row['size']}{batch}"


def words_of(row: dict[str, Any]) -> str:
    batch = f", batch {row['batch']}" if row["batch"] > 1 else ""
    return f"{row['side']}×{row['side']}, {row['channels']} channels, {row['size']}×{row['size']}{batch}"


def speed_table(
    saved: list[Row],
    rows: list[str] | None = None,
    columns: list[str] | None = None,
    processors: list[str] | None = None,
) -> str:
    """Cases in lines; modes, contenders and processors in columns; below 1 is faster than Conv2d."""
    ratios = {
        (row["dataset"], row["metric"], row["model"], row["table"]): row
        for row in saved
        if row["table"].startswith("speed-")
    }
    words = {row["table"]: row["processor"] for row in ratios.values()}
    tables = [f"speed-{name}" for name in processors] if processors else list(words)
    for table in tables:
        if table not in words:
            raise ValueError(f"there is no benchmarks/results/{table}.json. There are: {', '.join(sorted(words))}.")
    rows = rows or list(dict.fromkeys(case for case, *_ in ratios))
    columns = columns or [f"{mode}/{contender}" for mode in MODES for contender in CONTENDERS]
    split = [(mode, contender) for mode, _, contender in (column.partition("/") for column in columns)]
    several = len({contender for _, contender in split}) > 1
    heads = [
        MODES[mode] + (f", {CONTENDERS[contender]}" if several else "") + (f", {words[table]}" if tables[1:] else "")
        for mode, contender in split
        for table in tables
    ]
    lines = [f"| time / Conv2d of the same size | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for case in rows:
        found = [ratios.get((case, *column, table)) for column in split for table in tables]
        first = next((row for row in found if row), None)
        if first is None:
            raise ValueError(f"there is no case {case!r}. There are: {', '.join(sorted({key[0] for key in ratios}))}.")
        lines.append(f"| {first['case']} | {' | '.join(ratio(row) for row in found)} |")
    return "\n".join(lines)


def ratio(row: Row | None) -> str:
    """Two decimals, none from ten on: times on a shared machine vary by several percent."""
    return "" if row is None else f"{row['value']:.0f}" if row["value"] >= 10 else f"{row['value']:.2f}"


def network_table(saved: dict[str, dict[str, Any]]) -> str:
    """Ratios of times in lines, processors in columns. saved: by processor, each file as it is."""
    values = {
        (f"`{row['name']}`, {row['dataset']}", row["metric"], processor): row["value"]
        for processor, found in saved.items()
        for row in found["rows"]
        if row["table"] == "networks"
    }
    heads = [processor_of(found["circumstances"], name) for name, found in saved.items()]
    lines = [f"| network | ratio | {' | '.join(heads)} |", f"|---|---|{'---:|' * len(heads)}"]
    for case, metric in dict.fromkeys(key[:2] for key in values):
        found = [values.get((case, metric, processor)) for processor in saved]
        lines.append(f"| {case} | {metric} | {' | '.join('' if v is None else f'{v:.2f}' for v in found)} |")
    return "\n".join(lines)
