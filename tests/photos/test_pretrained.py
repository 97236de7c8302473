"""Weights that are part of the package: free to use, small, and good at what they are for."""

import pytest
import torch
from scipy import ndimage

import acda
from acda.cli import main
from acda.photos.files import Photo, eight_bits, read_photo, write_photo
from acda.photos.weight_folders import PACKAGED, RESEARCH
from acda.photos.weights import read_weights
from acda.training.metrics import psnr
from acda.training.recipe import recipe_from_json

NAMES = sorted(path.stem for path in PACKAGED.glob("*.safetensors"))


def picture() -> torch.Tensor:
    """Slopes of colour and a dark square: (1, 3, 128, 128), 0 to 1."""
    y, x = torch.meshgrid(torch.linspace(0, 1, 128), torch.linspace(0, 1, 128), indexing="ij")
    clean = torch.stack([0.2 + 0.5 * x, 0.3 + 0.3 * y, 0.5 - 0.2 * x])[None]
    clean[:, :, 40:80, 40:80] = 0.25
    return clean


def white(shape: torch.Size) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_small_and_have_their_recipe_without_paths(name):
    path = PACKAGED / f"{name}.safetensors"
    tensors, facts = read_weights(path)
    assert path.stat().st_size < 10e6
    assert "/" not in facts["recipe"]
    assert recipe_from_json(facts["recipe"], str(path)).model == facts["model"]
    assert all(t.isfinite().all() for t in tensors.values())


@pytest.mark.parametrize("name", NAMES)
def test_the_card_says_what_it_is_and_that_it_is_free(name):
    card = acda.load(name).card
    assert "license: apache-2.0" in card
    for heading in ("Data", "Licence", "Training", "Scores", "Limits"):
        assert f"## {heading}" in card


def test_every_card_has_its_weights_and_no_name_is_used_twice():
    assert sorted(path.stem for path in PACKAGED.glob("*.md")) == NAMES
    assert not set(NAMES) & set(RESEARCH)


@pytest.mark.parametrize("grain", [0.0, 1.0])
def test_the_denoiser_takes_noise_away(tmp_path, grain):
    """As a user would call it, on white noise and on noise as coarse as in camera files."""
    clean = picture()
    noise = white(clean.shape)
    if grain:
        noise = torch.from_numpy(ndimage.gaussian_filter(noise.numpy(), (0, 0, grain, grain)))
    noisy = eight_bits(clean + 5 / 255 * noise / noise.std())
    write_photo(Photo(noisy, None, {}), tmp_path / "noisy.png")
    assert main(["denoise", str(tmp_path / "noisy.png")]) == 0
    result = read_photo(tmp_path / "noisy_denoised.png").pixels
    assert psnr(result / 255, clean) > psnr(noisy / 255, clean) + 1


def test_the_denoiser_leaves_a_clean_picture_and_its_colours():
    clean = eight_bits(picture())
    assert float(psnr(acda.load("denoiser")(clean) / 255, clean / 255)) > 42
    noisy = eight_bits(picture() + 25 / 255 * white(picture().shape))
    shift = (acda.load("denoiser")(noisy).float().mean((2, 3)) - clean.float().mean((2, 3))).abs()
    assert float(shift.max()) < 1
