"""What all layers with Conv2d's arguments have in common: their geometry, and the checks of arguments and input."""

import torch.nn.functional as F
from torch import Tensor, nn

from acda.checks import check_alike, check_groups, check_input
from acda.window import Pair, Window, kernel_side, whole

PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class ConvLike(nn.Module):
    """Keeps Conv2d's arguments, checks them as Conv2d does, and has its attributes."""

    bias: nn.Parameter | None

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Pair,
        stride: Pair = 1,
        padding: Pair | str = 0,
        dilation: Pair = 1,
        groups: int = 1,
        padding_mode: str = "zeros",
    ) -> None:
        super().__init__()
        check_counts(in_channels=in_channels, out_channels=out_channels)
        check_groups(in_channels, out_channels, groups)
        check_padding_mode(padding_mode)
        self.window = Window.of(kernel_side(kernel_size), stride, padding, dilation)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.groups, self.padding_mode = groups, padding_mode

    # Read-only: the parameters of a layer were made for this geometry.
    @property
    def kernel_size(self) -> tuple[int, int]:
        return self.window.side, self.window.side

    @property
    def stride(self) -> tuple[int, int]:
        return self.window.stride

    @property
    def padding(self) -> tuple[int, int]:
        return self.window.padding

    @property
    def dilation(self) -> tuple[int, int]:
        return self.window.dilation

    def check(self, x: Tensor, parameter: Tensor) -> None:
        """An image batch with the layer's channels, on the layer's device and of its dtype."""
        check_input(x)
        if x.shape[1] != self.in_channels:
            raise ValueError(
                f"the input needs {self.in_channels} channels in (B, C, H, W); got {x.shape[1]} in {tuple(x.shape)}."
            )
        check_alike(x, **{"the layer": parameter})

    def extended(self, x: Tensor) -> tuple[Tensor, Window]:
        """The input with its padding where that is not zeros, and the window that is left to apply to it."""
        if self.padding_mode == "zeros" or not any(self.window.padding):
            return x, self.window
        return self.padded(x), self.window.unpadded()

    def padded(self, x: Tensor) -> Tensor:
        """The input with all its padding."""
        (py, px) = self.window.padding
        return F.pad(x, (px, px, py, py), mode="constant" if self.padding_mode == "zeros" else self.padding_mode)

    def biased(self, y: Tensor) -> Tensor:
        """A result with the layer's bias, where it has one."""
        return y if self.bias is None else y + self.bias.to(y.dtype)[:, None, None]

    def extra_repr(self) -> str:
        parts = [
            f"{self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}",
            f"stride={self.stride}",
        ]
        parts += [f"padding={self.padding}"] if any(self.padding) else []
        parts += [f"dilation={self.dilation}"] if self.dilation != (1, 1) else []
        parts += [f"groups={self.groups}"] if self.groups != 1 else []
        parts += ["bias=False"] if getattr(self, "bias", None) is None else []
        parts += [f"padding_mode={self.padding_mode}"] if self.padding_mode != "zeros" else []
        return ", ".join(parts)


def check_counts(**counts: int) -> None:
    """Positive whole numbers."""
    for name, given in counts.items():
        count = whole(given)
        if isinstance(count, bool) or not isinstance(count, int):
            raise TypeError(f"{name} needs an int; got {count!r}.")
        if count < 1:
            raise ValueError(f"{name} needs to be at least 1; got {count}.")


def check_padding_mode(padding_mode: str) -> None:
    """One of Conv2d's."""
    if padding_mode not in PADDING_MODES:
        raise ValueError(f"padding_mode needs one of {', '.join(PADDING_MODES)}; got {padding_mode!r}.")


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of the module runs more than its forward."""
    hooks = module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks
    return any(hooks)
