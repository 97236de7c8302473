import contextlib

import pytest

from acda.support.files import check_room, written_whole


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


def test_what_is_replaced_keeps_its_permissions_and_the_links_to_it(tmp_path):
    target, link = tmp_path / "a.txt", tmp_path / "link.txt"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    with written_whole(link) as file:
        file.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"
    assert target.stat().st_mode & 0o777 == 0o600


def test_places_where_no_file_can_be_are_refused(tmp_path):
    (tmp_path / "folder.png").mkdir()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="is a folder, and the result would be a file"):
        check_room(tmp_path / "folder.png")
    with pytest.raises(ValueError, match="is a file, and not a folder for results"):
        check_room(tmp_path / "file" / "a.png")
    check_room(tmp_path / "new" / "a.png")
    assert (tmp_path / "new").is_dir()
