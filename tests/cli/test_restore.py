"""acda restore and upscale: what photos have is kept, what is broken is named, inputs are safe, tiles do not show."""

import json
import struct
import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageCms, ImageOps
from PIL.PngImagePlugin import PngInfo

from acda import create_model
from acda.cli import main
from acda.photos.batch import each_photo
from acda.photos.files import eight_bits, read_photo, resized_photo
from acda.photos.restore_files import load_restorer
from acda.photos.tiles import apply_in_tiles
from acda.photos.weights import find_weights, read_weights, write_weights

SMALL = {"width": 8, "depth": 4}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A restorer that changes its input: fresh weights, with a last layer that is not close to zero."""
    torch.manual_seed(0)
    model = create_model("dncnn", **SMALL)
    torch.nn.init.normal_(model.layers[-1].weight, std=0.01)
    with torch.no_grad():
        for _ in range(2):
            model(torch.rand(2, 3, 64, 64))
    tensors = {f"model.{name}": t for name, t in model.state_dict().items()}
    path = tmp_path_factory.mktemp("weights") / "weights.safetensors"
    write_weights(
        path,
        {**tensors, "statistics": torch.tensor([[0.0] * 3, [255.0] * 3])},
        {"model": "dncnn", "options": json.dumps(SMALL)},
    )
    return str(path)


def picture(width=60, height=44, channels=3, seed=0):
    y, x = np.mgrid[:height, :width]
    waves = [127 + 100 * np.sin((x + 3 * c) / 7 + seed) * np.cos(y / (5 + c)) for c in range(channels)]
    return Image.fromarray(np.stack(waves, 2).astype(np.uint8))


@pytest.fixture
def photo(tmp_path):
    picture().save(tmp_path / "a.png")
    return tmp_path / "a.png"


def test_beside_the_photo_or_where_it_is_told(photo, weights, tmp_path, capsys):
    before = photo.read_bytes()
    assert main(["restore", str(photo), "--weights", weights]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path / "a_restored.png")]
    assert main(["restore", str(photo), "--weights", weights, "-o", str(tmp_path / "b.jpg")]) == 0
    assert main(["restore", str(tmp_path), "--weights", weights, "-o", str(tmp_path / "all")]) == 0
    assert sorted(p.name for p in (tmp_path / "all").iterdir()) == ["a.png", "b.jpg"], "results are no photos"
    assert photo.read_bytes() == before
    with Image.open(tmp_path / "a_restored.png") as image:
        assert image.size == (60, 44)
        assert not np.array_equal(np.array(image), np.array(picture()))


@pytest.mark.parametrize("scale", ["2", "1.5", "1"])
def test_upscale_to_any_size(photo, weights, scale, tmp_path):
    assert main(["upscale", str(photo), "--scale", scale, "--weights", weights]) == 0
    with Image.open(tmp_path / f"a_x{scale}.png") as image:
        assert image.size == (round(60 * float(scale)), round(44 * float(scale)))


@pytest.mark.parametrize("verb", ["denoise", "restore", "upscale"])
def test_as_much_as_is_wanted(verb, photo, weights, tmp_path):
    results = {}
    for strength in ("0", "0.5", "1"):
        out = tmp_path / f"{strength}.png"
        assert main([verb, str(photo), "--strength", strength, "--weights", weights, "-o", str(out)]) == 0
        with Image.open(out) as image:
            results[strength] = np.array(image, dtype=float)
    with Image.open(photo) as image:
        before = image.resize((120, 88), Image.Resampling.BICUBIC) if verb == "upscale" else image
        assert np.array_equal(results["0"], np.array(before))
    halfway = (results["0"] + results["1"]) / 2
    assert np.abs(results["0.5"] - halfway).max() <= 1
    assert np.abs(results["1"] - results["0"]).max() > 2


def test_orientation_profile_exif_and_transparency_are_kept(weights, tmp_path):
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = 6, "a maker of cameras"
    picture().save(tmp_path / "turned.jpg", exif=exif, icc_profile=profile, quality=98)
    picture(channels=4).save(tmp_path / "clear.png", icc_profile=profile)
    assert main(["upscale", str(tmp_path), "--weights", weights]) == 0
    with Image.open(tmp_path / "turned_x2.jpg") as image:
        assert image.size == (88, 120)
        assert image.getexif().get(0x0112, 1) == 1
        assert image.getexif()[0x010F] == "a maker of cameras"
        assert image.info["icc_profile"] == profile
    with Image.open(tmp_path / "clear_x2.png") as image:
        assert image.mode == "RGBA"
        assert image.info["icc_profile"] == profile
        alpha = np.array(image.getchannel("A").resize((60, 44)), int)
    assert np.abs(alpha - np.array(picture(channels=4).getchannel("A"))).mean() < 4


@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_way_to_hold_a_camera(orientation, tmp_path):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "turned.png"
    picture(channels=4).save(path, exif=exif)
    photo = read_photo(path)
    with Image.open(path) as image:
        upright = torch.from_numpy(np.array(ImageOps.exif_transpose(image))).permute(2, 0, 1)
    assert torch.equal(photo.pixels[0], upright[:3])
    assert photo.alpha is not None
    assert torch.equal(photo.alpha[0], upright[3:])


def test_of_several_pages_the_first_is_done_and_none_is_lost(weights, tmp_path, capsys):
    scan = tmp_path / "scan.tif"
    picture().save(scan, save_all=True, append_images=[picture(), picture()])
    before = scan.read_bytes()
    assert main(["restore", str(scan), "--weights", weights, "-o", str(scan), "--overwrite"]) == 1
    assert "scan.tif has 3 pages, of which the result has the first: that would be lost" in capsys.readouterr().err
    assert scan.read_bytes() == before
    assert main(["restore", str(scan), "--weights", weights]) == 0
    assert "scan.tif has 3 pages, of which the result has the first." in capsys.readouterr().err


def test_sixteen_bits_become_eight_only_where_the_format_has_no_more(weights, tmp_path, capsys):
    deep = tmp_path / "deep.png"
    Image.fromarray(np.array(picture().convert("L")).astype(np.uint16) * 257).save(deep)
    assert main(["restore", str(deep), "--weights", weights]) == 0
    assert not capsys.readouterr().err
    with Image.open(tmp_path / "deep_restored.png") as image:
        assert image.mode == "I;16"
        assert len(np.unique(np.array(image) % 257)) > 1, "more than 256 shades"
    assert main(["restore", str(deep), "--weights", weights, "-o", str(tmp_path / "b.jpg")]) == 0
    assert "deep.png has more than 8 bits per channel, of which the result has 8." in capsys.readouterr().err


def test_pixels_of_no_known_range_are_refused(weights, tmp_path, capsys):
    random = np.random.default_rng(0)
    Image.fromarray(random.random((30, 40)).astype(np.float32)).save(tmp_path / "f.tif")
    Image.fromarray(random.integers(0, 2**30, (30, 40)).astype(np.int32)).save(tmp_path / "large.tif")
    Image.fromarray(random.integers(0, 256, (30, 40)).astype(np.int32)).save(tmp_path / "small.tif")
    assert main(["restore", str(tmp_path), "--weights", weights]) == 1
    errors = capsys.readouterr().err
    assert "f.tif cannot be read as an image (its pixels are floating point numbers of no known range" in errors
    for name in ("large.tif", "small.tif"):
        assert f"{name} cannot be read as an image (its pixels are whole numbers of 32 bits" in errors
    assert not list(tmp_path.glob("*_restored*")), "a black picture would be the result of small numbers"


def test_a_photo_without_colours_comes_back_without(weights, tmp_path):
    picture(channels=2).save(tmp_path / "grey.png")
    for verb, mark in (("denoise", "denoised"), ("upscale", "x2")):
        assert main([verb, str(tmp_path / "grey.png"), "--weights", weights]) == 0
        with Image.open(tmp_path / f"grey_{mark}.png") as image:
            assert image.mode == "LA"


def test_a_greyscale_jpeg_stays_one(weights, tmp_path):
    profile = b"\0" * 16 + b"GRAY" + b"\0" * 108
    picture().convert("L").save(tmp_path / "a.jpg", icc_profile=profile)
    assert main(["restore", str(tmp_path / "a.jpg"), "--weights", weights]) == 0
    with Image.open(tmp_path / "a_restored.jpg") as image:
        assert image.mode == "L"
        assert image.info["icc_profile"] == profile


def test_grey_kept_as_rgb_gets_no_colours_either(weights, tmp_path):
    picture().convert("L").convert("RGB").save(tmp_path / "a.png")
    assert main(["restore", str(tmp_path / "a.png"), "--weights", weights]) == 0
    with Image.open(tmp_path / "a_restored.png") as image:
        pixels = np.array(image, int)
    assert pixels.shape == (44, 60, 3)
    assert np.ptp(pixels, 2).max() == 0


def test_twelve_bits_are_as_bright_as_sixteen(tmp_path):
    """Pillow reads such a TIFF without scaling its values."""
    white = struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", 9)
    entries = {256: 4, 257: 2, 258: 12, 259: 1, 262: 1, 273: 122, 277: 1, 278: 2, 279: 12}
    white += b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in entries.items()) + b"\0" * 4
    (tmp_path / "a.tif").write_bytes(white + b"\xff" * 12)
    photo = read_photo(tmp_path / "a.tif")
    assert photo.is_grey
    assert int(photo.pixels.min()) == 255


def test_hidden_colours_do_not_show_at_the_edges_of_a_cut_out(weights, tmp_path):
    """White on transparent black, enlarged: the visible part stays white."""
    half = np.zeros((32, 32, 4), np.uint8)
    half[:, 16:] = 255
    Image.fromarray(half).save(tmp_path / "half.png")
    photo = read_photo(tmp_path / "half.png")
    larger = resized_photo(photo, 64, 64)
    assert larger.alpha is not None
    seen = larger.pixels[:, :, :, larger.alpha[0, 0, 0] > 0]
    assert 0 < int((larger.alpha < 255).sum()) < 64 * 64
    assert int(seen.min()) >= 253
    assert main(["upscale", str(tmp_path / "half.png"), "--weights", weights]) == 0
    with Image.open(tmp_path / "half_x2.png") as image:
        assert np.array_equal(np.array(image.getchannel("A")), larger.alpha[0, 0].numpy())


@pytest.mark.parametrize("verb", ["denoise", "upscale"])
def test_networks_do_not_see_what_is_hidden(verb, weights, tmp_path):
    results = []
    for hidden in (0, 255):
        half = np.array(picture(channels=3).convert("RGBA"))
        half[:, :30] = (hidden, hidden, hidden, 0)
        Image.fromarray(half).save(tmp_path / "half.png")
        assert main([verb, str(tmp_path / "half.png"), "-o", str(tmp_path / "out.png"), "--weights", weights]) == 0
        with Image.open(tmp_path / "out.png") as image:
            results.append(np.array(image))
    seen = results[0][..., 3] > 0
    assert np.array_equal(results[0][seen], results[1][seen])
    assert [result[0, 0].tolist() for result in results] == [[0, 0, 0, 0], [255, 255, 255, 0]], "hidden, and kept"


def test_a_broken_photo_takes_no_place(photo, weights, tmp_path, capsys):
    broken = tmp_path / "broken" / "a.png"
    broken.parent.mkdir()
    broken.write_bytes(b"no photo")
    assert main(["restore", str(broken), str(photo), "--weights", weights, "-o", str(tmp_path / "out")]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (tmp_path / "out" / "a.png").exists()


def test_a_tiff_keeps_what_it_tells_about_the_photo(weights, tmp_path):
    exif = Image.Exif()
    exif[0x0110], exif[0x0132] = "a camera", "2026:01:02 03:04:05"
    picture().save(tmp_path / "a.tif", exif=exif, compression="tiff_lzw")
    assert main(["restore", str(tmp_path / "a.tif"), "--weights", weights, "-o", str(tmp_path / "b.jpg")]) == 0
    with Image.open(tmp_path / "b.jpg") as image:
        assert dict(image.getexif()) == {0x0110: "a camera", 0x0132: "2026:01:02 03:04:05"}


@pytest.mark.parametrize(("suffix", "kept"), [(".jpg", {}), (".bmp", {}), (".png", {0x010E: "x" * 70_000})])
def test_what_a_format_has_no_room_for_is_said(suffix, kept, weights, tmp_path, capsys):
    exif = Image.Exif()
    exif[0x010E] = "x" * 70_000
    picture().save(tmp_path / "a.png", exif=exif)
    to = tmp_path / f"b{suffix}"
    assert main(["restore", str(tmp_path / "a.png"), "--weights", weights, "-o", str(to)]) == 0
    assert ("has no room for the EXIF of" in capsys.readouterr().err) == (not kept)
    with Image.open(to) as image:
        assert dict(image.getexif()) == kept


def test_photos_of_phones_are_not_left_out_unsaid(photo, weights, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    (tmp_path / "IMG_1.HEIC").write_bytes(b"\0\0\0\x18ftypheic" + bytes(64))
    assert main(["restore", str(tmp_path), "--weights", weights, "-o", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert "IMG_1.HEIC cannot be read as an image: it has no format that Pillow knows; install pillow-heif" in error
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["a.png"]


def test_a_folder_can_be_done_again(photo, weights, tmp_path, capsys):
    for _ in range(2):
        assert main(["restore", str(tmp_path), "--weights", weights]) == 0
        assert capsys.readouterr().out.split() == [str(tmp_path / "a_restored.png")]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.png", "a_restored.png"]


def test_when_nobody_reads_on_it_stops(tmp_path):
    def closed(path):
        done.append(path)
        raise BrokenPipeError

    done = []
    with pytest.raises(BrokenPipeError):
        each_photo("restore", [tmp_path / "a.png", tmp_path / "b.png"], closed)
    assert len(done) == 1


def test_the_scale_is_the_networks_own_unless_given(photo, weights, tmp_path):
    tensors, facts = read_weights(find_weights(weights))
    write_weights(tmp_path / "w.safetensors", tensors, {**facts, "scale": "3"})
    assert main(["upscale", str(photo), "--weights", str(tmp_path / "w.safetensors")]) == 0
    with Image.open(tmp_path / "a_x3.png") as image:
        assert image.size == (180, 132)


@pytest.mark.parametrize("mode", ["L", "P", "CMYK", "I;16", "1", "LA"])
def test_whatever_pillow_reads(weights, tmp_path, mode):
    suffix = ".tif" if mode == "CMYK" else ".png"
    image = picture().convert("L" if mode == "I;16" else mode)
    if mode == "I;16":
        image = Image.fromarray(np.array(image).astype(np.uint16) * 257)
    image.save(tmp_path / f"photo{suffix}")
    assert main(["restore", str(tmp_path / f"photo{suffix}"), "--weights", weights]) == 0
    with Image.open(tmp_path / f"photo_restored{suffix}") as result:
        assert result.size == (60, 44)


def test_bad_files_are_named_and_the_others_go_on(photo, weights, tmp_path, capsys, monkeypatch):
    (tmp_path / "cut.png").write_bytes(photo.read_bytes()[:700])
    (tmp_path / "empty.jpg").write_bytes(b"")
    (tmp_path / "text.jpg").write_text("not a photo")
    picture(300, 300).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20_000)
    out = tmp_path / "out"
    assert main(["restore", str(tmp_path), str(tmp_path / "gone.jpg"), "--weights", weights, "-o", str(out)]) == 1
    errors = capsys.readouterr().err.splitlines()
    assert len(errors) == 5
    for name in ("cut.png", "empty.jpg", "text.jpg", "huge.png", "gone.jpg"):
        assert sum(name in line for line in errors) == 1
    assert any("empty.jpg cannot be read as an image: it is empty." in line for line in errors)
    assert [p.name for p in out.iterdir()] == ["a.png"]


def test_the_photo_itself_is_overwritten_only_on_request(photo, weights, capsys):
    before = photo.read_bytes()
    assert main(["restore", str(photo), "--weights", weights, "-o", str(photo)]) == 1
    assert "one of the photos themselves" in capsys.readouterr().err
    assert photo.read_bytes() == before
    assert main(["restore", str(photo), "--weights", weights, "-o", str(photo), "--overwrite"]) == 0
    assert photo.read_bytes() != before


def test_one_result_does_not_take_the_place_of_another(photo, weights, tmp_path, capsys):
    other = tmp_path / "other" / "a.png"
    other.parent.mkdir()
    picture(32, 20).save(other)
    out = tmp_path / "out"
    assert main(["restore", str(photo), str(other), "--weights", weights, "-o", str(out)]) == 1
    assert f"the result for {other} would be written over that for {photo}" in capsys.readouterr().err
    with Image.open(out / "a.png") as image:
        assert image.size == (60, 44)
    before = other.read_bytes()
    assert main(["restore", str(photo), str(other), "--weights", weights, "-o", str(other.parent)]) == 1
    assert capsys.readouterr().err.count("one of the photos themselves") == 2
    assert other.read_bytes() == before, "the result for one photo is not written over another"


def test_odd_exif_and_profiles_do_no_harm(weights, tmp_path):
    # One entry, the horizontal resolution, as text: Pillow reads it, and cannot write it.
    entry = struct.pack("<2sHIHHHI4sI", b"II", 42, 8, 1, 0x011A, 2, 4, b"abc\0", 0)
    picture().save(tmp_path / "odd.jpg", exif=b"Exif\0\0" + entry)
    other = ImageCms.ImageCmsProfile(ImageCms.createProfile("LAB")).tobytes()
    picture().convert("L").save(tmp_path / "grey.png", icc_profile=other)
    picture().save(tmp_path / "broken.jpg", exif=b"Exif\0\0MM\0xnothing that EXIF has")
    text = PngInfo()
    text.add_text("pages", "two")
    picture().save(tmp_path / "pages.png", pnginfo=text)
    assert main(["restore", str(tmp_path), "--weights", weights, "-o", str(tmp_path / "out")]) == 0
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"odd.jpg", "grey.png", "broken.jpg", "pages.png"}
    with Image.open(tmp_path / "out" / "grey.png") as image:
        assert "icc_profile" not in image.info, "it is not of the colours that are written"


def test_an_output_is_whole_or_not_there(photo, weights, tmp_path, monkeypatch):
    def breaks(self, file, **options):
        file.write_bytes(b"half")
        raise OSError("no space left on device")

    monkeypatch.setattr(Image.Image, "save", breaks)
    assert main(["restore", str(photo), "--weights", weights]) == 1
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


@pytest.mark.slow
def test_tiles_do_not_show(weights, tmp_path):
    picture(333, 210).save(tmp_path / "large.png")
    trained, pixels = load_restorer(weights), read_photo(tmp_path / "large.png").pixels
    whole = apply_in_tiles(trained.model, trained.normalised(pixels), 1000)
    assert float((whole - pixels / 255).abs().mean()) > 0.01
    for tile in (16, 61, 128):
        part = apply_in_tiles(trained.model, trained.normalised(pixels), tile)
        torch.testing.assert_close(part, whole, rtol=0, atol=1e-5)
    assert (trained(pixels, tile=61).int() - eight_bits(whole).int()).abs().max() <= 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["upscale", "{photo}", "--scale", "0.5", "--weights", "{weights}"],
            "acda upscale: scale needs to be from 1 to 8; got 0.5",
        ),
        (
            ["denoise", "{photo}", "--strength", "2", "--weights", "{weights}"],
            "acda denoise: strength needs to be from 0 to 1; got 2",
        ),
        (["upscale", "{photo}", "--weights", "nobody"], "there is no weights file 'nobody'"),
        (["restore", "{photo}", "--tile", "0", "--weights", "{weights}"], "acda restore: tile needs to be positive"),
        (["restore", "{photo}", "-o", "x.gif", "--weights", "{weights}"], "no suffix that photos are written with"),
        (["restore", "{photo}", "b.png", "-o", "x.jpg", "--weights", "{weights}"], "x.jpg would be a file"),
        (["restore", "{photo}", "/nowhere/*.png", "--weights", "{weights}"], "there is no file /nowhere/*.png"),
        (["restore", "{photo}", "-o", "/proc/nowhere/a.png", "--weights", "{weights}"], "No such file or directory"),
    ],
)
def test_what_is_wrong_is_said(photo, weights, capsys, arguments, message):
    assert main([a.format(photo=photo, weights=weights) for a in arguments]) == 1
    assert message in capsys.readouterr().err


def test_what_cannot_be_written_is_said_before_the_work(photo, weights, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("acda.photos.restore.in_tiles", None)  # the work
    assert main(["restore", str(photo), "--weights", weights, "-o", str(tmp_path / "a.gif")]) == 1
    assert "has no suffix that photos are written with" in capsys.readouterr().err
    monkeypatch.setattr("acda.photos.files.LONGEST", {"WEBP": 100})
    assert main(["upscale", str(photo), "--weights", weights, "-o", str(tmp_path / "a.webp")]) == 1
    assert "would have 120×88 pixels; WEBP has at most 100 a side" in capsys.readouterr().err
