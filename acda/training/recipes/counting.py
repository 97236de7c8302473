"""Crowd counting: ShanghaiTech A and B, UCF-QNRF (the paper's Table 3), each with six networks."""

from collections.abc import Callable
from typing import Any

from acda.models.crowd_counter import CROWD_COUNTERS
from acda.training.recipe import Counting
from acda.training.recipes.grid import named

# Photos of UCF-QNRF are several times as large, and so are its heads.
DATASETS: dict[str, tuple[str, dict[str, Any]]] = {
    "shanghaitech_a": ("ShanghaiTech A", {}),
    "shanghaitech_b": ("ShanghaiTech B", {}),
    "ucf_qnrf": ("UCF-QNRF", {"crop": 512, "sigma": 16.0}),
}
# What came of the recipes that were run, on one core of an AMD EPYC.
MEASURED = {
    "shanghaitech_a_crowd_counter_s": "Some 1.5 hours; MAE 122.8, root MSE 195.6 (the paper: 57.9, 91.3).",
    "shanghaitech_a_crowd_counter_s_conv": "Some 1.4 hours; MAE 127.8, root MSE 200.9 (the paper: 67.7, 110.1).",
}


def recipe_for(dataset: str, model: str) -> Callable[[], Counting]:
    """The recipe DATASET_MODEL."""
    title, settings = DATASETS[dataset]

    def recipe() -> Counting:
        return Counting(
            model=model,
            epochs=24,
            batch_size=6,
            optimiser="adamw",
            learning_rate=5e-4,
            weight_decay=1e-2,
            freeze_norm_at=0.7,
            norm_momentum=0.02,
            warmup_steps=50,
            test_every=12,
            **settings,
        )

    begun = f"{model} on {title}, best begun with its classifier's weights."
    name = f"{dataset}_{model}"
    return named(recipe, name, begun, " --initial RUN/weights.safetensors", MEASURED.get(name))


RECIPES = tuple(recipe_for(dataset, model) for dataset in DATASETS for model in CROWD_COUNTERS)
