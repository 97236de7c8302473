from paper.markers import fill
from paper.neighbours import neighbour_table
from paper.record import Record

FACTS = {"threads": 2, "torch": "2.15.0", "commit": "abc", "budget": "15 rounds"}


def saved(*values):
    cases = [("na2d_av", "forward"), ("na2d_av", "training"), ("FAC", "forward")]
    rows = [
        {"dataset": "64 channels", "name": name, "metric": f"{mode}, time / unfold", "value": value}
        for (name, mode), value in zip(cases, values, strict=False)
    ]
    return {"rows": rows, "circumstances": FACTS}


def test_processors_stand_side_by_side_and_a_missing_figure_is_left_out():
    lines = neighbour_table({"one": saved(0.041, 0.098, 0.84), "two": saved(0.05)}).splitlines()
    assert lines[0] == "| operator | inference, one | training, one | inference, two | training, two |"
    assert lines[2:4] == ["| na2d_av | 0.04 | 0.10 | 0.05 |  |", "| FAC | 0.84 |  |  |  |"]
    assert lines[-1] == "<sub>two: 64 channels; 2 threads, torch 2.15.0, commit abc, 15 rounds</sub>"


def test_pages_have_it_between_markers():
    record = Record([], {"values": {}}, {}, neighbours={"one": saved(0.041)})
    assert neighbour_table(record.neighbours) in fill("<!-- table: neighbours --><!-- end -->", record)
