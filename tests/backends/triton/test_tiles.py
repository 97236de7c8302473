import pytest
from hypothesis import given
from hypothesis import strategies as st

from acda.backends.triton.tiles import ROWS, Band, tiles_for
from acda.window import Window


@given(
    st.integers(0, 10).map(lambda half: 2 * half + 1),
    st.integers(1, 5),
    st.integers(1, 5),
    st.integers(1, 100),
    st.integers(1, 200),
)
def test_every_pixel_is_in_one_group_and_sees_its_taps(side, stride, dilation, atoms, width):
    """As the kernels compute it: tile → first column, then pixels `spacing` apart, and tap j in column g·step + j."""
    band = Band.of(Window.of(side, stride, 0, dilation), atoms)
    firsts = [t % band.spacing + t // band.spacing * band.pixels * band.spacing for t in range(band.groups(width))]
    pixels = [q0 + g * band.spacing for q0 in firsts for g in range(band.pixels)]
    assert sorted(q for q in pixels if q < width) == list(range(width))
    assert (band.pixels - 1) * band.step + side <= band.columns
    assert all(g * band.spacing * stride == g * band.step * dilation for g in range(band.pixels))
    assert band.pixels * band.atoms <= band.rows <= ROWS


def test_the_papers_layer_uses_a_third_of_the_product():
    """Ten pixels of six atoms, each with 7 of 16 columns, and 7 of 8 rows of taps."""
    band = Band.of(Window.of(7), 6)
    rows = band.tap_rows(7, 128)
    assert (band.pixels, band.rows, band.columns, rows) == (10, 64, 16, 8)
    assert band.density(7) * 7 / rows == pytest.approx(0.36, abs=0.005)


@pytest.mark.parametrize("architecture", [8, 9, 10, 12, "hip", "interpreter", "something new"])
def test_every_architecture_has_tiles_for_every_precision(architecture):
    for precision in ("half", "tf32", "tf32x3", "ieee"):
        for tile in tiles_for(architecture, precision):
            assert tile.channels >= 16
            assert tile.inner >= 16
