"""What the server has looked at: the last few photos, each with the coefficients of a network's adaptive layers."""

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache

import torch

from acda.insight.subject import Look, find_subject, look_inside
from acda.insight.view import LayerView
from acda.support.extras import need

need("fastapi", "explore")
from fastapi import HTTPException  # noqa: E402  after need, which names the extra

# Looks that can still be asked about: so many, and so many bytes of coefficients, but always the newest.
KEPT, KEPT_BYTES = 6, 1_000_000_000
# One photo, network or map at a time: two at once would need twice the memory.
WORKING = threading.Lock()

subject_named = lru_cache(maxsize=4)(find_subject)


class Kept:
    """A look, and the maps of its layers, which are computed once each."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.bytes = sum(view.alpha.nbytes for view in look.captured.layers.values())
        self._maps: dict[str, tuple[torch.Tensor, torch.Tensor]] = {}

    def maps(self, layer: str) -> tuple[LayerView, torch.Tensor, torch.Tensor]:
        """A layer with its scale weights (S, P, Q) and receptive fields (P, Q)."""
        if layer not in self.look.captured.layers:
            raise HTTPException(404, f"there is no adaptive layer {layer!r}.")
        view = self.look.captured.layers[layer]
        if layer not in self._maps:  # computed already: there is no need to wait
            with WORKING:
                self._maps[layer] = (view.scale_weights()[0], view.receptive_field()[0])
        return view, *self._maps[layer]


class Looks:
    """The last few looks by names that nobody can guess."""

    def __init__(self, device: str) -> None:
        self._device, self._lock = device, threading.Lock()
        self._looks: OrderedDict[str, Kept] = OrderedDict()

    def add(self, name: str, read: Callable[[], torch.Tensor]) -> tuple[str, Look]:
        """Look at the photo that `read` returns with the network of this name; returns the look's own name too."""
        with WORKING:
            kept = Kept(look_inside(subject_named(name, self._device), read()))
        with self._lock:
            key = secrets.token_urlsafe(8)
            self._looks[key] = kept
            while len(self._looks) > 1 and (len(self._looks) > KEPT or self._total() > KEPT_BYTES):
                self._looks.popitem(last=False)
        return key, kept.look

    def _total(self) -> int:
        return sum(kept.bytes for kept in self._looks.values())

    def find(self, key: str) -> Kept:
        """The look of this name, which becomes the most recently used."""
        with self._lock:
            if key not in self._looks:
                raise HTTPException(410, "this look is gone; open the photo again.")
            self._looks.move_to_end(key)
            return self._looks[key]
