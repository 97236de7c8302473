"""acda: a convolution whose filter is different at every pixel, drop-in for nn.Conv2d.

>>> import torch, acda
>>> layer = acda.AdaptiveConv2d(64, 128, 7, padding=3)
>>> layer(torch.randn(1, 64, 32, 32)).shape
torch.Size([1, 128, 32, 32])
"""

from acda import compat, cost, functional, insight, layers, models, tune
from acda.bases import fourier_bessel, multiscale_fourier_bessel
from acda.convert import convert
from acda.decompose import decompose_filters
from acda.layers import AdaptiveConv2d, AtomGenerator, ConversionWarning, fx_leaf_modules
from acda.models import create_model, list_models
from acda.photos.weights import load

__version__ = "0.1.0"

__all__ = [
    "AdaptiveConv2d",
    "AtomGenerator",
    "ConversionWarning",
    "compat",
    "convert",
    "cost",
    "create_model",
    "decompose_filters",
    "fourier_bessel",
    "functional",
    "fx_leaf_modules",
    "insight",
    "layers",
    "list_models",
    "load",
    "models",
    "multiscale_fourier_bessel",
    "tune",
]
