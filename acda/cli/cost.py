"""acda cost: what a network costs, whole or layer by layer."""

import importlib
import sys
from pathlib import Path
from typing import Annotated, Any

import torch
from torch import nn

from acda import cost as counting
from acda.cli.arguments import Count, arg
from acda.models import MODELS, create_model
from acda.support.names import unknown


def cost(
    model: Annotated[str, arg(metavar="MODEL")],
    /,
    input: Annotated[str, arg(metavar="C,H,W")] = "3,224,224",
    batch: Count = 1,
    num_classes: Annotated[int | None, arg(metavar="N", help_behavior_hint="(optional)")] = None,
    layers: bool = False,
    time: bool = False,
) -> None:
    """Print parameters, multiply-adds and the memory that training keeps; nothing is run except with --time.

    Args:
        model: a network of acda or timm; or module:name of your own, a network or a function that makes one.
        input: channels, height and width.
        batch: images at a time.
        num_classes: outputs of the last layer; the network's own number unless given.
        layers: one line for each layer, too.
        time: run it here, and print the median of five inferences and five training steps.
    """
    shape = (_positive("--batch", str(batch)), *(_positive("--input", part) for part in input.split(",")))
    if len(shape) != 4:
        raise ValueError(f"--input needs channels, height and width, such as 3,224,224; got {input!r}.")
    network = find_model(model, **({} if num_classes is None else {"num_classes": num_classes}))
    try:
        counted = counting.count(network, shape)
    except RuntimeError as error:
        raise ValueError(f"{model} does not take an input of {input}: {str(error).splitlines()[0]}") from error
    print(f"{model}, input {' × '.join(map(str, shape))}\n")
    print(f"{'':<34} {'kind':<20} {'parameters':>12} {'multiply-adds':>16} {'kept to train':>14}")
    rows = [("whole network", counted)]
    if layers:
        rows += [(name, part) for name, part in counted.layers.items() if _is_a_layer(name, counted)]
    for name, part in rows:
        kept = f"{part.kept_bytes / 2**20:,.1f} MB"
        print(f"{name:<34} {part.kind:<20} {part.parameters:>12,} {part.multiply_adds:>16,} {kept:>14}")
    if time:
        for mode, training in (("inference", False), ("training step", True)):
            taken = counting.seconds(network, shape, training=training)
            print(f"{mode}: {1e3 * taken:,.1f} ms, {torch.get_num_threads()} threads")


def find_model(name: str, **options: Any) -> nn.Module:
    """One of acda's networks, of timm's, or one to import."""
    if name in MODELS:
        return create_model(name, **options)
    if ":" in name:
        return import_model(name, **options)
    try:
        import timm
    except ImportError:
        return create_model(name, **options)  # its error lists the near matches
    if not timm.is_model(name):
        raise unknown("model", name, [*MODELS, *timm.list_models()], f"acda has: {', '.join(MODELS)}.")
    return timm.create_model(name, pretrained=False, **options)


def import_model(name: str, **options: Any) -> nn.Module:
    """The network that `module:name` means: an nn.Module, or what is called without arguments and returns one."""
    place, _, attribute = name.partition(":")
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(place)
        for part in attribute.split("."):
            found = getattr(found, part)
        made = found if isinstance(found, nn.Module) or not callable(found) else found(**options)
    except (Exception, SystemExit) as error:  # the imported code may raise anything
        what = f"{type(error).__name__}: {error}".splitlines()[0]
        raise ValueError(
            f"{name} cannot be made ({what}). It needs to be module:function or module:network."
        ) from error
    finally:
        sys.path.remove(here)
    if not isinstance(made, nn.Module):
        raise ValueError(f"{name} needs to be a torch.nn.Module or to return one; got {type(made).__name__}.")
    return made


def _is_a_layer(name: str, counted: counting.Cost) -> bool:
    """Whether a module has no parts, or is an adaptive layer, which is shown as one."""
    inside = any(other.startswith(name + ".") for other in counted.layers)
    within_adaptive = any(
        name.startswith(other + ".") and part.kind.endswith("Conv2d") for other, part in counted.layers.items()
    )
    part = counted.layers[name]
    whole = part.kind.endswith("Conv2d") or not inside
    return whole and not within_adaptive and bool(part.parameters or part.multiply_adds)


def _positive(option: str, text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise ValueError(f"{option} needs whole numbers of at least 1; got {text!r}.")
    return int(text)
