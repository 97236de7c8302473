"""What adaptive layers do at each place: scales, receptive fields, atoms, diversity. Numbers; draw has the pictures."""

from acda.insight.capture import Captured, capture
from acda.insight.view import LayerView, diversity

__all__ = ["Captured", "LayerView", "capture", "diversity"]
