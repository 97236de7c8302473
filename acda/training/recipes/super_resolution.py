"""Super-resolution of real photos: RealSR at three scales (the paper's Table 4), and City100."""

from dataclasses import replace

from acda.training.recipe import Restoration


def city100_restorer() -> Restoration:
    """Eight adaptive 7×7 layers, on City100: 6,000 steps of 8 crops of 96×96, scored on luma.

    acda train city100_restorer --data DIR
    Result: PSNR on Y 25.92 dB, SSIM on Y 0.7446; 2.3 hours (paper/results/city100.json).
    """
    return Restoration(
        model="restorer",
        epochs=10,
        batch_size=8,
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=1e-4,
        freeze_norm_at=0.7,
        norm_momentum=0.02,
        test_every=5,
        channels="y",
    )


def city100_restorer_conv() -> Restoration:
    """The same network with 7×7 convolutions, on City100.

    acda train city100_restorer_conv --data DIR
    Result: PSNR on Y 25.89 dB, SSIM on Y 0.7437; 2.2 hours (paper/results/city100.json).
    """
    return replace(city100_restorer(), model="restorer_conv")


def city100_restorer_conv_small() -> Restoration:
    """The same network with 3×3 convolutions, on City100.

    acda train city100_restorer_conv_small --data DIR
    Result: PSNR on Y 25.9 dB, SSIM on Y 0.7441; 2.6 hours (paper/results/city100.json).
    """
    return replace(city100_restorer(), model="restorer_conv_small")


def city100_kpn() -> Restoration:
    """KPN: 7×7 convolutions that predict a 5×5 filter for each pixel, on City100.

    acda train city100_kpn --data DIR
    Result: PSNR on Y 25.89 dB, SSIM on Y 0.7419; 2.5 hours (paper/results/city100.json).
    """
    return replace(city100_restorer(), model="kpn")


def city100_lp_kpn() -> Restoration:
    """LP-KPN: KPN for each level of a Laplacian pyramid, on City100.

    acda train city100_lp_kpn --data DIR
    Result: PSNR on Y 25.85 dB, SSIM on Y 0.7441; 2.7 hours (paper/results/city100.json).
    """
    return replace(city100_restorer(), model="lp_kpn")


def realsr_x2_restorer() -> Restoration:
    """Eight adaptive 7×7 layers, on RealSR at ×2.

    Not run here. `--model restorer_conv` trains its baseline with 7×7 convolutions.

    acda train realsr_x2_restorer --data DIR
    """
    return replace(city100_restorer(), scale=2)


def realsr_x3_restorer() -> Restoration:
    """Eight adaptive 7×7 layers, on RealSR at ×3.

    Not run here. `--model restorer_conv` trains its baseline with 7×7 convolutions.

    acda train realsr_x3_restorer --data DIR
    """
    return replace(city100_restorer(), scale=3)


def realsr_x4_restorer() -> Restoration:
    """Eight adaptive 7×7 layers, on RealSR at ×4.

    Not run here. `--model restorer_conv` trains its baseline with 7×7 convolutions.

    acda train realsr_x4_restorer --data DIR
    """
    return replace(city100_restorer(), scale=4)


def free_photos_upscaler() -> Restoration:
    """A U-Net of adaptive 7×7 layers, on clean photos that were made half as large in several ways.

    The packaged `upscaler` is from this recipe; its card has the scores. `--model photo_unet_conv` trains the same
    network with 5×5 convolutions of about the same cost.

    acda train free_photos_upscaler --data DIR
    """
    return Restoration(
        model="photo_unet",
        epochs=6,
        batch_size=8,
        crop=64,
        crops=8000,
        degradation="size",
        scale=2,
        objective="psnr",
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=1e-4,
        freeze_norm_at=0.7,
        test_every=3,
        channels="y",
    )


RECIPES = (
    city100_restorer,
    city100_restorer_conv,
    city100_restorer_conv_small,
    city100_kpn,
    city100_lp_kpn,
    realsr_x2_restorer,
    realsr_x3_restorer,
    realsr_x4_restorer,
    free_photos_upscaler,
)
