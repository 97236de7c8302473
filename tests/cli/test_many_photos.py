"""Folders of photos: names and formats of results, several at a time, and --dry-run."""

import numpy as np
import pytest
import torch
from PIL import Image

from acda import create_model
from acda.cli import main
from acda.photos.restore_files import each_counted
from acda.photos.weights import write_weights


@pytest.fixture
def weights(tmp_path):
    model = create_model("dncnn", depth=3, width=4)
    torch.nn.init.normal_(model.layers[-1].weight, std=0.1)
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    tensors["statistics"] = torch.tensor([[0.0] * 3, [255.0] * 3])
    (tmp_path / "w").mkdir()
    path = tmp_path / "w" / "w.safetensors"
    write_weights(path, tensors, {"model": "dncnn", "options": '{"depth": 3, "width": 4}'})
    return str(path)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    random = np.random.default_rng(0)
    for name in ("a.png", "b.jpg", "c.webp", "d.png"):
        Image.fromarray(random.integers(0, 256, (20, 30, 3), dtype=np.uint8)).save(folder / name)
    return folder


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_format_of_all_results(photos, weights, tmp_path):
    assert main(["restore", str(photos), "--weights", weights, "-o", str(tmp_path / "out"), "--format", "tif"]) == 0
    assert names(tmp_path / "out") == ["a.tif", "b.tif", "c.tif", "d.tif"]
    with Image.open(tmp_path / "out" / "b.tif") as image:
        assert image.format == "TIFF"


def test_a_suffix_takes_the_marks_place_and_is_known_again(photos, weights, tmp_path):
    for _ in range(2):
        assert main(["restore", str(photos), "--weights", weights, "--suffix", "_clean"]) == 0
    assert len(names(photos)) == 8, "results of the first time are no photos of the second"
    assert {"a_clean.png", "b_clean.jpg"} < set(names(photos))
    assert (
        main(["restore", str(photos / "a.png"), "--weights", weights, "-o", str(tmp_path / "o"), "--suffix", "2"]) == 0
    )
    assert names(tmp_path / "o") == ["a2.png"]


def test_several_at_a_time_give_the_same(photos, weights, tmp_path, capsys):
    (photos / "broken.png").write_bytes(b"no photo")
    for jobs in ("1", "3"):
        out = str(tmp_path / jobs)
        assert main(["restore", str(photos), "--weights", weights, "-o", out, "--jobs", jobs]) == 1
        captured = capsys.readouterr()
        assert captured.err.count("broken.png") == 1
        assert len(captured.out.splitlines()) == 4
    assert names(tmp_path / "1") == names(tmp_path / "3")
    for path in (tmp_path / "1").iterdir():
        with Image.open(path) as one, Image.open(tmp_path / "3" / path.name) as three:
            # The order of sums may depend on the number of threads.
            assert np.abs(np.array(one, int) - np.array(three, int)).max() <= 1


def test_a_dry_run_says_and_does_nothing(photos, weights, tmp_path, capsys):
    (photos / "broken.png").write_bytes(b"no photo")
    before = names(photos)
    out = tmp_path / "out"
    assert main(["upscale", str(photos), "--weights", weights, "-o", str(out), "--dry-run"]) == 1
    captured = capsys.readouterr()
    assert f"{photos / 'a.png'} → {out / 'a.png'}" in captured.out
    assert len(captured.out.splitlines()) == 4
    assert "broken.png cannot be read" in captured.err
    assert not out.exists()
    assert names(photos) == before


def test_webp_is_lossless_where_the_source_is(photos, weights, tmp_path):
    with Image.open(photos / "a.png") as image:
        image.save(photos / "lossless.webp", lossless=True)
    assert main(["restore", str(photos), "--weights", weights, "-o", str(tmp_path), "--format", "webp"]) == 0
    lossless = {path.name: b"VP8L" in path.read_bytes()[:64] for path in tmp_path.glob("*.webp")}
    assert lossless == {"a.webp": True, "b.webp": False, "c.webp": False, "d.webp": True, "lossless.webp": True}


def test_phones_photos_are_read_with_pillow_heif(weights, tmp_path):
    heif = pytest.importorskip("pillow_heif")
    smooth = Image.linear_gradient("L").resize((64, 48)).convert("RGB")
    heif.from_pillow(smooth).save(tmp_path / "IMG_1.HEIC", quality=95)
    assert main(["restore", str(tmp_path / "IMG_1.HEIC"), "--weights", weights, "--strength", "0"]) == 0
    with Image.open(tmp_path / "IMG_1_restored.png") as image:
        assert image.size == (64, 48)
        assert np.abs(np.array(image, int) - np.array(smooth, int)).mean() < 4


def test_a_bar_counts_photos_where_a_person_looks(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with each_counted(3, lambda path: None) as counted:
        for _ in range(3):
            counted(tmp_path)
    assert "3/3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--format", "gif"], "--format needs one of jpg, jpeg, png, webp, tif, tiff, bmp; got 'gif'"),
        (["--suffix", "/../x"], "--suffix needs to be the end of a file's name"),
        (["--suffix", ""], "one of the photos themselves"),
        (["--jobs", "0"], "jobs needs to be at least 1; got 0"),
        (["-o", "b.png", "--format", "jpg"], "--format jpg and --out b.png contradict each other"),
    ],
)
def test_what_is_wrong_is_said(photos, weights, capsys, options, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert main(["restore", str(photos / "a.png"), "--weights", weights, *options]) == 1
    assert message in capsys.readouterr().err
