"""The table of `acda bench`."""

from paper.speed import speed_rows, speed_table

SAVED = [
    {
        "table": table,
        "name": name,
        "metric": f"{mode}, {table}",
        "value": value,
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


def test_cases_are_lines_and_modes_of_contenders_are_columns():
    text = speed_table(speed_rows(SAVED), columns=["forward/native", "training/unfold"])
    assert text.splitlines() == [
        "| time / Conv2d of the same size | inference, native | training, unfold |",
        "|---|---:|---:|",
        "| 7×7, 64 channels, 14×14 | 0.71 |  |",
        "| 7×7, 64 channels, 14×14, batch 8 |  | 22 |",
    ]


def test_cases_can_be_chosen():
    (line,) = speed_table(speed_rows(SAVED), ["7x7_64_14_8"], ["training/native"]).splitlines()[2:]
    assert line == "| 7×7, 64 channels, 14×14, batch 8 | 0.50 |"
