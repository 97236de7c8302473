"""A recipe: all that decides the result of a training run, as one value."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What every recipe has; a task adds what it needs. A variant is dataclasses.replace(recipe, …)."""

    model: str
    """name of the network, as in acda.create_model"""
    epochs: int
    """passes over the training set"""
    data: Path = Path("data")
    """folder of the dataset"""
    batch_size: int = 128
    """images a step, in each process"""
    optimiser: Literal["sgd", "adamw"] = "sgd"
    """SGD with Nesterov momentum 0.9, or AdamW"""
    learning_rate: float = 0.05
    """at its highest: it rises over the warm-up, then falls along a cosine to zero"""
    weight_decay: float = 5e-4
    """on all parameters with more than one dimension"""
    warmup_steps: int = 200
    """steps until the learning rate is at its highest"""
    frozen_norm: bool = False
    """batch normalisation with its running statistics, in training too"""
    seed: int = 0
    """of the initial weights, the order of the images and their augmentation"""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} needs to be at least 1; got {getattr(self, name)}.")
        if not self.learning_rate > 0:
            raise ValueError(f"learning_rate needs to be positive; got {self.learning_rate}.")

    def to_json(self) -> str:
        """As text that from_json reads back."""
        values = {k: str(v) if isinstance(v, Path) else v for k, v in dataclasses.asdict(self).items()}
        return json.dumps({"task": type(self).__name__, **values}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The recipe that to_json wrote; anything else is refused."""
        values: dict[str, Any] = json.loads(text)
        if values.pop("task", None) != cls.__name__:
            raise ValueError(f"this is not a recipe of the task {cls.__name__}.")
        known = {field.name for field in dataclasses.fields(cls)}
        if set(values) - known:
            raise ValueError(f"the recipe has settings that this version does not know: {sorted(set(values) - known)}.")
        return cls(**{**values, "data": Path(values["data"])})
