"""Layers with Conv2d's conventions."""

from acda.layers.adaptive_conv import AdaptiveConv2d, ConversionWarning
from acda.layers.generator import AtomGenerator

__all__ = ["AdaptiveConv2d", "AtomGenerator", "ConversionWarning"]
