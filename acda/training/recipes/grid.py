"""Recipes that differ only in dataset and network: one function for each pair, with its name and documentation."""

from collections.abc import Callable
from typing import Any, TypeVar

from acda.training.recipe import Recipe, Restoration

R = TypeVar("R", bound=Recipe)


def named(
    make: Callable[[], R], name: str, first_line: str, options: str = "", measured: str | None = None
) -> Callable[[], R]:
    """make under this name, documented with its first line, its command, and what came of it where it was run."""
    make.__name__ = make.__qualname__ = name
    make.__doc__ = f"{first_line}\n\nacda train {name} --data DIR{options}"
    make.__doc__ += f"\n{measured}" if measured else ""
    return make


def restoring(model: str, **settings: Any) -> Restoration:
    """How all restorers are trained: 6,000 steps of 8 crops of 96×96."""
    return Restoration(
        model=model,
        epochs=10,
        batch_size=8,
        optimiser="adamw",
        learning_rate=1e-3,
        weight_decay=1e-4,
        freeze_norm_at=0.7,
        norm_momentum=0.02,
        test_every=5,
        **settings,
    )
