"""Whether the parts of a checkpoint have the form that a run expects; a file can be intact and still not be one."""

import math
from typing import Any

from torch import Tensor

PARTS = (
    *("epoch", "global_step", "pytorch-lightning_version", "state_dict", "loops", "callbacks"),
    *("optimizer_states", "lr_schedulers", "losses of the epoch"),
)


def check_parts(checkpoint: dict[str, Any]) -> None:
    """Refuse a checkpoint that lacks one of Lightning's parts or ours."""
    missing = [part for part in PARTS if part not in checkpoint]
    if missing:
        raise ValueError(f"it lacks {', '.join(missing)}")


def check_form(found: Any, expected: Any, where: str) -> None:
    """Refuse what has other types, lengths, shapes than expected, or counts below zero.

    Of dictionaries the common keys are compared: versions of torch and Lightning add some.

    >>> check_form({"step": "3"}, {"step": 0, "rate": 0.1}, "the loop")
    Traceback (most recent call last):
    ...
    ValueError: step of the loop needs to be a count; got str
    """
    if isinstance(expected, dict):
        _need(isinstance(found, dict), where, "parts by their names", found)
        for key in expected.keys() & found.keys():
            check_form(found[key], expected[key], f"{key} of {where}")
    elif isinstance(expected, list | tuple):
        _need(isinstance(found, list | tuple) and len(found) == len(expected), where, f"{len(expected)} values", found)
        for one, other in zip(found, expected, strict=True):
            check_form(one, other, where)
    elif isinstance(expected, Tensor):
        shape = tuple(expected.shape)
        _need(isinstance(found, Tensor) and tuple(found.shape) == shape, where, f"numbers in the shape {shape}", found)
    elif isinstance(expected, bool):
        _need(isinstance(found, bool), where, "true or false", found)
    elif isinstance(expected, int):
        _need(isinstance(found, int) and not isinstance(found, bool) and found >= 0, where, "a count", found)
    elif isinstance(expected, float):
        _need(isinstance(found, int | float) and math.isfinite(found), where, "a finite number", found)


def check_optimiser(found: Any, expected: dict[str, Any], parameters: list[Tensor]) -> None:
    """Refuse the state of an optimiser that is not one of these parameters, in their order.

    torch does not compare shapes: momentum of another shape would be broadcast, or fail in the first step.
    """
    check_form(found, {"state": {}, "param_groups": expected["param_groups"]}, "the optimiser")
    for index, state in found["state"].items():
        _need(isinstance(index, int) and index < len(parameters), "the optimiser", "states by number", index)
        _need(isinstance(state, dict), "the optimiser", "states by their names", state)
        for name, value in state.items():
            if isinstance(value, Tensor) and value.ndim:  # those without dimensions count steps
                check_form(value, parameters[index], f"{name} of the optimiser")


def _need(right: bool, where: str, what: str, found: Any) -> None:
    if not right:
        got = f"the shape {tuple(found.shape)}" if isinstance(found, Tensor) else type(found).__name__
        raise ValueError(f"{where} needs to be {what}; got {got}")
