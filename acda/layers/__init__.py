"""Layers with Conv2d's conventions: the adaptive convolution, and its alternatives.

`fx_leaf_modules` (also acda.fx_leaf_modules) is for torch.fx, which cannot follow Python code that depends on the
input's shape: its tracers have to call these layers, and subclasses of them, as one piece. torchvision's
create_feature_extractor takes them as tracer_kwargs={"leaf_modules": list(acda.fx_leaf_modules)}. A tracer of your own:

>>> import torch, acda
>>> class Tracer(torch.fx.Tracer):
...     def is_leaf_module(self, module, name):
...         return isinstance(module, acda.fx_leaf_modules) or super().is_leaf_module(module, name)
>>> model = torch.nn.Sequential(acda.AdaptiveConv2d(3, 8, 3), torch.nn.ReLU())
>>> traced = torch.fx.GraphModule(model, Tracer().trace(model))
>>> traced(torch.randn(1, 3, 8, 8)).shape
torch.Size([1, 8, 6, 6])
"""

from acda.layers.adaptive_conv import AdaptiveConv2d
from acda.layers.atom_conv import AtomConv2d
from acda.layers.cond_conv import CondConv2d
from acda.layers.conv_like import ConvLike
from acda.layers.dynamic_conv import DynamicConv2d, anneal
from acda.layers.dynamic_filter import DynamicFilterConv2d
from acda.layers.generator import AtomGenerator
from acda.layers.imitation import ConversionWarning
from acda.layers.involution import Involution2d
from acda.layers.kernel_prediction import KernelPrediction2d, LaplacianKernelPrediction2d
from acda.layers.pixel_adaptive import PixelAdaptiveConv2d

# ConvLike is the base of all the others.
fx_leaf_modules = (ConvLike, AtomConv2d, AtomGenerator, KernelPrediction2d, LaplacianKernelPrediction2d)

__all__ = [
    "AdaptiveConv2d",
    "AtomConv2d",
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
