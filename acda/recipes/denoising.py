"""Denoising of real photos: SIDD (the paper's Table 5), PolyU, both; and of one's own, with synthetic noise."""

from collections.abc import Callable
from typing import Any

from acda.recipe import Restoration
from acda.recipes.grid import named

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
    objective: Any = NETWORKS[model]

    def recipe() -> Restoration:
        return Restoration(
            model=model,
            epochs=10,
            batch_size=8,
            optimiser="adamw",
            learning_rate=5e-4,
            weight_decay=1e-4,
            objective=objective,
            **settings,
        )

    return named(recipe, f"{dataset}_{model}", f"{model} on {title}.")


RECIPES = tuple(recipe_for(dataset, model) for dataset in DATASETS for model in NETWORKS)
