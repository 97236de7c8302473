"""acda count: a line or a JSON entry for each photo, pictures on request; a bad file does not stop the rest."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from acda import create_model
from acda.cli import main
from acda.photos.files import read_photo
from acda.photos.weights import load, read_weights, write_weights


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    torch.manual_seed(0)
    model = create_model("crowd_counter_s")
    model.density.bias.data.fill_(0.1)  # a thousandth of a person in every cell
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    write_weights(
        path, {**tensors, "statistics": torch.tensor([[120.0] * 3, [60.0] * 3])}, {"model": "crowd_counter_s"}
    )
    return path


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name, size in (("a.jpg", (90, 60)), ("b.png", (64, 64))):
        Image.fromarray(random.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).save(folder / name)
    return folder


def test_a_line_for_each_photo(photos, weights, capsys):
    assert main(["count", str(photos), "--weights", str(weights)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines] == [str(photos / "a.jpg"), str(photos / "b.png")]


def test_there_are_never_fewer_than_none(photos, weights, tmp_path, capsys):
    tensors, facts = read_weights(weights)
    write_weights(tmp_path / "empty.safetensors", {**tensors, "model.density.bias": torch.tensor([-0.1])}, facts)
    assert main(["count", str(photos), "--json", "--weights", str(tmp_path / "empty.safetensors")]) == 0
    assert [entry["count"] for entry in json.loads(capsys.readouterr().out)] == [0, 0]


def test_json_and_pictures(photos, weights, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["count", str(photos / "*.jpg"), "--json", "--out", str(out), "--weights", str(weights)]) == 0
    (entry,) = json.loads(capsys.readouterr().out)
    assert entry["file"] == str(photos / "a.jpg")
    assert isinstance(entry["count"], float)
    with Image.open(out / "a_count.png") as picture:
        assert picture.size[0] > 400
    assert [path.name for path in out.iterdir()] == ["a_count.png"]


def test_one_photo_may_have_a_file_for_its_picture(photos, weights, tmp_path, capsys):
    common, to = ["count", "--weights", str(weights), "-o"], tmp_path / "result.png"
    assert main([*common, str(to), str(photos / "a.jpg")]) == 0
    with Image.open(to) as picture:
        assert picture.size[0] > 400
    capsys.readouterr()
    assert main([*common, str(to), str(photos)]) == 1
    assert "need a folder; " in capsys.readouterr().err
    (tmp_path / "notes").write_text("of mine")
    assert main([*common, str(tmp_path / "notes"), str(photos)]) == 1
    assert "is a file, and not a folder for pictures" in capsys.readouterr().err


def test_people_that_are_hidden_do_not_count(weights, tmp_path):
    random = np.random.default_rng(0)
    densities = []
    for hidden in (0, 255):
        pixels = random.integers(0, 255, (64, 96, 4), dtype=np.uint8)
        pixels[:, :48] = (hidden, hidden, hidden, 0)
        pixels[:, 48:] = (90, 120, 150, 255)
        Image.fromarray(pixels).save(tmp_path / "cut.png")
        densities.append(load(weights).density_of(read_photo(tmp_path / "cut.png"), 1024))
    torch.testing.assert_close(*densities, rtol=0, atol=0)


def test_one_picture_does_not_take_the_place_of_another(photos, weights, tmp_path, capsys):
    (photos / "a.png").write_bytes((photos / "b.png").read_bytes())
    assert main(["count", str(photos), "--out", str(tmp_path / "out"), "--weights", str(weights)]) == 1
    assert "a.png would be written over that for" in capsys.readouterr().err
    (photos / "b_count.png").write_bytes((photos / "b.png").read_bytes())
    both = [str(photos / "b.png"), str(photos / "b_count.png")]
    assert main(["count", *both, "--out", str(photos), "--weights", str(weights)]) == 1
    printed = capsys.readouterr()
    assert "one of the photos themselves" in printed.err
    assert len(printed.out.splitlines()) == 2, "what becomes of a picture costs no count"


def test_no_picture_unless_asked(photos, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert main(["count", str(photos), "--weights", str(weights)]) == 0
    assert set(tmp_path.rglob("*")) == before


def test_the_tile_does_not_matter(weights, tmp_path):
    """A photo so wide that no tile sees all of it."""
    trained = load(weights)
    pixels = np.random.default_rng(0).integers(0, 256, (24, 700, 3)).astype(np.uint8)
    Image.fromarray(pixels).save(tmp_path / "wide.png")
    photo = read_photo(tmp_path / "wide.png")
    whole = trained.density_of(photo, 1024)
    assert whole.std() > 0
    for tile in (256,):
        parts = trained.density_of(photo, tile)
        assert float((parts - whole).abs().max()) < 1e-4 * float(whole.abs().max())
        assert float(parts.sum()) == pytest.approx(float(whole.sum()), rel=1e-4)


def test_a_bad_file_is_named_and_the_others_go_on(photos, weights, capsys):
    (photos / "broken.jpg").write_bytes((photos / "a.jpg").read_bytes()[:500])
    assert main(["count", str(photos), str(photos / "missing.jpg"), "--weights", str(weights)]) == 1
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert "broken.jpg cannot be read as an image" in printed.err
    assert "missing.jpg" in printed.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{photos}", "--weights", "nobody"], "there is no weights file 'nobody'"),
        (["{photos}/*.gif", "--weights", "{weights}"], "there is no file"),
        (["{photos}", "--tile", "0", "--weights", "{weights}"], "acda count: tile needs to be positive; got 0"),
    ],
)
def test_what_is_wrong_is_said(photos, weights, capsys, arguments, message):
    arguments = [a.format(photos=photos, weights=weights) for a in arguments]
    assert main(["count", *arguments]) == 1
    assert message in capsys.readouterr().err
