"""AtomConv2d: an ordinary convolution whose filters are a fixed mixture of a few trainable atoms."""

from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from acda.decompose import decompose_filters
from acda.layers.conv_like import check_counts
from acda.layers.imitation import why_not_conv2d


class AtomConv2d(nn.Module):
    """A trained convolution as frozen `mixing` times trainable `atoms`, the same at every pixel: K = mixing · atoms.

    It starts as the convolution, or as near to it as its atoms allow (`relative_error`). Only the atoms are trainable.
    mixing: (O, C/groups, M)    atoms: (M, k, k), of unit norm at the start    start: the atoms that it began with

    conv: needs to be exactly an nn.Conv2d; any kernel size, stride, padding mode, dilation and groups.
    num_atoms: M, at most as many as a filter has taps; None takes as many as the start needs to be exact.
    atoms_per_atom: N. Above 1, every input channel blends its atoms from N others, atoms (M, N, k, k) with the
        trainable `blend` (C, M, N), of which the first is the atom itself at the start.

    >>> conv = nn.Conv2d(64, 128, 3, padding=1)
    >>> layer = AtomConv2d(conv, num_atoms=9)
    >>> sum(p.numel() for p in layer.parameters() if p.requires_grad)
    81
    >>> x = torch.randn(1, 64, 8, 8)
    >>> torch.allclose(layer(x), conv(x), atol=1e-5)
    True
    """

    bias: nn.Parameter | None
    blend: nn.Parameter | None
    start: Tensor

    def __init__(self, conv: nn.Conv2d, num_atoms: int | None = 9, atoms_per_atom: int = 1) -> None:
        super().__init__()
        if reason := why_not_conv2d(conv):
            raise TypeError(f"atoms cannot take the place of this module's filters: {reason}.")
        check_counts(atoms_per_atom=atoms_per_atom)
        if conv.weight.is_meta:
            raise ValueError("its weight is on the meta device and has no numbers; load the trained weights first")
        self.in_channels, self.out_channels, self.kernel_size = conv.in_channels, conv.out_channels, conv.kernel_size
        self.stride, self.padding, self.dilation = conv.stride, conv.padding, conv.dilation
        self.groups, self.padding_mode = conv.groups, conv.padding_mode
        found = decompose_filters(conv.weight, None, num_atoms)
        start = found.coefficients.unflatten(1, conv.weight.shape[2:]).to(conv.weight)
        self.register_buffer("start", start)
        self.mixing = nn.Parameter(found.mixing.to(conv.weight), requires_grad=False)
        self.atoms = nn.Parameter(start.clone())
        bias = None if conv.bias is None else nn.Parameter(conv.bias.detach().clone(), requires_grad=False)
        self.register_parameter("bias", bias)
        self.register_parameter("blend", None)
        if atoms_per_atom > 1:
            self._begin_overcomplete(atoms_per_atom)
        self.relative_error = self._distance(conv.weight)
        self.train(conv.training)

    def _begin_overcomplete(self, many: int) -> None:
        """The first of the N is the atom, the others are zero; random numbers in the blend make them differ later."""
        blend = torch.randn(self.in_channels, len(self.start), many).to(self.start)
        blend[..., 0] = 1
        others = torch.zeros_like(self.start)[:, None].expand(-1, many - 1, -1, -1)
        self.blend = nn.Parameter(blend)
        self.atoms = nn.Parameter(torch.cat([self.start[:, None], others], dim=1))

    @torch.no_grad()
    def _distance(self, weight: Tensor) -> float:
        own, given = (t.detach().cpu().double() for t in (self.weight, weight))
        return float(torch.linalg.norm(own - given) / torch.linalg.norm(given).clamp_min(1e-300))

    def forward(self, x: Tensor) -> Tensor:
        padding: str | tuple[int, ...] = self.padding
        if self.padding_mode != "zeros":
            x, padding = F.pad(x, self._margins(), mode=self.padding_mode), (0, 0)
        return F.conv2d(x, self.weight, self.bias, self.stride, padding, self.dilation, self.groups)

    @property
    def weight(self) -> Tensor:
        """The filters that the atoms make now, as nn.Conv2d has them: (O, C/groups, k, k). Setting it is refused."""
        if self.blend is None:
            return torch.einsum("ocm,mij->ocij", self.mixing, self.atoms)
        own = torch.einsum("cmn,mnij->cmij", self.blend, self.atoms)
        # A group's filters see the channels of that group, and so their atoms.
        mixing, own = (t.unflatten(0, (self.groups, -1)) for t in (self.mixing, own))
        return torch.einsum("gocm,gcmij->gocij", mixing, own).flatten(0, 1)

    @torch.no_grad()
    def to_conv2d(self) -> nn.Conv2d:
        """The ordinary convolution that computes the same, bit for bit; trainable where the atoms and the bias are."""
        conv = nn.Conv2d(
            self.in_channels,
            self.out_channels,
            cast(tuple[int, int], self.kernel_size),
            cast(tuple[int, int], self.stride),
            cast(str | tuple[int, int], self.padding),
            cast(tuple[int, int], self.dilation),
            self.groups,
            self.bias is not None,
            self.padding_mode,
            self.mixing.device,
            self.mixing.dtype,
        )
        conv.weight.copy_(self.weight).requires_grad_(self.atoms.requires_grad)
        if self.bias is not None and conv.bias is not None:
            conv.bias.copy_(self.bias).requires_grad_(self.bias.requires_grad)
        return conv.train(self.training)

    def _margins(self) -> list[int]:
        """What F.pad adds at the left, right, top and bottom; "same" adds the odd one at the end, as in nn.Conv2d."""
        if isinstance(self.padding, str):
            spans = [
                d * (k - 1) * (self.padding == "same") for k, d in zip(self.kernel_size, self.dilation, strict=True)
            ]
            margins = [(span // 2, span - span // 2) for span in spans]
        else:
            margins = [(p, p) for p in self.padding]
        return [*margins[1], *margins[0]]

    def extra_repr(self) -> str:
        many = "" if self.blend is None else f", atoms_per_atom={self.blend.shape[2]}"
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}, "
            f"padding={self.padding}, dilation={self.dilation}, groups={self.groups}, bias={self.bias is not None}, "
            f"padding_mode={self.padding_mode!r}, num_atoms={len(self.start)}{many}"
        )
