"""PSNR and SSIM as the restoration literature measures them. Images are (B, C, H, W), about 0 to 1."""

import torch
import torch.nn.functional as F
from torch import Tensor

# Y of YCbCr by BT.601 on the scale 0–255: 16 for black, 235 for white.
BLACK, RED, GREEN, BLUE = 16.0, 65.481, 128.553, 24.966
WINDOW, SIGMA = 11, 1.5


def luma(rgb: Tensor) -> Tensor:
    """The Y channel, (B, 1, H, W), with 255 as one: black is 16/255, white 235/255.

    >>> (luma(torch.ones(1, 3, 1, 1)) * 255).round().item()
    235.0
    """
    red, green, blue = _precise(rgb).unbind(1)
    return (BLACK + RED * red + GREEN * green + BLUE * blue)[:, None] / 255


def psnr(image: Tensor, truth: Tensor) -> Tensor:
    """Peak signal to noise ratio in dB, of each image; infinite for equal ones: (B,)."""
    _check(image, truth)
    return -10 * (_precise(image) - _precise(truth)).square().mean((1, 2, 3)).log10()


def ssim(image: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity of each image, over the places where the Gaussian window is whole: (B,).

    11×11, σ = 1.5, the constants of Wang et al. (2004) for a range of one; channels are averaged.
    """
    _check(image, truth)
    if min(image.shape[2:]) < WINDOW:
        raise ValueError(f"SSIM needs at least {WINDOW}×{WINDOW} pixels; got {tuple(image.shape[2:])}.")
    a, b = _precise(image), _precise(truth)
    mean_a, mean_b = _blurred(a), _blurred(b)
    var_a, var_b = _blurred(a * a) - mean_a**2, _blurred(b * b) - mean_b**2
    covariance = _blurred(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    similarity = (2 * mean_a * mean_b + c1) * (2 * covariance + c2)
    return (similarity / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))).mean((1, 2, 3))


def _precise(x: Tensor) -> Tensor:
    """In double precision, which Apple's GPUs do not have."""
    return x.cpu().double() if x.device.type == "mps" else x.double()


def _blurred(x: Tensor) -> Tensor:
    distance = torch.arange(WINDOW, dtype=x.dtype, device=x.device) - WINDOW // 2
    taps = torch.exp(-(distance**2) / (2 * SIGMA**2))
    taps = (taps / taps.sum()).expand(x.shape[1], 1, 1, WINDOW)
    return F.conv2d(F.conv2d(x, taps, groups=x.shape[1]), taps.transpose(2, 3), groups=x.shape[1])


def _check(image: Tensor, truth: Tensor) -> None:
    if image.shape != truth.shape or image.ndim != 4:
        raise ValueError(
            f"two images of one shape (B, C, H, W) are needed; got {tuple(image.shape)} and {tuple(truth.shape)}."
        )
