"""Which operators run."""

from torch.utils._python_dispatch import TorchDispatchMode


class Operators(TorchDispatchMode):
    """Remembers the names of the operators that ran, in order: aten::mul.Tensor, acda::conv2d."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))

    @property
    def ours(self) -> list[str]:
        return [name.removeprefix("acda::") for name in self.names if name.startswith("acda::")]
