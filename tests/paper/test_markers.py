"""Text between markers is what the results files say; everything else stays."""

import pytest

from paper.markers import fill, fill_note
from tests.paper.records import record_of, row

RECORD = record_of(row("a", 1.5), row("b", 1.25))


def test_a_figure_is_filled_where_it_stands():
    text = "Before <!-- figure: t/a/d/error -->9.9<!-- end --> %, *after*.\n"
    filled = fill(text, RECORD)
    assert filled == text.replace("9.9", "1.5")
    assert fill(filled, RECORD) == filled


def test_a_table_has_lines_of_its_own():
    begin = "<!-- table: t rows=b,a columns=d/error -->"
    filled = fill(f"{begin}\n<!-- end -->\n\nrest", RECORD)
    assert filled == f"{begin}\n\n|  | error, % |\n|---|---:|\n| B | 1.25 |\n| A | 1.50 |\n\n<!-- end -->\n\nrest"
    assert fill(filled, RECORD) == filled


def test_a_whole_table_needs_its_name_only():
    assert "| A | Data, error, % | 12.30 | 1.50 | -10.80 |" in fill("<!-- table: t --><!-- end -->", RECORD)


def test_other_comments_are_left_alone():
    text = "<!-- a note: t/a/d/error --> and <!-- end -->"
    assert fill(text, RECORD) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- figure: t/a/d/error --> 1.5", "README.md: a marker is not closed"),
        ("<!-- figure: t/a/d/error --><!-- figure: t/b/d/error --><!-- end -->", "t/a/d/error --> is not closed"),
        ("<!-- figure: t/z/d/error --><!-- end -->", "README.md, <!-- figure: t/z/d/error -->: there is no figure"),
        ("<!-- table: u --><!-- end -->", "there is no table 'u'"),
        ("<!-- table: t rows=a --><!-- end -->", "needs both rows= and columns="),
        ("<!-- table: t lines=a columns=d/error --><!-- end -->", "takes rows= and columns="),
        ("<!-- table: speed rows=9x9_1_1 --><!-- end -->", "there is no case '9x9_1_1'"),
    ],
)
def test_a_wrong_marker_is_refused_with_its_place(text, message):
    with pytest.raises(ValueError, match=message):
        fill(text, RECORD, "README.md")


def test_figures_in_notes_leave_no_marker():
    assert fill_note("{figure: t/a/d/error as .2f} % is {other}", RECORD) == "1.50 % is {other}"
