"""Super-resolution of real photos: RealSR at three scales (the paper's Table 4), City100; each with six networks."""

from collections.abc import Callable
from typing import Any

from acda.models.restorer import RESTORERS
from acda.training.recipe import Restoration
from acda.training.recipes.grid import named, restoring

DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "realsr_x2": ("RealSR ×2", {"scale": 2}),
    "realsr_x3": ("RealSR ×3", {"scale": 3}),
    "realsr_x4": ("RealSR ×4", {"scale": 4}),
    "city100": ("City100", {}),
}

# What came of the recipes that were run on the iPhone's photos, on one core of an AMD EPYC, two at once.
MEASURED = {
    "city100_restorer": "Some 2.3 hours; 25.92 dB, SSIM 0.7446 (the input: 24.60, 0.690).",
    "city100_restorer_conv": "Some 2.2 hours; 25.89 dB, SSIM 0.7437.",
    "city100_restorer_conv_small": "Some 2.6 hours; 25.90 dB, SSIM 0.7441.",
    "city100_kpn": "Some 2.5 hours; 25.89 dB, SSIM 0.7419.",
    "city100_lp_kpn": "Some 2.7 hours; 25.85 dB, SSIM 0.7441.",
}


def recipe_for(dataset: str, model: str) -> Callable[[], Restoration]:
    """The recipe DATASET_MODEL."""
    title, settings = DATASETS[dataset]

    def recipe() -> Restoration:
        return restoring(model, channels="y", **settings)

    name = f"{dataset}_{model}"
    return named(recipe, name, f"{model} on {title}.", measured=MEASURED.get(name))


RECIPES = tuple(recipe_for(dataset, model) for dataset in DATASETS for model in RESTORERS)
