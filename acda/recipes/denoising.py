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
# Networks, and what they are trained with.
NETWORKS = {
    "dncnn": "mse",
    "restorer_conv": "mse",
    "restorer": "mse",
    "restorer_variational": "variational",
    "vdnet": "variational",
}


def recipe_for(dataset: str, model: str) -> Callable[[], Restoration]:
    """The recipe DATASET_MODEL."""
    title, settings = DATASETS[dataset]

    def recipe() -> Restoration:
        return restoring(model, objective=NETWORKS[model], **settings)

    return named(recipe, f"{dataset}_{model}", f"{model} on {title}.")


RECIPES = tuple(recipe_for(dataset, model) for dataset in DATASETS for model in NETWORKS)
