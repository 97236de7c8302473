"""Run a model once and keep what its adaptive layers predicted, leaving the model as it was."""

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from acda.insight.view import LayerView
from acda.layers import AdaptiveConv2d


@dataclass(frozen=True)
class Captured:
    """The model's own output, and a view of each of its adaptive layers by name, in the order in which they ran.

    Of a layer that ran more than once, the last time.
    """

    output: Any
    layers: dict[str, LayerView]


def capture(model: nn.Module, *inputs: Any) -> Captured:
    """Run the model on these inputs, without gradients, and look at its adaptive layers.

    Wrappers (DataParallel, DDP, torch.compile) are removed, and compiled modules run uncompiled. Running statistics,
    random numbers, modes and hooks are restored afterwards, also when the model fails.

    >>> layer = AdaptiveConv2d(3, 8, 7, padding=3)
    >>> capture(nn.Sequential(layer, nn.ReLU()), torch.randn(1, 3, 20, 30)).layers["0"].scale_weights().shape
    torch.Size([1, 3, 20, 30])
    """
    inner = unwrapped(model)
    layers = {name: part for name, part in inner.named_modules() if isinstance(part, AdaptiveConv2d)}
    if not layers:
        raise ValueError(f"{type(inner).__name__} has no AdaptiveConv2d to look into.")
    keeper = _Keeper(_seen_share(inner, inputs))
    with ExitStack() as stack, torch.no_grad():
        stack.enter_context(_state_kept(inner))
        for name, layer in layers.items():
            for handle in keeper.listen(name, layer):
                stack.callback(handle.remove)
        # Compiled code does not call hooks that came after it.
        stack.enter_context(torch.compiler.set_stance("force_eager"))
        output = inner(*inputs)
    if not keeper.found:
        raise ValueError(f"none of the adaptive layers of {type(inner).__name__} was used: {', '.join(layers)}.")
    return Captured(output, keeper.found)


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside wrappers that only pass calls on."""
    while True:
        inner = getattr(model, "_orig_mod", None)
        if inner is None and isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            inner = model.module
        if not isinstance(inner, nn.Module):
            return model
        model = inner


def _seen_share(model: nn.Module, inputs: tuple[Any, ...]) -> tuple[float, ...]:
    """The share of the layers' image that is the input: networks made for tiles extend it to whole strides."""
    image, stride = (inputs[0] if inputs else None), getattr(model, "stride", None)
    if not isinstance(stride, int) or not hasattr(model, "cell"):
        return 1.0, 1.0
    if not isinstance(image, Tensor) or image.ndim != 4:
        return 1.0, 1.0
    return tuple(size / (-(-size // stride) * stride) for size in image.shape[2:])


class _Keeper:
    """Keeps what Φ predicts for the layer that runs, in the thread that asked: others may run the model as well."""

    def __init__(self, seen_share: tuple[float, ...]) -> None:
        self.found: dict[str, LayerView] = {}
        self._seen_share, self._thread = seen_share, threading.get_ident()
        self._running: list[str] = []

    def listen(self, name: str, layer: AdaptiveConv2d) -> Iterator[RemovableHandle]:
        """Hooks on the layer and on its Φ, which several layers may share."""

        def enter(*_: Any) -> None:
            if threading.get_ident() == self._thread:
                self._running.append(name)

        def leave(*_: Any) -> None:
            if threading.get_ident() == self._thread:
                self._running.pop()

        def keep(_: nn.Module, inputs: tuple[Any, ...], alpha: Tensor) -> None:
            if threading.get_ident() != self._thread or self._running[-1:] != [name]:
                return
            alpha = alpha.detach().unflatten(1, (layer.num_atoms, layer.num_elements))
            # A copy, because later operations may work in place; in float32, because half precision has too few digits.
            kept = alpha.to("cpu", torch.promote_types(alpha.dtype, torch.float32), copy=True)
            self.found[name] = LayerView(name, layer, kept, tuple(inputs[0].shape[2:]), self._seen_share)

        yield layer.register_forward_pre_hook(enter)
        yield layer.register_forward_hook(leave, always_call=True)
        yield layer.generator.register_forward_hook(keep)


@contextmanager
def _state_kept(model: nn.Module) -> Iterator[None]:
    """What a forward pass in train mode changes is put back: running statistics, counters, random numbers."""
    training = any(part.training for part in model.modules())
    owned = ((part, name, t) for part in model.modules() for name, t in part._buffers.items() if t is not None)
    before = [(part, name, buffer, buffer.clone()) for part, name, buffer in owned] if training else []
    gpus = sorted({p.device.index for p in model.parameters() if p.is_cuda})
    try:
        with torch.random.fork_rng(gpus, enabled=training):
            yield
    finally:
        with torch.no_grad():
            for part, name, buffer, value in before:
                part._buffers[name] = buffer.copy_(value)  # some models put another tensor in its place
