"""The table of `acda bench`."""

import pytest

from paper.results import path_of
from paper.speed import network_table, speed_rows, speed_table


def saved(machine, vectors, factor=1.0):
    rows = [
        {
            "table": table,
            "name": name,
            "metric": f"{mode}, {table}",
            "value": factor * value,
            "channels": 64,
            "size": 14,
            "side": 7,
            "batch": batch,
        }
        for table, name, mode, value, batch in [
            ("speed", "native", "forward", 0.714, 1),
            ("memory", "native", "forward", 700, 1),
            ("speed", "unfold", "training", 21.6, 8),
            ("speed", "native", "training", 0.5, 8),
        ]
    ]
    return {"rows": rows, "circumstances": {"machine": machine, "vectors": vectors}}


AMD = speed_rows(saved("AMD EPYC", "AVX2"), "speed-amd-epyc-avx2")
INTEL = speed_rows(saved("Intel Xeon", "AVX512", 2.0), "speed-intel-xeon-avx512")


def test_cases_are_lines_and_modes_of_contenders_are_columns():
    text = speed_table(AMD, columns=["forward/native", "training/unfold"])
    assert text.splitlines() == [
        "| time / Conv2d of the same size | inference, native | training, unfold |",
        "|---|---:|---:|",
        "| 7×7, 64 channels, 14×14 | 0.71 |  |",
        "| 7×7, 64 channels, 14×14, batch 8 |  | 22 |",
    ]


def test_cases_can_be_chosen():
    (line,) = speed_table(AMD, ["7x7_64_14_8"], ["training/native"]).splitlines()[2:]
    assert line == "| 7×7, 64 channels, 14×14, batch 8 | 0.50 |"


def test_processors_stand_side_by_side():
    text = speed_table([*AMD, *INTEL], ["7x7_64_14_8"], ["training/native"])
    assert text.splitlines() == [
        "| time / Conv2d of the same size | training, AMD EPYC, AVX2 | training, Intel Xeon, AVX-512 |",
        "|---|---:|---:|",
        "| 7×7, 64 channels, 14×14, batch 8 | 0.50 | 1.00 |",
    ]


def test_processors_can_be_chosen():
    text = speed_table([*AMD, *INTEL], ["7x7_64_14_8"], ["training/native"], ["intel-xeon-avx512"])
    assert text.splitlines()[0] == "| time / Conv2d of the same size | training |"
    assert text.splitlines()[2] == "| 7×7, 64 channels, 14×14, batch 8 | 1.00 |"
    with pytest.raises(ValueError, match=r"no benchmarks/results/speed-arm\.json"):
        speed_table(AMD, processors=["arm"])


def test_a_figure_belongs_to_a_processor():
    assert [path_of(row) for row in INTEL[:2]] == [
        "speed-intel-xeon-avx512/native/7x7_64_14/forward",
        "memory-intel-xeon-avx512/native/7x7_64_14/forward",
    ]


def test_networks_are_lines_and_processors_columns():
    def file(machine, *rows):
        rows = [
            {"table": "networks", "name": "net", "dataset": d, "metric": "time / other", "value": v} for d, v in rows
        ]
        memory = {"table": "memory", "name": "native", "dataset": "large", "metric": "peak", "value": 9}
        return {"rows": [*rows, memory], "circumstances": {"machine": machine, "vectors": "AVX2"}}

    text = network_table(
        {"a-avx2": file("A", ("training", 1.174), ("inference", 0.9)), "b-avx512": file("B", ("training", 2.0))}
    )
    assert text.splitlines() == [
        "| network | ratio | A, AVX2 | B, AVX-512 |",
        "|---|---|---:|---:|",
        "| `net`, training | time / other | 1.17 | 2.00 |",
        "| `net`, inference | time / other | 0.90 |  |",
    ]
