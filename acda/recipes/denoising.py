"""Denoising of real photos: SIDD (the paper's Table 5), PolyU, both; and of one's own, with synthetic noise."""

from collections.abc import Callable
from typing import Any

from acda.recipe import Restoration
from acda.recipes.grid import named, restoring

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


def recipe_for(dataset: str, arm: str) -> Callable[[], Restoration]:
    """The recipe DATASET_ARM."""
    title, settings = DATASETS[dataset]

    def recipe() -> Restoration:
        return restoring(**ARMS[arm], **settings)

    return named(recipe, f"{dataset}_{arm}", f"{arm} on {title}.")


RECIPES = tuple(recipe_for(dataset, arm) for dataset in DATASETS for arm in ARMS)
