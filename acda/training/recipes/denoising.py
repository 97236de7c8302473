"""Denoising of real photos, from SIDD (the paper's Table 5) and PolyU, and of clean photos with synthetic noise.

The folder may have SIDD, PolyU or both. SIDD alone was not run here.
"""

from dataclasses import replace

from acda.training.recipe import Restoration


def polyu_sidd_restorer() -> Restoration:
    """Eight adaptive 7×7 layers, on PolyU and SIDD: 6,000 steps of 8 crops of 96×96.

    acda train polyu_sidd_restorer --data DIR
    Result: PolyU: PSNR 37.19 dB, SSIM 0.9456; SIDD, 256×256: PSNR 33.79 dB, SSIM 0.8398
    (paper/results/denoising.json).
    """
    return Restoration(
        model="restorer",
        # First filters with zero mean, unlike those for super-resolution: see Trunk.
        options={"blind_to_smooth": True},
        epochs=10,
        batch_size=8,
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=1e-4,
        freeze_norm_at=0.7,
        norm_momentum=0.02,
        test_every=5,
    )


def polyu_sidd_restorer_conv() -> Restoration:
    """The same network with 7×7 convolutions, on PolyU and SIDD.

    acda train polyu_sidd_restorer_conv --data DIR
    Result: PolyU: PSNR 37.15 dB, SSIM 0.9442; SIDD, 256×256: PSNR 33.51 dB, SSIM 0.8289
    (paper/results/denoising.json).
    """
    return replace(polyu_sidd_restorer(), model="restorer_conv")


def polyu_sidd_restorer_relative() -> Restoration:
    """Adaptive layers, trained on each crop's error relative to that of its input, on PolyU and SIDD.

    acda train polyu_sidd_restorer_relative --data DIR
    Result: PolyU: PSNR 37.65 dB, SSIM 0.9536; SIDD, 256×256: PSNR 32.47 dB, SSIM 0.7854
    (paper/results/denoising.json).
    """
    return replace(polyu_sidd_restorer(), objective="relative_mse")


def polyu_sidd_restorer_variational() -> Restoration:
    """Adaptive layers with VDNet's variational objective, on PolyU and SIDD.

    acda train polyu_sidd_restorer_variational --data DIR
    Result: PolyU: PSNR 37.08 dB, SSIM 0.9438; SIDD, 256×256: PSNR 33.76 dB, SSIM 0.8385; 2 hours
    (paper/results/denoising.json).
    """
    return replace(polyu_sidd_restorer(), model="restorer_variational", options={}, objective="variational")


def polyu_sidd_dncnn() -> Restoration:
    """DnCNN: seventeen 3×3 convolutions at full resolution, on PolyU and SIDD.

    acda train polyu_sidd_dncnn --data DIR
    Result: PolyU: PSNR 37.54 dB, SSIM 0.9532; SIDD, 256×256: PSNR 33.93 dB, SSIM 0.8314; 1.7 hours
    (paper/results/denoising.json).
    """
    return replace(polyu_sidd_restorer(), model="dncnn", options={})


def free_photos_denoiser() -> Restoration:
    """A U-Net of adaptive 7×7 layers, on clean photos to which camera noise, white noise and JPEG are added.

    The packaged `denoiser` is this network, trained about as long, in four parts; its card says how, with the scores.
    `--model photo_denoiser_conv` trains the same network with 5×5 convolutions of about the same cost.

    acda train free_photos_denoiser --data DIR
    """
    return Restoration(
        model="photo_denoiser",
        epochs=24,
        batch_size=8,
        crop=64,
        crops=8000,
        degradation="noise",
        objective="psnr",
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=1e-4,
        freeze_norm_at=0.7,
        test_every=4,
    )


RECIPES = (
    polyu_sidd_restorer,
    polyu_sidd_restorer_conv,
    polyu_sidd_restorer_relative,
    polyu_sidd_restorer_variational,
    polyu_sidd_dncnn,
    free_photos_denoiser,
)
