"""Layers with Conv2d's conventions: the adaptive convolution, and those that people would pick instead."""

from acda.layers.adaptive_conv import AdaptiveConv2d
from acda.layers.cond_conv import CondConv2d
from acda.layers.conv_like import ConvLike
from acda.layers.dynamic_conv import DynamicConv2d, anneal
from acda.layers.dynamic_filter import DynamicFilterConv2d
from acda.layers.generator import AtomGenerator
from acda.layers.imitation import ConversionWarning
from acda.layers.involution import Involution2d
from acda.layers.kernel_prediction import KernelPrediction2d, LaplacianKernelPrediction2d
from acda.layers.pixel_adaptive import PixelAdaptiveConv2d

# Layers whose Python code depends on the input's shape, with their subclasses: torch.fx has to call them as one piece.
fx_leaf_modules = (ConvLike, AtomGenerator, KernelPrediction2d, LaplacianKernelPrediction2d)

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
    "fx_leaf_modules",
]
