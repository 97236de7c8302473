"""Many photos: which are found, what is reported, where results are written."""

import os
import socket

import pytest
from PIL import Image

from acda.cli import main
from acda.photos.batch import Places, each_photo, find_photos, output_path
from acda.photos.files import read_photo


def plain(path):
    Image.new("RGB", (40, 28), (200, 50, 50)).save(path)
    return path


def test_one_name_that_cannot_be_looked_at_is_left_for_its_turn(tmp_path):
    photo, long = plain(tmp_path / "a.png"), "x" * 300 + ".png"
    assert [str(path) for path in find_photos([long, str(photo)], "_restored")] == [long, str(photo)]
    with pytest.raises(ValueError, match="the name of a photo is empty"):
        find_photos([str(photo), ""], "_restored")


def test_results_are_no_photos_unless_they_are_named(tmp_path):
    photo, result = plain(tmp_path / "a.png"), plain(tmp_path / "a_restored.png")
    (tmp_path / "folder.png").mkdir()
    for name in (tmp_path, tmp_path / "*.png"):
        assert find_photos([str(name)], "_restored") == [photo]
    assert find_photos([str(photo), str(result)], "_restored") == [photo, result]


def test_a_folder_of_one_photo_is_a_folder_all_the_same(tmp_path):
    photo = tmp_path / "a.png"
    assert output_path(photo, tmp_path / "out.v2", "_restored", several=True) == tmp_path / "out.v2" / "a.png"
    with pytest.raises(ValueError, match=r"or of a folder, need a folder; .*b.png would be a file"):
        output_path(photo, tmp_path / "b.png", "_restored", several=True)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """One photo among broken links and things that are not files."""
    monkeypatch.chdir(tmp_path)
    plain(tmp_path / "a.png")
    (tmp_path / "loop.png").symlink_to("loop.png")
    (tmp_path / "there.png").symlink_to("back.png")
    (tmp_path / "back.png").symlink_to("there.png")
    (tmp_path / "dangling.png").symlink_to("gone.png")
    os.mkfifo(tmp_path / "pipe.png")
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("socket.png")
        yield tmp_path


def test_what_is_no_file_is_named_and_the_others_go_on(folder, capsys):
    done = []
    paths = [*find_photos([str(folder)], "_restored"), *find_photos(["/dev/zero"], "_restored")]
    places = Places(paths)

    def work(path):
        read_photo(path)
        places.take(path.with_name("b.png"), path)
        done.append(path.name)

    assert each_photo("restore", paths, work) == 1
    assert done == ["a.png"]
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 6 + 1
    for part in (
        "loop.png is a link that leads back to itself.",
        "there.png is a link that leads back to itself.",
        "dangling.png is a link to gone.png, which does not exist.",
        "pipe.png is a named pipe, not a file. Save the photo to a file first.",
        "socket.png is a socket, not a file.",
        "/dev/zero is a device, not a file.",
    ):
        assert sum(part in line for line in errors) == 1


def test_links_to_photos_are_photos(tmp_path):
    plain(tmp_path / "a.png")
    (tmp_path / "b.png").symlink_to("a.png")
    assert [path.name for path in find_photos([str(tmp_path)], "_restored")] == ["a.png", "b.png"]
    with pytest.raises(ValueError, match="one of the photos themselves"):
        Places([tmp_path / "a.png"]).take(tmp_path / "b.png", tmp_path / "c.png")


def test_a_result_does_not_go_where_links_lead_in_a_circle(folder):
    with pytest.raises(ValueError, match=r"loop.png is a link that leads back to itself. Give another place."):
        Places([folder / "a.png"]).take(folder / "loop.png", folder / "a.png")


def test_a_name_does_not_speak_to_the_terminal(tmp_path, capsys):
    """The whole command, for its output and its errors: escape codes, line ends and bytes that are no UTF-8."""
    evil = "\x1b[2J\nacda: done\u202e"
    (tmp_path / f"{evil}.png").write_bytes(b"no photo")
    (tmp_path / os.fsdecode(b"\xff.png")).write_bytes(b"")
    assert main(["count", str(tmp_path)]) == 1
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert r"/\x1b[2J\nacda: done\u202e.png cannot be read as an image" in lines[0]
    assert r"/\udcff.png cannot be read as an image: it is empty." in lines[1]
