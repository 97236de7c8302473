import numpy as np
import pytest
import torch
from scipy import special

from acda import fourier_bessel, multiscale_fourier_bessel


@pytest.mark.parametrize("side", [3, 5, 7, 9, 15])
def test_every_element_has_unit_norm(side):
    bases = multiscale_fourier_bessel(side, dtype=torch.float64)
    assert torch.allclose(bases.square().sum((1, 2)), torch.ones(len(bases), dtype=torch.float64))


def test_the_first_six_are_the_documented_ones():
    """Each against its own formula, written out: J_n(root·r) with root and order from a table."""
    y, x = np.mgrid[-2:3, -2:3]
    r, theta = np.hypot(x, y) / 2.5, np.arctan2(y, x)
    inside = r < 1
    wave = {
        0: special.j0(2.404825557695773 * r),
        1: special.j1(3.831705970207512 * r) * np.cos(theta),
        2: special.j1(3.831705970207512 * r) * np.sin(theta),
        3: special.jv(2, 5.135622301840683 * r) * np.cos(2 * theta),
        4: special.jv(2, 5.135622301840683 * r) * np.sin(2 * theta),
        5: special.j0(5.520078110286311 * r),
    }
    bases = fourier_bessel(5, dtype=torch.float64).numpy()
    for index, expected in wave.items():
        expected = expected * inside
        np.testing.assert_allclose(bases[index], expected / np.linalg.norm(expected), atol=1e-12)


@pytest.mark.parametrize(("side", "most"), [(3, 8), (5, 20), (7, 31)])
def test_as_many_elements_as_are_independent(side, most):
    bases = fourier_bessel(side, most, dtype=torch.float64).flatten(1)
    assert torch.linalg.svdvals(bases).min() > 0.1
    with pytest.raises(ValueError, match=f"at most {most} linearly independent .* got num_bases={most + 1}"):
        fourier_bessel(side, most + 1)


def test_small_scales_are_centred_and_zero_outside():
    bases = multiscale_fourier_bessel(7)
    assert bases.shape == (18, 7, 7)
    for scale, side in enumerate((3, 5, 7)):
        part, margin = bases[6 * scale : 6 * scale + 6], (7 - side) // 2
        assert torch.equal(part[:, margin : 7 - margin, margin : 7 - margin], fourier_bessel(side))
        assert part.count_nonzero() == fourier_bessel(side).count_nonzero()


def test_scales_can_be_chosen():
    assert multiscale_fourier_bessel(7, 4, scales=(3, 7)).shape == (8, 7, 7)


def test_dtype_follows_torch_default_and_argument():
    assert fourier_bessel(3).dtype == torch.float32
    assert fourier_bessel(3, dtype=torch.float64).dtype == torch.float64


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fourier_bessel(4), ValueError, "odd side of 3 or more; got 4"),
        (lambda: fourier_bessel(1), ValueError, "odd side of 3 or more; got 1"),
        (lambda: fourier_bessel(-3), ValueError, "got -3"),
        (lambda: fourier_bessel(3.0), TypeError, "an int; got 3.0"),
        (lambda: fourier_bessel(3, 0), ValueError, "at least one element; got 0"),
        (lambda: fourier_bessel(3, 2.5), TypeError, "an int; got 2.5"),
        (lambda: multiscale_fourier_bessel(5, scales=(3, 7)), ValueError, "none larger than the 5×5 kernel"),
        (lambda: multiscale_fourier_bessel(5, scales=(3, 3)), ValueError, "different sizes"),
        (lambda: multiscale_fourier_bessel(5, scales=()), ValueError, "at least one size"),
        (lambda: multiscale_fourier_bessel(5, scales=(4,)), ValueError, "odd side"),
        (lambda: multiscale_fourier_bessel(5, 9), ValueError, "3×3 grid carries at most 8"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(call, error, message):
    with pytest.raises(error, match=message):
        call()
