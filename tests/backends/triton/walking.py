"""A backward pass by hand. Autograd's engine needs a GPU driver even for fake tensors; its nodes do not."""

from collections import Counter, defaultdict
from typing import Any

import torch
from torch import Tensor


def backward(loss: Tensor) -> list[str]:
    """As loss.backward(): call the nodes of the graph in topological order, and set `.grad`. Returns their names."""
    root = loss.grad_fn
    waiting = _consumers(root)
    arriving: dict[Any, dict[int, Tensor]] = defaultdict(dict)
    arriving[root][0] = torch.ones_like(loss)
    ready, names = [root], []
    while ready:
        node = ready.pop()
        names.append(node.name())
        grads = _called(node, arriving.pop(node, {}))
        for (following, slot), grad in zip(node.next_functions, grads, strict=False):
            if following is None:
                continue
            if grad is not None:
                before = arriving[following].get(slot)
                arriving[following][slot] = grad if before is None else before + grad
            waiting[following] -= 1
            if not waiting[following]:
                ready.append(following)
    return names


def _called(node: Any, arriving: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    if hasattr(node, "variable"):
        (grad,) = arriving.values()
        assert (grad.dtype, grad.device) == (node.variable.dtype, node.variable.device)
        # The engine too sums what was broadcast, such as a linear layer's bias.
        node.variable.grad = grad.sum_to_size(node.variable.shape).detach()
        return ()
    arguments = [arriving.get(slot) for slot in range(max(arriving) + 1)]
    grads = node(*arguments) if callable(node) else node.apply(*arguments)
    grads = grads if isinstance(grads, tuple) else (grads,)
    if callable(node):
        return grads
    # A function written in Python has gradients for all its arguments, and edges for those that are tensors.
    wanted = iter([grad for grad, needed in zip(grads, node.needs_input_grad, strict=True) if needed])
    return tuple(None if following is None else next(wanted) for following, _ in node.next_functions)


def _consumers(root: Any) -> Counter[Any]:
    """How many edges lead to each node."""
    counts: Counter[Any] = Counter()
    stack, seen = [root], {root}
    while stack:
        for following, _ in stack.pop().next_functions:
            if following is not None:
                counts[following] += 1
                if following not in seen:
                    seen.add(following)
                    stack.append(following)
    return counts
