"""The comparison of layers on noise that varies: the noise itself, and where the networks begin."""

import numpy as np
import pytest
import torch

from paper import variation


@pytest.mark.parametrize("spread", variation.SPREADS)
def test_noise_differs_between_squares_as_much_as_the_spread_says(spread):
    """1,024 squares of 768 numbers: each deviation is known to 2.6 %, their mean to 2 %, standard errors."""
    side, square = 512, variation.SQUARE
    noise = variation.noise(np.random.default_rng(0), 1, side, spread)
    squares = noise.unfold(2, square, square).unfold(3, square, square)  # (1, 3, rows, columns, square, square)
    sigma = squares.std((1, 4, 5)) / variation.SIGMA
    assert float(sigma.mean()) == pytest.approx(1, abs=0.08)
    assert float(sigma.min()) == pytest.approx(1 - spread, abs=0.13)
    assert float(sigma.max()) == pytest.approx(1 + spread, abs=0.2)


@pytest.mark.parametrize("method", variation.METHODS)
def test_every_network_begins_with_no_noise_at_all(method):
    torch.manual_seed(0)
    model = variation.network(method)
    assert not model(torch.randn(1, 3, 16, 16)).any()
    assert any(p.requires_grad for p in model.parameters())
