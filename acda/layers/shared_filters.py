"""Adaptive layers whose pixels share their filters: ordinary convolutions, one for each image or one for all."""

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from acda.backends.reference import compose_atoms

if TYPE_CHECKING:
    from acda.layers.adaptive_conv import AdaptiveConv2d


def convolve_images(layer: "AdaptiveConv2d", x: Tensor, coefficients: Tensor) -> Tensor:
    """The layer's output for these coefficients, (B, M·L) for each image or (1, M·L) for all of them."""
    if not len(coefficients):
        coefficients = coefficients.new_zeros(1, coefficients.shape[1])  # F.conv2d needs filters for no images too
    filters = filters_from(layer, coefficients).to(x.dtype)
    inner, (_, stride, padding, dilation) = layer.extended(x)
    images = len(filters)
    together = inner.reshape(len(x) // images, images * layer.in_channels, *inner.shape[2:])
    y = F.conv2d(together, filters.flatten(0, 1), None, stride, padding, dilation, images * layer.groups)
    return layer.biased(y.reshape(len(x), layer.out_channels, *y.shape[2:]))


def filters_from(layer: "AdaptiveConv2d", coefficients: Tensor) -> Tensor:
    """The filters that these coefficients make, one set for each image: (B, M·L) → (B, O, C/groups, k, k)."""
    alpha = coefficients.unflatten(1, (layer.num_atoms, -1))[..., None, None]
    bases = None if layer.bases is None else layer.bases.to(alpha.dtype)
    atoms = compose_atoms(alpha, bases, layer.window.side)[..., 0, 0]
    return torch.einsum("ocm,bmij->bocij", layer.mixing.to(alpha.dtype), atoms)
