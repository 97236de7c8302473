"""Hints say how strong the noise of a photo is, tell it from texture, and see no farther than they must."""

import itertools

import pytest
import torch

from acda.models import create_model
from acda.models.noise_hints import NoiseHints, measured

LOCAL, NEARBY, AROUND, BLACK, WHITE = slice(0, 9), slice(9, 18), slice(18, 27), slice(27, 30), slice(30, 33)


def noise(sigma: float, mean: float = 0.5, seed: int = 0) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return (mean + sigma / 255 * torch.randn(1, 3, 128, 128, generator=draw)).clamp(0, 1)


@pytest.mark.parametrize("part", [LOCAL, NEARBY, AROUND])
def test_stronger_noise_gives_higher_hints_at_every_place(part):
    levels = [measured(noise(sigma))[:, part] for sigma in (0, 1, 4, 16)]
    assert all(bool((high > low).all()) for low, high in itertools.pairwise(levels))


def test_twice_the_noise_is_two_steps_of_the_logarithm():
    # Of the finest details, of which a cell has 64 numbers; of the coarsest it has four.
    rise = (measured(noise(16)) - measured(noise(8)))[:, :3]
    # Energy goes with the square, and logarithms of base 2 are divided by 4. LEAST is 1 % of the smaller energy.
    torch.testing.assert_close(rise, torch.full_like(rise, 2 / 4), atol=2e-2, rtol=0)


def test_texture_beside_a_calm_place_is_not_a_floor_of_noise():
    textured = noise(8)
    textured[..., :16] = 0.5
    local, around = measured(textured)[0, :3], measured(textured)[0, 18:21]
    calm = float(measured(noise(0))[0, LOCAL].max())
    # The calm place is two cells wide. Cells 4 and 5 see it among their neighbours, those from 8 on do not.
    assert bool((local[..., 4:6] > calm + 0.5).all())
    assert bool((around[..., 4:6] < calm + 0.01).all())
    assert bool((around[..., 8:] > calm + 0.25).all())


def test_a_clipped_place_is_not_a_calm_one():
    clipped = noise(8)
    clipped[..., 32:64] = 1.0
    calm = float(measured(noise(0))[0, LOCAL].max())
    assert bool((measured(clipped)[0, LOCAL, :, 5:7] < calm + 0.01).all())
    assert bool((measured(clipped)[0, AROUND] > calm + 0.25).all())


def test_shares_of_black_and_white_pixels():
    dark, bright = measured(noise(20, mean=0.0)), measured(noise(20, mean=1.0))
    # Half of the noise falls below black. 64 numbers in a cell, 256 cells, so that the mean is known to 0.005.
    assert float(dark[:, BLACK].mean()) == pytest.approx(0.5, abs=0.03)
    assert float(bright[:, WHITE].mean()) == pytest.approx(0.5, abs=0.03)
    assert float(measured(noise(20))[:, 27:].abs().max()) == 0


def test_a_fresh_network_with_hints_is_the_one_without():
    torch.manual_seed(0)
    hinted = create_model("photo_denoiser", width=8, outer=1, inner=1).eval()
    plain = create_model("photo_unet", width=8, outer=1, inner=1).eval()
    plain.load_state_dict({k: v for k, v in hinted.state_dict().items() if not k.startswith("hints.")})
    x = torch.rand(1, 3, 40, 48)
    assert torch.equal(hinted(x), plain(x))


def test_the_first_step_reaches_the_hints():
    torch.manual_seed(0)
    hints = NoiseHints(4)
    hints(noise(10)).sum().backward()
    assert hints.features[-1].weight.grad.abs().max() > 0
