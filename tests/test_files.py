import contextlib

from acda.files import written_whole


def test_a_finished_file_takes_its_place(tmp_path):
    target = tmp_path / "new" / "a.txt"
    with written_whole(target) as file:
        file.write_text("all of it")
        assert not target.exists()
    assert target.read_text() == "all of it"
    assert [p.name for p in target.parent.iterdir()] == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path):
    target = tmp_path / "a.txt"
    target.write_text("old")
    with contextlib.suppress(ZeroDivisionError), written_whole(target) as file:
        file.write_text("half")
        _ = 1 / 0
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
