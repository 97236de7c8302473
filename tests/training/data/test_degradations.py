"""The degradations of clean photos in training do what their names say, within their ranges."""

import math

import pytest
import torch

from acda.training.data import degradations
from acda.training.data.batches import generator_for
from acda.training.data.degradations import (
    add_noise,
    camera_noise,
    chroma_blotches,
    demosaiced,
    from_light,
    grain,
    held_out_noise,
    held_out_small,
    jpeg,
    shrink_and_enlarge,
    to_light,
    white_noise,
    with_smooth_colours,
)

GREY = torch.full((3, 96, 96), 0.5)


def photo(seed: int = 0) -> torch.Tensor:
    """Smooth colours."""
    coarse = torch.rand(1, 3, 6, 6, generator=generator_for(seed))
    return torch.nn.functional.interpolate(coarse, (96, 96), mode="bicubic").clamp(0, 1)[0]


@pytest.mark.parametrize("contrast", [0.0, 0.3, 1.0])
def test_the_tone_curve_and_its_inverse_cancel(contrast):
    values = torch.linspace(0, 1, 256)
    assert (from_light(to_light(values, contrast), contrast) - values).abs().max() < 0.25 / 255


def test_light_is_in_proportion_to_what_srgb_encodes():
    assert float(to_light(torch.tensor(0.5), 0.0)) == pytest.approx(0.2140, abs=1e-4)


def test_each_kind_of_crop_has_its_share():
    clean, count = photo()[:, :32, :32], 600
    unchanged = sum(torch.equal(add_noise(clean, generator_for(i)), (clean * 255).round() / 255) for i in range(count))
    share = degradations.CLEAN * (1 - degradations.JPEG_CLEAN)
    # White noise of a tenth of a level leaves a photo as it is, now and then.
    assert share / 2 < unchanged / count < 2 * share


def test_results_are_what_a_file_of_uint8_holds():
    for i in range(40):
        noisy = add_noise(photo(i), generator_for(i)) * 255
        assert noisy.min() >= 0
        assert noisy.max() <= 255
        assert (noisy - noisy.round()).abs().max() < 1e-3


def test_the_same_generator_gives_the_same_noise():
    assert torch.equal(add_noise(photo(), generator_for(3)), add_noise(photo(), generator_for(3)))
    assert not torch.equal(add_noise(photo(), generator_for(3)), add_noise(photo(), generator_for(4)))


def test_white_noise_reaches_from_none_to_its_largest():
    strengths = [float(white_noise(GREY, generator_for(i)).std()) for i in range(100)]
    assert min(strengths) < 3 / 255
    assert 45 / 255 < max(strengths) < degradations.SIGMA * 1.05


def test_some_white_noise_varies_over_the_crop():
    def ratio(noise: torch.Tensor) -> float:
        parts = noise.unfold(1, 24, 24).unfold(2, 24, 24).std((0, 3, 4))
        return float(parts.max() / parts.min())

    ratios = [ratio(white_noise(GREY, generator_for(i))) for i in range(100)]
    # Of even noise, parts of 1,728 numbers differ by a few per cent.
    assert 0.1 < sum(r > 1.5 for r in ratios) / 100 < 0.4


def test_a_cameras_noise_grows_with_the_light(monkeypatch):
    monkeypatch.setattr(degradations, "READ", (1e-6, 1e-6))
    monkeypatch.setattr(degradations, "BLOTCHES", 0.0)
    dark, bright = torch.full((3, 96, 96), 0.1), torch.full((3, 96, 96), 0.7)
    for i in range(10):
        spread = []
        for clean in (dark, bright):
            noisy = camera_noise(clean, generator_for(i))
            spread.append(float((to_light(noisy, 0.0) - to_light(clean, 0.0)).std()))
        assert spread[1] > 1.5 * spread[0]


def test_a_cameras_noise_does_not_shift_bright_colours():
    # Dark ones it does, as in a camera: what falls below black is cut off.
    means = [float((camera_noise(GREY, generator_for(i)) - GREY).mean()) for i in range(50)]
    assert abs(sum(means) / 50) < 4 / 255


def test_grain_has_variance_one_and_reaches_from_white_to_correlated():
    beside, three_apart, colours = [], [], []
    for i in range(150):
        noise = grain(torch.Size((3, 96, 96)), generator_for(i))
        # 9,216 white numbers tell a standard deviation to one per cent; the others are divided by their own.
        torch.testing.assert_close(noise.std((1, 2)), torch.ones(3), rtol=0.05, atol=0)
        beside.append(float((noise[:, :, 1:] * noise[:, :, :-1]).mean()))
        three_apart.append(float((noise[:, :, 3:] * noise[:, :, :-3]).mean()))
        colours.append(float((noise[0] * noise[1]).mean()))
    assert min(beside) < 0.05 < 0.8 < max(beside)
    assert min(three_apart) < 0.05 < 0.4 < max(three_apart)
    assert min(colours) < 0.05 < 0.8 < max(colours)


def test_the_noise_of_real_cameras_lies_inside():
    """Ranges (5 % to 95 % of 55 pairs) of PolyU's training cameras: within percentiles 2 and 98 of what we draw."""
    measured = {1: (0.50, 0.80), 2: (0.25, 0.59), 3: (0.16, 0.48), 6: (0.09, 0.35)}
    found = {"strength": [], "colours": [], **{apart: [] for apart in measured}}
    for i in range(200):
        noise = 255 * (camera_noise(photo(i), generator_for(i)) - photo(i))
        noise = noise - noise.mean((1, 2), keepdim=True)
        spread = noise.std((1, 2))
        found["strength"].append(float(spread.mean()))
        found["colours"].append(float((noise[0] * noise[1]).mean() / (spread[0] * spread[1])))
        for apart in measured:
            product = (noise[:, :, apart:] * noise[:, :, :-apart]).mean((1, 2))
            found[apart].append(float((product / spread**2).mean()))
    for name, (low, high) in {"strength": (2.1, 5.8), "colours": (0.45, 0.86), **measured}.items():
        drawn = torch.tensor(found[name]).quantile(torch.tensor([0.02, 0.98]))
        assert drawn[0] < low, name
        assert drawn[1] > high, name


def test_developed_photos_have_blurred_grain_of_the_brightness(monkeypatch):
    """PolyU's training cameras at full size: neighbours correlate by 0.6 to 0.7, colours are smooth."""
    monkeypatch.setattr(degradations, "DEVELOPED", 1.0)
    monkeypatch.setattr(degradations, "COARSE", 0.0)
    beside = []
    for i in range(40):
        noise = grain(torch.Size((3, 96, 96)), generator_for(i))
        light = noise.mean(0)
        beside.append(float((light[:, 1:] * light[:, :-1]).mean() / light.square().mean()))
        colours = noise - light
        assert (colours[:, :, 1:] * colours[:, :, :-1]).mean() > 0.6 * colours.square().mean()
    # A blur by σ leaves exp(-1 / (4 σ²)), 0.81 for 1.1; for 0.5, of which three pixels have nearly all, 0.25.
    assert 0.2 < min(beside) < 0.5
    assert 0.7 < max(beside) < 0.85


def test_smoothed_colours_are_coarse_and_the_brightness_stays():
    for i in range(10):
        white = torch.randn(3, 96, 96, generator=generator_for(i))
        noise = with_smooth_colours(white, generator_for(i))
        torch.testing.assert_close(noise.mean(0), white.mean(0))
        colours = noise - noise.mean(0)
        assert (colours[:, :, 1:] * colours[:, :, :-1]).mean() > 0.6 * colours.square().mean()
        relative = float(colours.std() / noise.mean(0).std())
        assert degradations.COLOUR_PART[0] * 0.99 < relative < degradations.COLOUR_PART[1] * 1.01


def test_demosaicing_keeps_a_constant_and_correlates_neighbours():
    torch.testing.assert_close(demosaiced(GREY), GREY)
    noise = demosaiced(torch.randn(3, 128, 128, generator=generator_for(0)))
    beside = [float((c[:, 1:] * c[:, :-1]).mean() / c.square().mean()) for c in noise]
    assert min(beside) > 0.2


def test_demosaicing_keeps_the_sensors_own_pixels():
    noise = torch.randn(3, 16, 16, generator=generator_for(0))
    result = demosaiced(noise)
    torch.testing.assert_close(result[0, 0::2, 0::2], noise[0, 0::2, 0::2])
    torch.testing.assert_close(result[1, 0::2, 1::2], noise[1, 0::2, 1::2])
    torch.testing.assert_close(result[2, 1::2, 1::2], noise[2, 1::2, 1::2])


def test_blotches_have_colour_and_no_brightness():
    spots = chroma_blotches(torch.Size((3, 96, 96)), generator_for(0))
    luma = 0.299 * spots[0] + 0.587 * spots[1] + 0.114 * spots[2]
    assert spots.std() > 20 * luma.std()
    assert float((spots[:, :, 1:] * spots[:, :, :-1]).mean() / spots.square().mean()) > 0.7, "of several pixels"


def test_jpeg_loses_more_at_lower_quality():
    clean = photo() + 0.05 * torch.randn(3, 96, 96, generator=generator_for(0))
    errors = [float((jpeg(clean, quality, True) - clean.clamp(0, 1)).square().mean()) for quality in (98, 80, 60)]
    assert errors[0] < errors[1] < errors[2]


def test_held_out_noise_is_always_the_same_and_of_the_strength_it_says():
    for index, sigma in ((0, 10), (1, 25), (2, 50), (4, 10)):
        noisy = held_out_noise(GREY, index)
        assert torch.equal(noisy, held_out_noise(GREY, index))
        # 27,648 numbers tell a standard deviation to half a per cent.
        assert math.isclose(float((noisy - GREY).std()) * 255, sigma, rel_tol=0.03)


def test_a_photo_made_smaller_and_larger_keeps_its_place_and_loses_detail():
    clean = photo()
    fine = clean + 0.2 * (torch.rand(3, 96, 96, generator=generator_for(1)) - 0.5)
    inside = (slice(None), slice(4, -4), slice(4, -4))
    for i in range(30):
        small = shrink_and_enlarge(clean, generator_for(i))
        shifts = ((0, 0), (0, 1), (0, -1), (1, 0), (-1, 0))
        errors = [float((small.roll(shift, (1, 2)) - clean)[inside].square().mean()) for shift in shifts]
        assert errors[0] == min(errors)
        assert shrink_and_enlarge(fine, generator_for(i)).std() < fine.std()


@pytest.mark.parametrize("size", [(96, 96), (95, 94), (31, 40)])
def test_held_out_photos_of_any_size_keep_it(size):
    clean = torch.rand(3, *size, generator=generator_for(0))
    assert held_out_small(clean, 0).shape == clean.shape
