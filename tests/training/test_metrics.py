"""PSNR and SSIM equal scikit-image's."""

import numpy as np
import pytest
import torch
from skimage.color import rgb2ycbcr
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from acda.training.metrics import luma, psnr, ssim


@pytest.fixture
def photos():
    """An image with structure, and the same with noise: (1, 3, 40, 57)."""
    random = np.random.default_rng(0)
    y, x = np.mgrid[:40, :57]
    clean = 0.5 + 0.4 * np.sin(x / 5 + np.arange(3)[:, None, None]) * np.cos(y / 7)
    noisy = np.clip(clean + random.normal(0, 0.08, clean.shape), 0, 1)
    return torch.from_numpy(noisy)[None], torch.from_numpy(clean)[None]


def channels_last(x):
    return x[0].permute(1, 2, 0).numpy()


def test_y_is_bt601(photos):
    ours = luma(photos[0])[0, 0] * 255
    np.testing.assert_allclose(ours.numpy(), rgb2ycbcr(channels_last(photos[0]))[:, :, 0], atol=1e-9)


def test_psnr(photos):
    noisy, clean = photos
    expected = peak_signal_noise_ratio(channels_last(clean), channels_last(noisy), data_range=1)
    assert float(psnr(noisy, clean)) == pytest.approx(expected, abs=1e-9)
    on_y = peak_signal_noise_ratio(luma(clean).numpy(), luma(noisy).numpy(), data_range=1)
    assert float(psnr(luma(noisy), luma(clean))) == pytest.approx(on_y, abs=1e-9)
    assert float(psnr(clean, clean)) == float("inf")


@pytest.mark.parametrize("kind", ["rgb", "y"])
def test_ssim(photos, kind):
    noisy, clean = photos if kind == "rgb" else map(luma, photos)
    expected = structural_similarity(
        channels_last(clean),
        channels_last(noisy),
        data_range=1,
        gaussian_weights=True,
        sigma=1.5,
        use_sample_covariance=False,
        channel_axis=2,
    )
    assert float(ssim(noisy, clean)) == pytest.approx(expected, abs=1e-9)
    assert float(ssim(clean, clean)) == pytest.approx(1)


def test_each_image_of_a_batch_on_its_own(photos):
    noisy, clean = photos
    both = torch.cat([noisy, clean]), torch.cat([clean, clean])
    assert psnr(*both)[0] == psnr(noisy, clean)[0]
    torch.testing.assert_close(ssim(*both)[0], ssim(noisy, clean)[0])


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="two images of one shape"):
        psnr(torch.zeros(1, 3, 20, 20), torch.zeros(1, 3, 20, 21))
    with pytest.raises(ValueError, match="at least 11×11"):
        ssim(torch.zeros(1, 3, 10, 20), torch.zeros(1, 3, 10, 20))
