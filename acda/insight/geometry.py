"""Where the maps of a layer lie on the photo that the network was given, and back: in numbers, without pictures."""

from math import floor

from acda.insight.view import LayerView


def photo_scale(view: LayerView, photo_size: tuple[int, int]) -> tuple[float, float]:
    """Pixels of the photo for one of the layer's input, vertically and horizontally."""
    (H, W), (seen_y, seen_x) = view.input_size, view.seen_share
    return photo_size[0] / (H * seen_y), photo_size[1] / (W * seen_x)


def map_box(view: LayerView, photo_size: tuple[int, int]) -> tuple[float, float, float, float]:
    """Where the layer's map lies on the photo, (left, top, right, bottom): each place around the middle of its window.

    Without padding that is less than the whole photo. Of the layers before this one only their strides are known.
    """
    ends, window = [], view.layer.window
    for axis, (scale, count) in enumerate(zip(photo_scale(view, photo_size), view.size, strict=True)):
        stride = window.stride[axis]
        first = window.reach[axis] - window.padding[axis] + 0.5 - stride / 2
        ends.append((first * scale, (first + count * stride) * scale))
    (top, bottom), (left, right) = ends
    return left, top, right, bottom


def photo_place(view: LayerView, photo_size: tuple[int, int], place: tuple[int, int]) -> tuple[float, float]:
    """(x, y) on the photo of the middle of a place of the layer's map."""
    left, top, right, bottom = map_box(view, photo_size)
    (P, Q), (y, x) = view.size, place
    return left + (x + 0.5) * (right - left) / Q, top + (y + 0.5) * (bottom - top) / P


def map_place(view: LayerView, photo_size: tuple[int, int], x: float, y: float) -> tuple[int, int]:
    """The place (y, x) of the layer's map that is nearest to a point of the photo."""
    left, top, right, bottom = map_box(view, photo_size)
    P, Q = view.size
    row, column = floor((y - top) * P / (bottom - top)), floor((x - left) * Q / (right - left))
    return min(P - 1, max(0, row)), min(Q - 1, max(0, column))
