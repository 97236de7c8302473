import contextlib
import errno
import os

import pytest

from acda.support.files import check_room, remove_unfinished, written_whole


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


def test_a_full_disk_names_the_file_and_leaves_the_old_one(tmp_path):
    (tmp_path / "a.txt").write_text("old")
    with pytest.raises(OSError, match=r"No space left on device: .*a\.txt"), written_whole(tmp_path / "a.txt"):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert [p.name for p in tmp_path.iterdir()] == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_what_a_kill_left_is_removed_and_nothing_else(tmp_path):
    pid = os.fork()
    if not pid:  # as SIGKILL ends a process: without its exits
        written_whole(tmp_path / "curves.png").__enter__().write_text("half")
        os._exit(0)
    os.waitpid(pid, 0)
    assert len(list(tmp_path.glob(".curves-*"))) == 1
    kept = [".curves-notes.png", ".curves-12345678.jpg", "curves-abcdefgh.png", ".other-abcdefgh.png", "curves.png"]
    for name in kept:
        (tmp_path / name).write_text("mine")
    (tmp_path / ".curves-abcdefgh.png").mkdir()
    remove_unfinished(tmp_path / "curves.png", tmp_path / "none" / "a.txt")
    assert {p.name for p in tmp_path.iterdir()} == {*kept, ".curves-abcdefgh.png"}
