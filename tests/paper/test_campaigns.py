import pytest

from paper.campaigns import campaign_rows, campaign_table
from paper.markers import fill
from paper.record import Record

SAVED = {
    "rows": [
        {
            "campaign": "kernel",
            "seed": 7,
            "cases": 1200,
            "kinds": {"a": 200, "b": 1000},
            "seconds": 899.6,
            "failures": 2,
        },
        {"campaign": "photos", "seed": 7, "cases": 30, "kinds": {"read": 30}, "seconds": 121, "failures": 0},
    ],
    "circumstances": {"commit": "abc", "machine": "a processor", "threads": 1, "torch": "2.0"},
}


def test_each_campaign_has_a_line_with_its_most_frequent_cases_first():
    assert campaign_table(SAVED).splitlines()[2:] == [
        "| kernel | 15 | 1,200 | 2 | b (1,000); a (200) |",
        "| photos | 2 | 30 | 0 | read (30) |",
        "",
        "<sub>commit abc; a processor, 1 thread; torch 2.0; seed 7</sub>",
    ]


def test_sums_over_all_campaigns_are_figures():
    values = {(row["model"], row["metric"]): row["value"] for row in campaign_rows(SAVED)}
    assert values["kernel", "cases"] == 1200
    assert [values["all", name] for name in ("cases", "failures", "minutes")] == [1230, 2, 17]


def test_pages_show_them_between_markers():
    record = Record([], {"values": {}}, {}, campaigns=SAVED)
    text = "<!-- figure: campaigns/all/cases --><!-- end --> cases\n<!-- table: campaigns --><!-- end -->"
    filled = fill(text, record)
    assert "1,230<!-- end --> cases" in filled
    assert campaign_table(SAVED) in filled
    with pytest.raises(ValueError, match="make campaign"):
        fill("<!-- table: campaigns --><!-- end -->", Record([], {"values": {}}, {}))
