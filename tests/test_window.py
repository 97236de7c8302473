import pytest
from hypothesis import given

from acda.window import Window, kernel_side
from tests.strategies import Case, cases


@given(cases())
def test_output_size_is_conv2ds(case: Case):
    assert Window.of(case.side, **case.window).output_size(*case.size) == case.conv2d_size()


def test_same_keeps_the_size():
    assert Window.of(7, padding="same", dilation=(1, 3)).output_size(11, 12) == (11, 12)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: kernel_side(4), ValueError, "odd number.* got 4. Try 3 or 5"),
        (lambda: kernel_side((3, 5)), ValueError, r"square.* got \(3, 5\)"),
        (lambda: kernel_side(0), ValueError, "at least 1"),
        (lambda: kernel_side(3.0), TypeError, "an int or a pair of ints; got 3.0"),
        (lambda: Window.of(3, stride=0), ValueError, "stride needs numbers of at least 1; got 0"),
        (lambda: Window.of(3, padding=-1), ValueError, "padding needs numbers of at least 0; got -1"),
        (lambda: Window.of(3, dilation=(1, 2, 3)), TypeError, "dilation needs an int or a pair"),
        (lambda: Window.of(3, padding="full"), ValueError, '"same" or "valid"; got \'full\''),
        (lambda: Window.of(3, stride=2, padding="same"), ValueError, "needs stride 1"),
        (lambda: Window.of(7).output_size(6, 20), ValueError, r"at least \(7, 7\) pixels.* got \(6, 20\)"),
    ],
)
def test_bad_arguments_are_refused_with_a_reason(call, error, message):
    with pytest.raises(error, match=message):
        call()
