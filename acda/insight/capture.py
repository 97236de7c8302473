"""Run a model once and keep what its adaptive layers predicted, leaving the model as it was."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from acda.insight.view import LayerView
from acda.layers import AdaptiveConv2d


@dataclass(frozen=True)
class Captured:
    """The model's own output, and a view of each of its adaptive layers by name, in the order in which they ran."""

    output: Any
    layers: dict[str, LayerView]


def capture(model: nn.Module, *inputs: Any) -> Captured:
    """Run the model on these inputs, without gradients, and look at its adaptive layers.

    Wrappers (DataParallel's, DDP's, torch.compile's) are looked through, and what is compiled runs uncompiled. Running
    statistics, random numbers, modes and hooks are afterwards what they were, also when the model fails.

    >>> layer = AdaptiveConv2d(3, 8, 7, padding=3)
    >>> capture(nn.Sequential(layer, nn.ReLU()), torch.randn(1, 3, 20, 30)).layers["0"].scale_weights().shape
    torch.Size([1, 3, 20, 30])
    """
    inner = unwrapped(model)
    layers = {name: part for name, part in inner.named_modules() if isinstance(part, AdaptiveConv2d)}
    if not layers:
        raise ValueError(f"{type(inner).__name__} has no AdaptiveConv2d to look into.")
    found: dict[str, LayerView] = {}
    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(_state_kept(inner))
        for name, layer in layers.items():
            stack.callback(layer.generator.register_forward_hook(_keeper(found, name, layer)).remove)
        # Compiled code does not call hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        output = inner(*inputs)
    if not found:
        raise ValueError(f"none of the adaptive layers of {type(inner).__name__} was used: {', '.join(layers)}.")
    return Captured(output, found)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside wrappers that only pass calls on."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _keeper(found: dict[str, LayerView], name: str, layer: AdaptiveConv2d) -> Callable[..., None]:
    mine = threading.get_ident()

    def keep(_: nn.Module, inputs: tuple[Any, ...], alpha: Tensor) -> None:
        if threading.get_ident() != mine:
            return  # somebody else runs the model at the same time
        alpha = alpha.detach().unflatten(1, (layer.num_atoms, layer.num_elements))
        # A copy: what comes after may work in place. Numbers about halves need more digits than they have.
        alpha = alpha.float() if alpha.dtype in (torch.float16, torch.bfloat16) else alpha.clone()
        found[name] = LayerView(name, layer, alpha, tuple(inputs[0].shape[2:]))

    return keep


@contextmanager
def _state_kept(model: nn.Module) -> Iterator[None]:
    """What a forward pass in train mode changes is put back: running statistics, counters, random numbers."""
    training = any(part.training for part in model.modules())
    before = [(buffer, buffer.clone()) for buffer in model.buffers()] if training else []
    gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    try:
        with torch.random.fork_rng(gpus, enabled=training):
            yield
    finally:
        with torch.no_grad():
            for buffer, value in before:
                buffer.copy_(value)
