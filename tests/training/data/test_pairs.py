"""Pairs of photos in the official layouts; crops of both are cut, mirrored and turned alike."""

import shutil
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import torch
from PIL import Image

from acda.training.data.batches import TestBatches, TrainBatches, generator_for
from acda.training.data.degradations import DEGRADATIONS
from acda.training.data.pair_crops import PairLoader, Photos, augmented, resized_crop
from acda.training.data.pairs import PhotoPair, read_blocks, read_clean, read_pairs


def photo(path: Path, size=(20, 16), level=100) -> None:
    """A photo of this brightness; the corner depends on its name, so that no two are equal."""
    path.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", size, (level,) * 3)
    image.paste(tuple(zlib.crc32(str(path).encode()).to_bytes(4)[:3]), (0, 0, 8, 8))
    image.save(path)


def realsr(folder: Path) -> Path:
    for camera in ("Canon", "Nikon"):
        for part, scenes in (("Train", ("001", "002")), ("Test", ("001",))):
            for scale in (2, 3, 4):
                for scene in scenes:
                    photo(folder / camera / part / str(scale) / f"{camera}_{scene}_HR.png")
                    photo(folder / camera / part / str(scale) / f"{camera}_{scene}_LR{scale}.png", level=90)
    return folder


def city100(folder: Path) -> Path:
    for i in range(1, 21):
        photo(folder / f"{i:03}H.PNG")
        photo(folder / f"{i:03}L.PNG", level=90)
    return folder


def sidd(folder: Path) -> Path:
    for instance in ("0001_001_S6_00100", "0005_002_S6_00100", "0090_008_N6", "0100_009_IP_00800", "0120_010_GP_00100"):
        photo(folder / "Data" / instance / "GT_SRGB_010.PNG")
        photo(folder / "Data" / instance / "NOISY_SRGB_010.PNG", level=90)
    return folder


def polyu(folder: Path) -> Path:
    trained = "Canon80D_8_8_800_GO_1", "Canon80D_8_8_800_GO_12", "Canon5D2_bag_1"
    for name in (*trained, "Sony_4_200_door_2", "NikonD800_8_photo_1"):
        photo(folder / f"{name}_real.JPG", level=90)
        photo(folder / f"{name}_mean.JPG")
    return folder


def own(folder: Path) -> Path:
    for part in ("train", "test"):
        photo(folder / part / "input" / "a.png", level=90)
        photo(folder / part / "target" / "a.png")
    return folder


@pytest.mark.parametrize(
    ("layout", "scale", "count", "tested"),
    [
        (realsr, 3, 6, {"Test/Canon_001", "Test/Nikon_001"}),
        (city100, None, 20, {"010", "020"}),
        (sidd, None, 5, {"009", "010"}),
        (polyu, None, 5, {"Sony_4_200_door", "NikonD800_8_photo"}),
        (own, None, 2, {"test/a"}),
    ],
)
def test_layouts(tmp_path, layout, scale, count, tested):
    split = read_pairs(layout(tmp_path), scale)
    assert sum(map(len, split)) == count
    assert {pair.scene for pair in split[1]} == tested
    for pair in [*split[0], *split[1]]:
        with Image.open(pair.degraded) as degraded, Image.open(pair.clean) as clean:
            assert np.array(degraded)[8:, 8:].mean() < np.array(clean)[8:, 8:].mean()
    assert not {pair.scene for pair in split[0]} & {pair.scene for pair in split[1]}


def test_what_is_wrong_is_named(tmp_path):
    with pytest.raises(ValueError, match="say which one, 2, 3 or 4"):
        read_pairs(realsr(tmp_path / "realsr"))
    photo(tmp_path / "realsr" / "Nikon" / "Train" / "2" / "Nikon_002_LR2.png", size=(10, 8))
    with pytest.raises(ValueError, match=r"need one size; .*Nikon_002_LR2.png has 10×8, .*_HR.png has 20×16"):
        read_pairs(tmp_path / "realsr", 2)
    (city100(tmp_path / "city") / "004L.PNG").unlink()
    with pytest.raises(ValueError, match=r"004L.PNG is missing: the other half of a pair"):
        read_pairs(tmp_path / "city")
    with pytest.raises(ValueError, match="no known layout of a dataset"):
        read_pairs(tmp_path / "realsr" / "Canon")
    for path in own(tmp_path / "own").glob("test/*/a.png"):
        path.unlink()
    with pytest.raises(ValueError, match="has no pairs for testing"):
        read_pairs(tmp_path / "own")
    photo(sidd(tmp_path / "sidd") / "Data" / "holiday" / "GT_SRGB_010.PNG")
    with pytest.raises(ValueError, match=r"holiday does not name its scene"):
        read_pairs(tmp_path / "sidd")


def test_a_photo_cannot_be_trained_and_tested_on(tmp_path):
    own(tmp_path)
    photo(tmp_path / "test" / "input" / "b.png", level=90)
    shutil.copy(tmp_path / "train" / "target" / "a.png", tmp_path / "test" / "target" / "b.png")
    with pytest.raises(ValueError, match=r"test/target/b.png is for testing and .*/a.png for training.* same photo"):
        read_pairs(tmp_path)


def test_nor_a_photo_of_one_set_be_tested_in_another(tmp_path):
    own(tmp_path / "a")
    own(tmp_path / "b")
    shutil.copy(tmp_path / "a" / "train" / "target" / "a.png", tmp_path / "b" / "test" / "target" / "a.png")
    with pytest.raises(ValueError, match=r"b/test/target/a.png is for testing and .*a/train/target/a.png"):
        read_pairs(tmp_path)


def test_nor_a_clean_photo(tmp_path):
    photo(tmp_path / "train" / "a.png")
    (tmp_path / "test").mkdir()
    shutil.copy(tmp_path / "train" / "a.png", tmp_path / "test" / "b.png")
    with pytest.raises(ValueError, match=r"test/b.png is for testing and .*train/a.png for training.* same photo"):
        read_clean(tmp_path)


def test_both_photos_are_cut_and_turned_alike():
    pixels = np.random.default_rng(0).integers(0, 255, (16, 20, 3), dtype=np.uint8)
    seen = set()
    for seed in range(60):
        a, b = augmented(np.stack([pixels, pixels]), 8, generator_for(seed))
        assert a.shape == (8, 8, 3)
        assert np.array_equal(a, b)
        seen.add(a.tobytes())
        assert any(
            np.array_equal(np.rot90(mirrored, quarters), a)
            for top in range(9)
            for left in range(13)
            for quarters in range(4)
            for mirrored in (pixels[top : top + 8, left : left + 8], pixels[top : top + 8, left : left + 8][:, ::-1])
        )
    assert len(seen) > 50


def test_photos_are_turned_all_ways():
    pixels = np.random.default_rng(0).integers(0, 255, (1, 8, 8, 3), dtype=np.uint8)
    ways = [np.rot90(sides, quarters) for sides in (pixels[0], pixels[0, :, ::-1]) for quarters in range(4)]
    seen = {augmented(pixels, 8, generator_for(seed))[0].tobytes() for seed in range(80)}
    assert seen == {way.tobytes() for way in ways}


def test_batches(tmp_path):
    train, test = read_pairs(own(tmp_path))
    for pair in (*train, *test):  # flat ones, that can be told when they were cut and turned
        Image.new("RGB", (20, 16), (90,) * 3).save(pair.degraded)
        Image.new("RGB", (20, 16), (100,) * 3).save(pair.clean)
    loader = PairLoader(Photos(train), TrainBatches(6, 3, seed=0), side=8)
    batches = list(loader)
    assert len(batches) == 2
    for degraded, clean in batches:
        assert degraded.shape == clean.shape == (3, 3, 8, 8)
        torch.testing.assert_close(degraded, torch.full_like(degraded, 90 / 255))
        torch.testing.assert_close(clean, torch.full_like(clean, 100 / 255))
    ((degraded, clean),) = list(PairLoader(Photos(test), TestBatches(1, 1), side=8))
    assert degraded.shape == clean.shape == (1, 3, 16, 20)


def test_a_folder_of_sets_is_all_of_them(tmp_path):
    sidd(tmp_path / "sidd")
    polyu(tmp_path / "polyu" / "CroppedImages")  # as it is published
    (tmp_path / "notes").mkdir()
    train, test = read_pairs(tmp_path)
    assert (len(train), len(test)) == (6, 4)
    assert {pair.scene[:4] for pair in test} == {"009", "010", "Sony", "Niko"}
    assert {pair.clean.parts[len(tmp_path.parts)] for pair in train} == {"sidd", "polyu"}


def test_sidds_validation_blocks(tmp_path):
    assert read_blocks(tmp_path) is None
    random = np.random.default_rng(0)
    noisy, clean = (random.integers(0, 255, (2, 3, 16, 16, 3), dtype=np.uint8) for _ in range(2))
    scipy.io.savemat(tmp_path / "ValidationNoisyBlocksSrgb.mat", {"ValidationNoisyBlocksSrgb": noisy})
    with pytest.raises(ValueError, match=r"ValidationGtBlocksSrgb.mat is missing"):
        read_blocks(tmp_path)
    scipy.io.savemat(tmp_path / "ValidationGtBlocksSrgb.mat", {"ValidationGtBlocksSrgb": clean})
    blocks = read_blocks(tmp_path)
    assert blocks.shape == (6, 2, 16, 16, 3)
    assert np.array_equal(blocks[4], np.stack([noisy[1, 1], clean[1, 1]]))
    batches = list(PairLoader(blocks, TestBatches(6, 1), side=8))
    torch.testing.assert_close(batches[4][0][0], torch.from_numpy(noisy[1, 1].transpose(2, 0, 1)).float() / 255)
    scipy.io.savemat(tmp_path / "ValidationGtBlocksSrgb.mat", {"something": clean})
    with pytest.raises(ValueError, match=r"ValidationGtBlocksSrgb.mat cannot be read as SIDD's blocks \(KeyError"):
        read_blocks(tmp_path)
    (tmp_path / "ValidationGtBlocksSrgb.mat").write_bytes(b"MATLAB 5.0 nonsense")
    with pytest.raises(ValueError, match=r"ValidationGtBlocksSrgb.mat cannot be read"):
        read_blocks(tmp_path)


def test_clean_photos_get_noise_of_their_own(tmp_path):
    for part in ("train", "test"):
        photo(tmp_path / part / "a.png", size=(70, 62))
    train, test = read_clean(tmp_path)
    photos = Photos([PhotoPair(path, path, path.stem) for path in train])
    noise = DEGRADATIONS["noise"]
    loader = PairLoader(photos, TrainBatches(8, 8, seed=0), side=16, degradation=noise)
    ((noisy, clean),) = list(loader)
    assert noisy.shape == clean.shape == (8, 3, 16, 16)
    assert float((noisy - clean).std()) > 0.01
    assert not torch.equal(noisy[0] - clean[0], noisy[1] - clean[1])
    ((again, _),) = list(loader)
    assert torch.equal(noisy, again), "the same epoch has the same noise"
    tests = PairLoader(Photos([PhotoPair(path, path, path.stem) for path in test]), TestBatches(1, 1), 16, noise)
    (whole, expected) = next(iter(tests))
    assert expected.shape == (1, 3, 62, 70), "photos are tested whole"
    assert torch.equal(whole, next(iter(tests))[0]), "and always with the same noise"


def test_crops_of_every_size_stay_within_the_photo(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (40, 64, 3), dtype=np.uint8)
    for i in range(50):
        crop = resized_crop(pixels, 32, (0.5, 3.0), generator_for(i))
        assert crop.shape == (3, 32, 32)
        assert 0 <= float(crop.min()) <= float(crop.max()) <= 1


def test_crops_made_smaller_may_keep_single_pixels():
    """On a fine chequerboard averages are grey, and single pixels are black or white."""
    rows, columns = np.indices((128, 128))
    pixels = np.repeat((255 * ((rows + columns) % 2))[..., None], 3, axis=2).astype(np.uint8)
    greys = [
        float(((crop > 0.1) & (crop < 0.9)).float().mean())
        for i in range(60)
        for crop in [resized_crop(pixels, 32, (0.3, 0.6), generator_for(i), aliased=0.5)]
    ]
    kept, averaged = sum(g == 0 for g in greys), sum(g > 0.5 for g in greys)
    assert averaged > 5
    assert kept > 60 / 2 + 5  # half of the crops are not resized, and of the others about half keep pixels
    assert kept + averaged == 60


def test_clean_photos_are_held_out_one_in_eight(tmp_path):
    for i in range(10):
        photo(tmp_path / f"{i}.png", size=(20 + i, 20))
    train, test = read_clean(tmp_path)
    assert [path.stem for path in test] == ["0", "8"]
    assert [path.stem for path in train] == ["1", "2", "3", "4", "5", "6", "7", "9"]


def test_too_few_clean_photos_are_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        read_clean(tmp_path / "nowhere")
    photo(tmp_path / "a.png", size=(20, 20))
    with pytest.raises(ValueError, match="it has none for training"):
        read_clean(tmp_path)
    for part in ("train", "test"):
        (tmp_path / part).mkdir()
    photo(tmp_path / "train" / "a.png", size=(20, 20))
    with pytest.raises(ValueError, match="it has none for testing"):
        read_clean(tmp_path)


def test_a_missing_folder_and_pairs_that_are_turned_differently(tmp_path):
    with pytest.raises(ValueError, match="there is no folder"):
        read_pairs(tmp_path / "nowhere")
    exif = Image.Exif()
    exif[0x0112] = 3
    for part in ("train", "test"):
        for side, options in (("input", {"exif": exif}), ("target", {})):
            (tmp_path / part / side).mkdir(parents=True)
            Image.new("RGB", (20, 20)).save(tmp_path / part / side / "a.png", **options)
    with pytest.raises(ValueError, match=r"a\.png have different EXIF orientations"):
        read_pairs(tmp_path)


def test_blocks_that_are_no_blocks_are_named(tmp_path):
    (tmp_path / "ValidationNoisyBlocksSrgb.mat").write_text("<html>a page that says where the file went</html>" * 9)
    with pytest.raises(ValueError, match=r"ValidationNoisyBlocksSrgb\.mat cannot be read as SIDD's blocks"):
        read_blocks(tmp_path)
