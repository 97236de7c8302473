"""acda look: a picture or numbers of any network with adaptive layers, on any photo."""

import json

import numpy as np
import pytest
from PIL import Image

from acda.cli import main


@pytest.fixture
def photo(tmp_path):
    y, x = np.mgrid[:40, :64]
    pixels = np.stack([127 + 100 * np.sin(x / (3 + c)) * np.cos(y / 5) for c in range(3)], 2)
    Image.fromarray(pixels.astype(np.uint8)).save(tmp_path / "photo.jpg")
    return tmp_path / "photo.jpg"


def test_one_picture(photo, tmp_path, capsys):
    assert main(["look", str(photo), "--model", "fresh layer", "--at", "10,10", "60.5,39"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "photo_look.png")
    with Image.open(tmp_path / "photo_look.png") as picture:
        assert picture.width > 1000


def test_the_picture_goes_where_it_is_told_and_never_over_the_photo(photo, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("acda.cli.look.draw_look", lambda photo, view, places, to: to.write_text("a picture"))
    before = photo.read_bytes()
    common = ["look", str(photo), "--model", "fresh layer", "-o"]
    assert main([*common, str(photo)]) == 1
    assert "photo.jpg is the photo itself" in capsys.readouterr().err
    assert photo.read_bytes() == before
    (tmp_path / "folder").mkdir()
    for out, to in (("bare", "bare.png"), ("folder", "folder/photo_look.png")):
        assert main([*common, str(tmp_path / out)]) == 0
        assert capsys.readouterr().out.strip() == str(tmp_path / to)
        assert (tmp_path / to).read_text() == "a picture"
    assert {p.name for p in tmp_path.iterdir()} == {"photo.jpg", "bare.png", "folder"}


def test_numbers_of_every_layer(photo, tmp_path, capsys):
    before = set(tmp_path.iterdir())
    assert main(["look", str(photo), "--json", "--model", "lenet_acda", "--layer", "features.3"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    assert list(numbers["layers"]) == ["features.0", "features.3"]
    assert sum(numbers["layers"]["features.0"]["scale weights"].values()) == pytest.approx(1, abs=1e-3)
    assert len(numbers["places"]) == 3
    assert all(0 <= place["x"] < 64 and 0 <= place["y"] < 40 for place in numbers["places"])
    assert set(tmp_path.iterdir()) == before


def test_the_places_are_those_that_were_asked_for(photo, capsys):
    assert main(["look", str(photo), "--json", "--model", "fresh layer", "--at", "10,20", "60.5,3"]) == 0
    places = json.loads(capsys.readouterr().out)["places"]
    assert [(place["x"], place["y"]) for place in places] == [(10.5, 20.5), (60.5, 3.5)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--at", "10"], "--at needs x,y in pixels, for instance 120,80; got '10'"),
        (["--at", "64,10"], "--at 64,10 is outside the photo of 64×40 pixels"),
        (["--model", "lenet"], "LeNet has no AdaptiveConv2d to look into"),
        (["--model", "lenet_adca"], "there is no weights file 'lenet_adca'"),
        (["--model", "lenet_acda", "--layer", "features.1"], "there is no adaptive layer 'features.1'. Did you mean"),
    ],
)
def test_what_is_wrong_is_said(photo, capsys, arguments, message):
    assert main(["look", str(photo), *arguments]) == 1
    assert message in capsys.readouterr().err
