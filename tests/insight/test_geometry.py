"""Maps on photos: where a position of a layer's map lies, and to which position a point of the photo belongs."""

import pytest
import torch
from torch import nn

from acda import AdaptiveConv2d
from acda.insight import capture
from acda.insight.geometry import map_box, map_place, photo_place, photo_scale


def test_a_map_lies_where_its_windows_are():
    """Without padding the first window's middle is two pixels in; with a stride, positions are that far apart."""
    view = capture(AdaptiveConv2d(3, 4, 5).eval(), torch.randn(1, 3, 32, 40)).layers[""]
    assert map_box(view, (32, 40)) == (2, 2, 38, 30)
    assert photo_place(view, (64, 80), (0, 3)) == (11, 5)
    assert map_place(view, (64, 80), 11, 5) == (0, 3)
    assert map_place(view, (64, 80), 0, 63.9) == (27, 0)
    strided = capture(AdaptiveConv2d(3, 4, 7, stride=2, padding=3).eval(), torch.randn(1, 3, 32, 40)).layers[""]
    assert photo_place(strided, (32, 40), (1, 0)) == (0.5, 2.5)


def test_a_pixel_of_the_layer_is_so_many_of_the_photo():
    view = capture(AdaptiveConv2d(3, 4, 3, padding=1).eval(), torch.randn(1, 3, 8, 10)).layers[""]
    assert photo_scale(view, (32, 30)) == (4, 3)


def test_a_network_that_extends_a_photo_does_not_move_its_places():
    """A photo 50 wide is seen as 64: the middle of the map's column 4, of cells of 8 pixels, is at 36."""

    class Extends(nn.Module):
        stride, cell = 32, 1

        def __init__(self):
            super().__init__()
            self.layer = AdaptiveConv2d(3, 4, 3, padding=1)

        def forward(self, x):
            return self.layer(nn.functional.avg_pool2d(nn.functional.pad(x, (0, 14, 0, 0)), 8))

    view = capture(Extends().eval(), torch.randn(1, 3, 32, 50)).layers["layer"]
    assert view.size == (4, 8)
    assert photo_place(view, (32, 50), (1, 4)) == pytest.approx((36, 12))
    assert map_place(view, (32, 50), 49, 31) == (3, 6)
