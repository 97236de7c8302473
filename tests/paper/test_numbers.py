"""The values of the expressions in markers."""

import pytest

from paper.numbers import evaluate, shown, written
from tests.paper.records import record_of, row

RECORD = record_of(
    row("a", 2.5, each=[2.0, 3.0], hours=1.25),
    row("b", 1.2, each=[1.0, 1.5]),
    row("c", 1234.5),
    row("c", 0.5, "psnr", "e", deviation=0.125),
    row("b", 28.3, "psnr", "e", refused=True),
)


@pytest.mark.parametrize(
    ("kind", "expression", "text"),
    [
        ("figure", "t/a/d/error", "2.5"),
        ("figure", "t/a/d/error as .2f", "2.50"),
        ("figure", "t/c/d/error as .1f", "1,234.5"),
        ("figure", "t/a/d/error@hours", "1.25"),
        ("figure", "t/a/d/error@hours as .1f", "1.2"),
        ("figure", "t/c/e/psnr", "0.50 ± 0.12"),
        ("figure", "paper:t/a/d/error", "12.30"),
        ("figure", "paper:t/a/d/error as .0f", "12"),
        ("figure", "paper:t/a/d/error - paper:t/c/d/error", "3.30"),
        ("figure", "t/a/d/error - t/b/d/error", "1.25"),  # of the photos: the rounded values are 1.3 apart
        ("figure", "t/c/d/error - t/a/d/error as .1f", "1232.0"),
        ("lead", "t/a/d/error - t/b/d/error", "1.25 ± 0.25"),
        ("smallest", "t/a/d/error - t/b/d/error as .1f", "1.0"),
        ("largest", "t/a/d/error", "3.00"),
    ],
)
def test_an_expression_is_evaluated(kind, expression, text):
    assert evaluate(RECORD, kind, expression) == text


@pytest.mark.parametrize(
    ("kind", "expression", "message"),
    [
        ("figure", "t/a/d/eror", "there is no figure 't/a/d/eror'. Did you mean t/a/d/error"),
        ("figure", "paper:t/b/d/error", "there is no figure of the paper 't/b/d/error'"),
        ("figure", "t/a/d/error@days", "there is no field of t/a/d/error 'days'"),
        ("lead", "t/a/d/error - t/c/d/error", "t/c/d/error has no values photo by photo"),
    ],
)
def test_what_does_not_exist_is_refused(kind, expression, message):
    with pytest.raises(ValueError, match=message):
        evaluate(RECORD, kind, expression)


def test_values_have_four_digits_and_large_ones_are_whole():
    assert [shown(value) for value in (0.74461, 12.3456, 999.96, 1234.5, 7)] == [
        "0.7446",
        "12.35",
        "1,000",
        "1,234",
        "7",
    ]
    assert written(RECORD, RECORD.figures["t/b/e/psnr"]) == "refused: 28.3"
