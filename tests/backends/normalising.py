"""norm_tanh with its truth, torch's own batch_norm and tanh, for comparing."""

import torch.nn.functional as F
from torch import Tensor

from acda.backends.native import norm_tanh as operator

Statistics = tuple[Tensor, Tensor]


def norm_tanh(u: Tensor, weight: Tensor, _, bias: Tensor, backend: str, fixed: Statistics | None = None) -> Tensor:
    """With fixed statistics, or with those of the batch."""
    statistics = (None, None) if fixed is None else tuple(t.to(u) for t in fixed)
    if backend == "native":
        return operator.norm_tanh(u, weight, bias, *statistics, 1e-5)[0]
    return F.batch_norm(u, *statistics, weight, bias, training=fixed is None).tanh()


def summed_in_norm_tanh(inputs: list, upstream: Tensor, fixed: Statistics | None = None) -> list[Tensor]:
    """What was summed for the result and the gradients of u, weight and bias, in float64.

    The normalised value contains the difference of u and its mean, and Tanh's derivative is the difference of 1 and y².
    y has an error too: that of Tanh's argument, multiplied by Tanh's derivative.
    """
    u, weight, _, bias = (t if t is None or t.ndim == 4 else t[:, None, None] for t in inputs)
    pixels = (0, 2, 3)
    moments = (u.mean(pixels), u.var(pixels, unbiased=False)) if fixed is None else fixed
    mean, var = (t.double()[:, None, None] for t in moments)
    inverse = (var + 1e-5).rsqrt()
    normal, terms = (u - mean).abs() * inverse, (u.abs() + mean.abs()) * inverse
    y = (weight * (u - mean) * inverse + bias).tanh()
    argument = (weight.abs() * terms + bias.abs()) * (1 - y.square())
    g = upstream.abs() * (1 + y.square() + 2 * y.abs() * argument)
    du = g
    if fixed is None:
        slopes = normal * (g * terms).mean(pixels, True) + terms * (g * normal).mean(pixels, True)
        du = g + g.mean(pixels, True) + slopes
    return [y.abs() + argument, weight.abs() * inverse * du, (g * terms).sum(pixels), g.sum(pixels)]
