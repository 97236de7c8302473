"""The ratio at which an image was enlarged, found again in its spectrum."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paper import enlargement


@pytest.mark.parametrize("times", [2.2, 2.5, 2.8])
def test_ratio_of_an_enlarged_image_is_found(times):
    """torch's bicubic has OpenCV's parameter; the enlarged image has a spectrum that falls like that of photos."""
    side = round(320 / times)
    fall = 1 / torch.hypot(torch.fft.fftfreq(side)[:, None], torch.fft.rfftfreq(side)[None]).clamp_min(1 / side)
    noise = torch.fft.rfft2(torch.randn(8, 3, side, side, generator=torch.Generator().manual_seed(0)))
    small = torch.fft.irfft2(noise * fall, (side, side))
    large = F.interpolate(128 + 40 * small / small.std(), (320, 320), mode="bicubic").round().clamp(0, 255)
    first, second = enlargement.zeros_of(list(large.permute(0, 2, 3, 1).numpy().astype(np.uint8)))
    assert first / second == pytest.approx(enlargement.ZEROS[0] / enlargement.ZEROS[1], abs=0.02)
    assert enlargement.ZEROS[1] / second == pytest.approx(320 / side, abs=0.05)
