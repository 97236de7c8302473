"""Per-pixel operators of other projects, with their names, arguments and results, on `per_pixel_conv2d`.

For code whose own extension cannot be installed any more. They run on every device, have gradients and export.

>>> import torch
>>> from acda.compat import na2d_av
>>> attention = torch.randn(1, 4, 8, 8, 9).softmax(-1)
>>> na2d_av(attention, torch.randn(1, 4, 8, 8, 16), kernel_size=3).shape
torch.Size([1, 4, 8, 8, 16])
"""

from acda.compat.carafe import carafe
from acda.compat.ddf import ddf
from acda.compat.involution import involution
from acda.compat.lsnet import SKA, ska
from acda.compat.natten import na2d_av, na2d_qk
from acda.compat.stfan import KernelConv2D, fac

__all__ = ["SKA", "KernelConv2D", "carafe", "ddf", "fac", "involution", "na2d_av", "na2d_qk", "ska"]
