"""The operator and its gradient, one chunk of lines at a time.

The atoms D and z exist for one chunk only. Composing D, mixing z and the gradients of both are torch's own matrix
products. Only the arguments are kept for the backward pass, which recomputes D and z of each chunk.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from acda.backends.triton.launch import INTERPRETED, Launcher, Layout, Lines, architecture
from acda.backends.triton.tiles import tiles_for
from acda.window import Window

# Memory for D and z of one chunk. Both stay in the second-level cache of an A100 (40 MB) or an H100 (50 MB), and int32
# counts their elements.
CHUNK_BYTES = 32 * 2**20


@dataclass(frozen=True)
class _Call:
    """One call of the operator. x (B, H, W, C)    alpha (B, P, Q, M, L)    A (groups, M·C/groups, O/groups)"""

    x: Tensor
    alpha: Tensor
    bases: Tensor | None
    A: Tensor | None
    groups: int
    kernels: Launcher

    @classmethod
    def of(
        cls, x: Tensor, alpha: Tensor, bases: Tensor | None, mixing: Tensor | None, numbers: tuple[int, ...]
    ) -> "_Call":
        *_, groups = numbers
        A = None if mixing is None else _as_matrices(mixing, groups)
        return cls(x, alpha, bases, A, groups, _launcher(x, alpha, numbers))

    @property
    def channels(self) -> int:
        return self.x.shape[3]

    @property
    def atoms(self) -> int:
        return self.alpha.shape[3]

    def chunks(self, copies: int) -> Iterator[Lines]:
        """All lines, so many at a time that `copies` of D and z stay within CHUNK_BYTES."""
        (B, P, Q), side = self.alpha.shape[:3], self.kernels.window.side
        line = Q * self.atoms * (side**2 + self.channels) * self.x.element_size()
        assert line < 2**31, "a line of z has more elements than int32 counts"
        count = max(1, CHUNK_BYTES // (copies * line))
        return (Lines(first, min(first + count, B * P)) for first in range(0, B * P, count))

    def layout(self, lines: Lines) -> Layout:
        """How z and dz lie: for torch's batched product, or without mixing as the result."""
        if self.A is None:
            return Layout.by_channel(self.atoms, self.channels)
        return Layout.by_group(lines.number * self.alpha.shape[2], self.atoms, self.channels // self.groups)

    def composed(self, lines: Lines) -> Tensor:
        """D = αψ of these lines, (n·M, k²)."""
        alpha = of_lines(self.alpha, lines).flatten(0, 1)
        return alpha if self.bases is None else alpha @ self.bases.flatten(1)

    def responses(self, D: Tensor, lines: Lines) -> Tensor:
        """z of these lines, (groups, n, M·C/groups)."""
        assert self.A is not None
        z = self.x.new_empty(self.groups, lines.number * self.alpha.shape[2], self.A.shape[1])
        self.kernels.z(self.x, D, z, self.layout(lines), lines).run()
        return z


def forward(
    x: Tensor, alpha: Tensor, bases: Tensor | None, mixing: Tensor | None, bias: Tensor | None, *numbers: int
) -> Tensor:
    """As the operator acda::adaptive_conv2d: (B, P, Q, O), without mixing (B, P, Q, C·M)."""
    call = _Call.of(x, alpha, bases, mixing, numbers)
    y = x.new_empty(*alpha.shape[:3], call.channels * call.atoms if mixing is None else mixing.shape[0])
    with torch.cuda.device_of(x):
        for lines in call.chunks(copies=1):
            D, part = call.composed(lines), of_lines(y, lines)
            if call.A is None:
                call.kernels.z(x, D, part, call.layout(lines), lines).run()
            else:
                _mix(call.responses(D, lines), call.A, bias, part)
    return y


def backward(
    grad: Tensor,
    x: Tensor,
    alpha: Tensor,
    bases: Tensor | None,
    mixing: Tensor | None,
    *numbers: int,
    learn_bases: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, alpha, mixing, bias and bases; empty for operands that are None or not learned.

    Sums over several chunks are in float32, whatever the dtype of the tensors.
    """
    call = _Call.of(x, alpha, bases, mixing, numbers)
    C, M, k = call.channels, call.atoms, numbers[0]
    grad_alpha = torch.empty_like(alpha)
    grad_x = torch.zeros_like(x, dtype=torch.float32)
    grad_A = x.new_zeros((0, 0, 0) if call.A is None else call.A.shape, dtype=torch.float32)
    grad_bases = x.new_zeros((alpha.shape[4] if learn_bases else 0), k * k, dtype=torch.float32)
    with torch.cuda.device_of(x):
        for lines in call.chunks(copies=2):
            D, dz = call.composed(lines), of_lines(grad, lines)
            if call.A is not None:
                dz = _unmix(call, D, dz, lines, grad_A)
            call.kernels.dx(D, dz, grad_x, call.layout(lines), lines).run()
            _decompose(call, dz, lines, of_lines(grad_alpha, lines), grad_bases)
    return (
        grad_x.to(x.dtype),
        grad_alpha,
        x.new_empty(0, C // call.groups, M) if mixing is None else _as_mixing(grad_A, M).to(x.dtype),
        x.new_empty(0) if mixing is None else grad.sum((0, 1, 2)),
        grad_bases.unflatten(1, (k, k)).to(x.dtype),
    )


def _mix(z: Tensor, A: Tensor, bias: Tensor | None, y: Tensor) -> None:
    """Write z·A + bias into y, (n, O)."""
    if len(A) == 1 and bias is not None:
        torch.addmm(bias, z[0], A[0], out=y)
    elif len(A) == 1:
        torch.mm(z[0], A[0], out=y)
    else:
        y.copy_((z @ A).transpose(0, 1).flatten(1))
        if bias is not None:
            y += bias


def _unmix(call: _Call, D: Tensor, grad: Tensor, lines: Lines, grad_A: Tensor) -> Tensor:
    """dz = grad·Aᵀ, laid out as z; adds zᵀ·grad to grad_A."""
    assert call.A is not None
    dy = grad.unflatten(1, (call.groups, -1)).transpose(0, 1)
    grad_A += call.responses(D, lines).transpose(1, 2) @ dy
    return dy @ call.A.transpose(1, 2)


def _decompose(call: _Call, dz: Tensor, lines: Lines, grad_alpha: Tensor, grad_bases: Tensor) -> None:
    """Write dα = dD·ψᵀ into grad_alpha; adds αᵀ·dD to grad_bases unless it is empty. Without bases dα is dD."""
    bases, layout = call.bases, call.layout(lines)
    if bases is None:
        call.kernels.dD(call.x, dz, grad_alpha, layout, lines).run()
        return
    dD = dz.new_empty(len(grad_alpha) * call.atoms, bases[0].numel())
    call.kernels.dD(call.x, dz, dD, layout, lines).run()
    torch.mm(dD, bases.flatten(1).t(), out=grad_alpha.flatten(0, 1))
    if len(grad_bases):
        grad_bases += of_lines(call.alpha, lines).flatten(0, 1).t() @ dD


def of_lines(t: Tensor, lines: Lines) -> Tensor:
    """The pixels of these lines of (B, P, Q, …), as a view (n, …): chunks need no copies."""
    return t.flatten(0, 1)[lines.first : lines.last].flatten(0, 1)


def _as_matrices(mixing: Tensor, groups: int) -> Tensor:
    """(O, C/groups, M) → (groups, M·C/groups, O/groups), for z with its channels innermost."""
    return mixing.unflatten(0, (groups, -1)).permute(0, 3, 2, 1).flatten(1, 2).contiguous()


def _as_mixing(A: Tensor, atoms: int) -> Tensor:
    """The inverse of _as_matrices."""
    return A.unflatten(1, (atoms, -1)).permute(0, 3, 2, 1).flatten(0, 1).contiguous()


def _launcher(x: Tensor, alpha: Tensor, numbers: tuple[int, ...]) -> Launcher:
    k, sy, sx, py, px, dy, dx, _ = numbers
    B, H, W, C = x.shape
    way = precision(x)
    return Launcher(
        Window(k, (sy, sx), (py, px), (dy, dx)),
        (B, H, W, C),
        (alpha.shape[1], alpha.shape[2]),
        alpha.shape[3],
        tiles_for(architecture(x.device), way),
        "ieee" if way == "half" else way,
    )


def precision(x: Tensor) -> str:
    """How to multiply: "half", or for float32 what torch's switch for convolutions says.

    Without TF32, three TF32 products come near float32 on NVIDIA's tensor cores; AMD's have float32 itself.
    """
    if x.dtype != torch.float32:
        return "half"
    convolutions = torch.backends.cudnn.conv.fp32_precision  # type: ignore[attr-defined]
    if convolutions == "tf32" and _has_tf32(x.device):
        return "tf32"
    return "ieee" if torch.version.hip else "tf32x3"


def _has_tf32(device: torch.device) -> bool:
    if INTERPRETED or not torch.version.hip:
        return True
    return str(torch.cuda.get_device_properties(device).gcnArchName).startswith("gfx942")
