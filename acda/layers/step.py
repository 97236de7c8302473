"""A step of Φ: convolve, normalise, squash. The backend does it as one or two operations."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.backends import Backend
from acda.layers.conv_like import has_hooks


class ForgivingBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d that takes the running statistics where a batch has none of its own: one value, or no value.

    nn.BatchNorm2d refuses to train on a single pixel; a convolution does not, and neither does a layer made to
    replace one.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self._takes_batch(x):
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)

    def tanh(self, x: Tensor, kernels: Backend) -> Tensor:
        """The Tanh of forward(x), by a backend. Running statistics are needed, and a momentum."""
        mean, var, batches, momentum = self.running_mean, self.running_var, self.num_batches_tracked, self.momentum
        assert mean is not None
        assert var is not None
        assert batches is not None
        assert momentum is not None
        takes_batch = self._takes_batch(x)
        if takes_batch:
            with torch.no_grad():
                batches.add_(1)
        return kernels.batch_norm_tanh(x, mean, var, self.weight, self.bias, takes_batch, momentum, self.eps)

    def _takes_batch(self, x: Tensor) -> bool:
        """Whether the statistics are the batch's own."""
        return self.training and x.shape[0] * x.shape[2] * x.shape[3] > 1


def step(x: Tensor, conv: nn.Module, norm: nn.Module, padding: tuple[int, int], kernels: Backend) -> Tensor:
    """tanh(norm(conv(x))), negative padding cropping the map.

    The backend computes it from the parameters of the two modules: with fixed statistics and nothing to differentiate
    in one pass over the map, otherwise in two. Where that might not be what calling the modules does, they are called.
    """
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, ForgivingBatchNorm2d) or not _are_plain(conv, norm):
        py, px = padding
        y: Tensor = norm(conv(F.pad(x, (px, px, py, py))))
        return y.tanh()  # not in place: somebody may have kept what the normalisation returned
    stride = conv.stride[0], conv.stride[1]
    if norm.training or not _may_fold():
        return norm.tanh(kernels.conv2d(x, conv.weight, stride, padding), kernels)
    weight, shift = _folded(conv, norm)
    return kernels.conv2d_tanh(x, weight, shift, stride, padding)


def fixed(conv: nn.Module, norm: nn.Module) -> tuple[Tensor, Tensor] | None:
    """Weight and shift of the step as one convolution, where that is what calling the modules does now."""
    if not isinstance(conv, nn.Conv2d) or not isinstance(norm, ForgivingBatchNorm2d) or not _are_plain(conv, norm):
        return None
    return None if norm.training or not _may_fold() else _folded(conv, norm)


def _are_plain(conv: nn.Conv2d, norm: ForgivingBatchNorm2d) -> bool:
    """Whether the two are as Φ makes them: nobody has changed what they compute, and nobody listens.

    Parametrizations change a module's type; pruning and the older weight norms are hooks.
    """
    return (
        type(conv) is nn.Conv2d
        and type(norm) is ForgivingBatchNorm2d
        and conv.bias is None
        and (conv.padding, conv.dilation, conv.groups) == ((0, 0), (1, 1), 1)
        and norm.weight is not None
        and norm.bias is not None
        and norm.track_running_stats
        and norm.running_var is not None
        and norm.momentum is not None
        and not has_hooks(conv)
        and not has_hooks(norm)
        and not ("forward" in vars(conv) or "forward" in vars(norm))
    )


def _may_fold() -> bool:
    """Whether a step may be one operation: nothing is differentiated, or torch.jit records plain torch, which can be.

    torch.jit.trace checks its graph against a second one without gradients: both have to be the same.
    """
    return not torch.is_grad_enabled() or torch._C._get_tracing_state() is not None


def _folded(conv: nn.Conv2d, norm: nn.BatchNorm2d) -> tuple[Tensor, Tensor]:
    """Weight and bias of the one convolution that equals conv followed by norm with its running statistics."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = norm.weight * torch.rsqrt(norm.running_var + norm.eps)
    dtype = conv.weight.dtype  # normalisations may be kept in a wider one
    return (conv.weight * scale[:, None, None, None]).to(dtype), (norm.bias - norm.running_mean * scale).to(dtype)
