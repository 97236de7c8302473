"""The side of the tiles in which a photo is processed, chosen by the free memory of the network's device."""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from acda.photos.tiles import LooksAtEverything, farthest_seen, steps_of
from acda.support.devices import free_bytes

SMALLEST = 128
# Larger tiles do not help on a CPU; a GPU is used better with them.
LARGEST = {"cpu": 1024}
LARGEST_ELSEWHERE = 2048
# Of the free memory. The rest is for scratch memory of convolutions and for other programs.
SHARE = 0.5
# Side of the image on which the memory of a network is counted.
TRIED = 128
_BYTES: WeakKeyDictionary[nn.Module, int] = WeakKeyDictionary()


def side_of_tiles(network: nn.Module, image: Tensor) -> int:
    """The largest side whose tiles, with what they need around them, fit into half of the free memory.

    image: (1, C, H, W), anywhere    returns: from 128 to 1024, or to 2048 on a GPU
    """
    device = next(network.parameters()).device
    most = LARGEST.get(device.type, LARGEST_ELSEWHERE)
    if max(image.shape[2:]) <= SMALLEST or (free := free_bytes(device)) is None:
        return most
    try:
        margin = farthest_seen(network, image.shape[1])
    except LooksAtEverything:
        margin = 0
    pixels = SHARE * free / bytes_a_pixel(network, image.shape[1])
    return max(SMALLEST, min(most, int(pixels**0.5) - 2 * margin))


def bytes_a_pixel(network: nn.Module, channels: int = 3) -> int:
    """The peak memory of tensors while the network runs, per pixel of its input. Counted once per network."""
    if network not in _BYTES:
        like, (stride, _) = next(network.parameters()), steps_of(network)
        side = -(-TRIED // stride) * stride
        with torch.no_grad(), _Alive() as alive:
            network(torch.zeros(1, channels, side, side, device=like.device, dtype=like.dtype))
        _BYTES[network] = -(-alive.most // side**2)
    return _BYTES[network]


class _Alive(TorchDispatchMode):
    """Counts the bytes of all tensors that operations return, as long as these are alive."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._sizes: dict[StorageWeakRef, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            if isinstance(t, Tensor):
                storage = t.untyped_storage()
                self._sizes[StorageWeakRef(storage)] = storage.nbytes()
        self._sizes = {ref: size for ref, size in self._sizes.items() if not ref.expired()}
        self.most = max(self.most, sum(self._sizes.values()))
        return out
