"""Tables of Markdown."""

import pytest

from paper.tables import chosen, compare, side_by_side, whole
from tests.paper.records import record_of, row


def lines(text):
    return text.splitlines()


def test_difference_is_in_the_papers_digits():
    record = record_of()
    assert compare(record, row("a", 12.3456)) == ("12.30", "12.35", "+0.05")
    assert compare(record, row("a", 12.3012)) == ("12.30", "12.30", "0")
    assert compare(record, row("b", 12.3456)) == ("–", "12.35", "")


def test_what_the_paper_prints_and_we_lack_follows():
    record = record_of(row("a", 12.0))
    ours, published = whole(record, record.table("t"))
    assert lines(ours)[2:] == ["| A | Data, error, % | 12.30 | 12.00 | -0.30 |"]
    assert lines(published) == ["| published | Data, error, % | PSNR, dB |", "|---|---:|---:|", "| C | 9 | 1 |"]


def test_what_the_paper_does_not_print_stands_side_by_side():
    record = record_of(row("a", 1.5), row("b", 1.25), row("b", 1234.5, "psnr", "e"), rows=[])
    (ours,) = whole(record, record.table("t"))
    assert lines(ours)[0] == "|  | Data, error, % | Other data, PSNR, dB |"
    assert lines(ours)[2:] == ["| A | 1.50 |  |", "| B | 1.25 | 1,234 |"]


@pytest.mark.parametrize(("place", "head", "first"), [("rows", "error, %", "A, Data"), ("title", "error, %", "A")])
def test_a_table_says_where_its_dataset_is_shown(place, head, first):
    rows = [row("a", 1.5)]
    record = record_of(*rows, datasets=place)
    assert lines(side_by_side(record, record.table("t"), rows)) == [
        f"|  | {head} |",
        "|---|---:|",
        f"| {first} | 1.5 |",
    ]


def test_several_seeds_are_several_lines():
    rows = [row("b", float(seed), seed=seed) for seed in (1, 2)]
    record = record_of(*rows)
    assert lines(side_by_side(record, record.table("t"), rows))[2:] == ["| B, seed 1 | 1 |", "| B, seed 2 | 2 |"]


def test_rows_and_columns_can_be_chosen_with_the_papers_beside_them():
    record = record_of(row("a", 1.5), row("b", 1.25), row("b", 3, "psnr", ""))
    table = record.table("t")
    text = chosen(record, table, ["b", "a"], ["d/error", "paper:d/error", "psnr"])
    assert lines(text) == [
        "|  | error, % | paper: error, % | PSNR, dB |",
        "|---|---:|---:|---:|",
        "| B | 1.25 |  | 3 |",
        "| A | 1.50 | 12.30 |  |",
    ]
    with pytest.raises(ValueError, match="no figure of a, b in the column e/error"):
        chosen(record, table, ["a", "b"], ["d/error", "e/error"])
    with pytest.raises(ValueError, match="no figure of c in the columns d/error"):
        chosen(record, table, ["a", "c"], ["d/error"])
