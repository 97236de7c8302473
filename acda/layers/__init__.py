"""Layers with Conv2d's conventions: the adaptive convolution, and those that people would pick instead."""

from acda.layers.adaptive_conv import AdaptiveConv2d, ConversionWarning
from acda.layers.cond_conv import CondConv2d
from acda.layers.dynamic_conv import DynamicConv2d, anneal
from acda.layers.dynamic_filter import DynamicFilterConv2d
from acda.layers.generator import AtomGenerator
from acda.layers.involution import Involution2d
from acda.layers.kernel_prediction import KernelPrediction2d, LaplacianKernelPrediction2d
from acda.layers.pixel_adaptive import PixelAdaptiveConv2d

__all__ = [
    "AdaptiveConv2d",
    "AtomGenerator",
    "CondConv2d",
    "ConversionWarning",
    "DynamicConv2d",
    "DynamicFilterConv2d",
    "Involution2d",
    "KernelPrediction2d",
    "LaplacianKernelPrediction2d",
    "PixelAdaptiveConv2d",
    "anneal",
]
