"""Denoising of real photos: SIDD (the paper's Table 5), PolyU, both; and of one's own, with synthetic noise."""

from collections.abc import Callable
from typing import Any

from acda.training.recipe import Restoration
from acda.training.recipes.grid import named, restoring

DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "sidd": ("SIDD", {}),
    "polyu": ("PolyU", {}),
    "polyu_sidd": ("PolyU and SIDD, a folder that has both", {}),
    "synthetic": ("clean photos of your own, with synthetic noise", {"noise": 0.2}),
}
# Networks, and how they are trained. Those of super-resolution begin otherwise here: see Trunk.
FOR_NOISE = {"options": {"blind_to_smooth": 1}}
ARMS: dict[str, dict[str, Any]] = {
    "dncnn": {"model": "dncnn"},
    "restorer_conv": {"model": "restorer_conv", **FOR_NOISE},
    "restorer": {"model": "restorer", **FOR_NOISE},
    "restorer_relative": {"model": "restorer", "objective": "relative_mse", **FOR_NOISE},
    "restorer_variational": {"model": "restorer_variational", "objective": "variational"},
    "vdnet": {"model": "vdnet", "objective": "variational"},
}

# What came of the recipes that were run: PSNR on each set's test photos.
MEASURED = {
    "polyu_sidd_dncnn": "37.54 dB on PolyU, 33.93 on SIDD, reduced to 256×256; four times restorer's multiply-adds.",
    "polyu_sidd_restorer_conv": "37.15 dB on PolyU, 33.51 on SIDD, reduced to 256×256.",
    "polyu_sidd_restorer": "37.19 dB on PolyU, 33.79 on SIDD, reduced to 256×256 (noisy: 35.69, 30.67).",
    "polyu_sidd_restorer_relative": "37.65 dB on PolyU, 32.47 on SIDD, reduced to 256×256.",
    "polyu_sidd_restorer_variational": "37.08 dB on PolyU, 33.76 on SIDD, reduced to 256×256; 2 hours on two cores.",
}


def recipe_for(dataset: str, arm: str) -> Callable[[], Restoration]:
    """The recipe DATASET_ARM."""
    title, settings = DATASETS[dataset]

    def recipe() -> Restoration:
        return restoring(**ARMS[arm], **settings)

    name = f"{dataset}_{arm}"
    return named(recipe, name, f"{arm} on {title}.", measured=MEASURED.get(name))


RECIPES = tuple(recipe_for(dataset, arm) for dataset in DATASETS for arm in ARMS)
