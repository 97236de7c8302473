"""What a layer or a network costs: parameters, multiply-adds, the memory that training keeps, time.

>>> from acda import create_model
>>> lenet = count(create_model("lenet"), (1, 3, 32, 32))
>>> lenet.parameters, lenet.multiply_adds
(62006, 658238)
"""

import copy
import statistics
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from acda.layers import AdaptiveConv2d, AtomGenerator

aten, ours = torch.ops.aten, torch.ops.acda
# Where an operator's bias is: the paper counts one addition for each output that has one.
BIAS = {aten.convolution: 2, aten.addmm: 0, aten.baddbmm: 0, ours.adaptive_conv2d: 4, ours.adaptive_conv2d_planar: 4}


@dataclass(frozen=True)
class Cost:
    """The cost of a module on an input, and of the modules within it by their dotted names.

    kind: name of the module's class
    multiply_adds: products of convolutions, matrices and acda's operators, and one for each bias added; elementwise
        operations (normalisation, activations) do not count, as is usual.
    kept_bytes: activations that training holds until the backward pass, without parameters and buffers; counted in
        eval mode, so that the masks of dropout come on top.
    layers: the same for the modules within it
    """

    kind: str
    parameters: int
    multiply_adds: int
    kept_bytes: int
    layers: dict[str, "Cost"] = field(default_factory=dict, repr=False)


def count(module: nn.Module, *shapes: tuple[int, ...]) -> Cost:
    """Count exactly, on meta tensors: nothing is computed, whatever the size.

    module: a layer or a network; it is not changed.
    shapes: one for each input, batch included.
    """
    if not shapes:
        raise ValueError("count needs the shape of each input, batch included, such as (1, 3, 224, 224).")
    meta = copy.deepcopy(module).to("meta").eval()
    dtype = next((p.dtype for p in meta.parameters() if p.is_floating_point()), torch.float32)
    inputs = [torch.empty(shape, device="meta", dtype=dtype) for shape in shapes]
    tally = _Tally(meta)
    # Each adaptive layer as it runs on a CPU, whatever its backend: the mathematics are the same.
    for part in meta.modules():
        if isinstance(part, AdaptiveConv2d):
            part.backend = "auto"
    with torch.enable_grad(), tally.watching(), tally:
        meta(*inputs)
    # The root comes first, and its name is the empty one.
    costs = {
        name: Cost(type(part).__name__, _parameters(part), tally.multiply_adds[name], tally.kept_bytes[name])
        for name, part in meta.named_modules()
    }
    whole = costs.pop("")
    return Cost(whole.kind, whole.parameters, whole.multiply_adds, whole.kept_bytes, costs)


class _Tally(TorchDispatchMode):
    """Adds up what each operation costs, for the modules that are running when it does."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.running: list[str] = []
        self.multiply_adds: Counter[str] = Counter()
        self.kept_bytes: Counter[str] = Counter()
        self.learned = {_storage(p) for p in model.parameters()}
        # Tensors share storages; each is counted once, and kept alive so that its address is not reused.
        self.known = {_storage(t): t for t in (*model.parameters(), *model.buffers())}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operator = func._overloadpacket
        number = 0
        if operator in flop_registry:
            number = flop_registry[operator](*args, **(kwargs or {}), out_val=out) // 2
            if operator in BIAS and args[BIAS[operator]] is not None:
                number += out.numel()
        elif operator is aten.add and any(self._is_bias(arg, out) for arg in args):
            number = out.numel()
        for name in set(self.running):
            self.multiply_adds[name] += number
        return out

    def _is_bias(self, operand: Any, out: Tensor) -> bool:
        """Whether this is a parameter that is spread over the result."""
        return isinstance(operand, Tensor) and operand.shape != out.shape and _storage(operand) in self.learned

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Follow which module runs, and what autograd keeps."""
        handles = []
        # Φ counts as one layer: a backend computes it without calling its parts, unless they have hooks.
        parts = {p for m in self.model.modules() if isinstance(m, AtomGenerator) for p in m.modules() if p is not m}
        for name, module in self.model.named_modules():
            if module in parts:
                continue
            handles.append(module.register_forward_pre_hook(lambda _, __, name=name: self.running.append(name)))
            handles.append(module.register_forward_hook(lambda _, __, ___: self._leave()))
        try:
            with torch.autograd.graph.saved_tensors_hooks(self._keep, lambda t: t):
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _leave(self) -> None:
        self.running.pop()

    def _keep(self, t: Tensor) -> Tensor:
        if _storage(t) not in self.known:
            self.known[_storage(t)] = t
            for name in set(self.running):
                self.kept_bytes[name] += t.untyped_storage().nbytes()
        return t


def _storage(t: Tensor) -> int:
    return t.untyped_storage()._cdata


def _parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def seconds(module: nn.Module, *shapes: tuple[int, ...], training: bool = False, rounds: int = 5) -> float:
    """Median time of one pass on the module's device: inference, or forward and backward. For comparisons in one run.

    module: it is not changed.
    shapes: one for each input, batch included.
    training: whether to run backward too.
    rounds: passes that are timed, after one that is not.
    """
    module = copy.deepcopy(module)  # training moves its statistics
    like = next(module.parameters(), torch.empty(0))
    learnt = [p for p in module.parameters() if p.requires_grad]
    # A frozen module still has to pass the gradient on to the layers before it.
    ask = training and not learnt
    inputs = [torch.randn(s, device=like.device, dtype=like.dtype, requires_grad=ask) for s in shapes]
    module.train(training)
    taken = []
    for _ in range(rounds + 1):
        begun = time.perf_counter()
        with torch.set_grad_enabled(training):
            out = module(*inputs)
        if training:
            torch.autograd.grad(out.sum(), learnt or inputs, allow_unused=True)
        if like.device.type == "cuda":
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - begun)
    return statistics.median(taken[1:])
