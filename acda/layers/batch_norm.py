"""The normalisation of Φ."""

import torch.nn.functional as F
from torch import Tensor, nn


class ForgivingBatchNorm2d(nn.BatchNorm2d):
    """BatchNorm2d that uses the running statistics where a batch has none of its own: one value, or no value.

    nn.BatchNorm2d refuses to train on a single pixel; a convolution does not, and neither does a layer made to
    replace one.
    """

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not self.uses_batch(x.shape[0] * x.shape[2] * x.shape[3]):
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(x)

    def uses_batch(self, values: int) -> bool:
        """Whether a batch with so many values per channel is normalised with its own statistics."""
        return self.training and values > 1
