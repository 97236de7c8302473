"""Fine-tune the atoms of a trained network: a few hundred numbers per layer, in a file of a few kilobytes.

After *Large Convolutional Model Tuning via Filter Subspace* (Chen, Miao, Qiu, ICLR 2025). The page "Tune the atoms" of
the documentation says what differs.

>>> import torch, acda
>>> from torch import nn
>>> model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1)).eval()
>>> tuned = acda.tune.decompose(model)
>>> sum(p.numel() for p in tuned.parameters() if p.requires_grad)
162
>>> x = torch.randn(1, 3, 16, 16)
>>> torch.allclose(tuned(x), model(x), atol=1e-5)
True
>>> [type(part).__name__ for part in acda.tune.merge(tuned)]
['Conv2d', 'ReLU', 'Conv2d']
"""

import copy
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from acda.layers import AtomConv2d
from acda.layers.adaptive_conv import FIRST_KERNEL, HIDDEN, AdaptiveConv2d
from acda.layers.imitation import start_from
from acda.photos.weights import read_weights, write_weights
from acda.swapping import Made, Names, put, select, swap, tell

__all__ = ["adapt", "atoms", "decompose", "load_atoms", "merge", "save_atoms"]

# The kind of file, in its metadata.
FORMAT = "acda.tune"
# Norms that differ by less belong to the same filters, in whatever dtype; bases that differ by less span the same.
SAME_NORM, SAME_SPAN = 1e-2, 1e-3


def decompose(
    model: nn.Module,
    num_atoms: int | None = 9,
    names: Names = "*",
    *,
    atoms_per_atom: int = 1,
    trainable: str | Iterable[str] = (),
    inplace: bool = False,
) -> nn.Module:
    """The model with its Conv2d layers as frozen mixing times trainable atoms (acda.layers.AtomConv2d).

    num_atoms: of each layer. 9 is exact for 3×3; None takes as many as each layer needs, 25 for 5×5.
    names: which layers, as in acda.convert.
    atoms_per_atom: above 1, the overcomplete variant: each input channel blends its atoms from so many others.
    trainable: patterns of the names of further parameters that stay trainable, such as "head.*". All others are frozen.
    inplace: change the model itself; unless given, a copy is changed and returned.

    1×1 convolutions have a single tap and stay as they are. One ConversionWarning says which layers stay, why, and how
    near the others start. Its attribute `report` has the figure of every layer.

    >>> model = nn.Sequential(nn.Conv2d(3, 16, 5), nn.Flatten(), nn.Linear(64, 10))
    >>> tuned = decompose(model, num_atoms=None, trainable="2.*")
    >>> [name for name, p in tuned.named_parameters() if p.requires_grad]
    ['0.atoms', '2.weight', '2.bias']
    """
    chosen = select(model, names)
    if inplace and "" in chosen:
        raise ValueError("the model itself is a Conv2d, which cannot be swapped in place; use inplace=False.")

    def make(conv: nn.Conv2d) -> Made | str:
        if conv.kernel_size == (1, 1):
            return "it is 1×1, and its filters have a single tap"
        layer = AtomConv2d(conv, num_atoms, atoms_per_atom)
        return layer, layer.relative_error

    kept = _matching("parameter", dict(model.named_parameters()), trainable)
    model, report, count = swap(model if inplace else copy.deepcopy(model), chosen, make)
    tell(report, count, "acda.tune.decompose", "num_atoms=None")
    model.requires_grad_(False)
    for layer in _layers(model).values():
        layer.atoms.requires_grad_()
        if layer.blend is not None:
            layer.blend.requires_grad_()
    for name, parameter in model.named_parameters():
        if name in kept:
            parameter.requires_grad_()
    return model


def atoms(model: nn.Module, also: str | Iterable[str] = ()) -> dict[str, Tensor]:
    """What tuning has changed: a small state dict, for load_atoms.

    also: patterns of further names of the model's state dict, such as "head.*", or "*.running_*" where the statistics
        of batch normalisation moved too.
    It has the atoms of every layer, those that it started with, and a norm that tells one base model from another.
    """
    state = model.state_dict()
    found = {name: state[name] for name in _matching("tensor", state, also)}
    for name, layer in _layers(model).items():
        found |= {_join(name, part): t for part, t in _parts(layer).items()}
    return {name: t.detach().clone() for name, t in found.items()}


def save_atoms(model: nn.Module, path: str | Path, also: str | Iterable[str] = ()) -> None:
    """Write `atoms(model, also)` as safetensors, whole or not at all. It needs the extra `photos`.

    path: of the file, which ends with .safetensors    also: as in atoms
    """
    from acda import __version__

    if Path(path).suffix != ".safetensors":
        raise ValueError(f"path needs to end with .safetensors; got {path}.")
    write_weights(Path(path), atoms(model, also), {"format": FORMAT, "acda": __version__})


def load_atoms(model: nn.Module, source: str | Path | Mapping[str, Tensor]) -> None:
    """Put tuned atoms into a model that was decomposed in the same way; a mismatch is refused before anything changes.

    source: a file of save_atoms, or what atoms returned

    The singular vectors behind a decomposition differ between machines by signs and rotations. Where they do, the
    model's mixing is expressed in those of the file first, which changes nothing of what it computes.
    """
    origin = "these atoms" if isinstance(source, Mapping) else str(source)
    given = dict(source) if isinstance(source, Mapping) else _read(Path(source))
    layers, state = _layers(model), model.state_dict()
    wanted = {_join(name, part): t for name, layer in layers.items() for part, t in _parts(layer).items()}
    if missing := sorted(wanted.keys() - given.keys()):
        raise ValueError(f"{origin} lacks {_some(missing)}. Was the model decomposed with the same names and options?")
    if unknown := sorted(given.keys() - wanted.keys() - state.keys()):
        raise ValueError(f"{origin} has {_some(unknown)}, which the model lacks. Decompose the same layers of it.")
    for name, t in given.items():
        own = wanted[name] if name in wanted else state[name]
        if own.shape != t.shape:
            raise ValueError(f"{origin}: {name} needs {tuple(own.shape)} for this model; got {tuple(t.shape)}.")
    changes = {name: _change(layer, given, name, origin) for name, layer in layers.items()}
    with torch.no_grad():
        for name, layer in layers.items():
            if (rotation := changes[name]) is not None:
                layer.mixing.copy_((layer.mixing.double() @ rotation.to(layer.mixing.device)).to(layer.mixing))
        for name in given.keys() & state.keys():
            state[name].copy_(given[name])


def merge(model: nn.Module, *, inplace: bool = False) -> nn.Module:
    """The model with ordinary Conv2d layers in the place of those with atoms; its output is the same, bit for bit.

    inplace: change the model itself; unless given, a copy is changed and returned.
    """
    return _replaced(_own(model, inplace), AtomConv2d.to_conv2d)


def adapt(
    model: nn.Module, *, inplace: bool = False, hidden: int = HIDDEN, first_kernel: int = FIRST_KERNEL
) -> nn.Module:
    """The model with AdaptiveConv2d layers whose Φ takes over from the static atoms, starting as the same function.

    Φ is trainable where the atoms were, and the mixing stays frozen. The atoms become the bases that Φ blends; where
    they are as many as a filter has taps, or more, its taps do.
    hidden, first_kernel: of Φ, as in AdaptiveConv2d. Φ has many more parameters than the atoms; hidden=8 limits them.
    inplace: change the model itself; unless given, a copy is changed and returned.

    Layers with a kernel that is not square or not odd become ordinary convolutions; a ConversionWarning names them.
    """
    model = _own(model, inplace)
    bases: dict[int, Tensor | None] = {}
    names = list(_layers(model, shared=True))

    def merged(layer: AtomConv2d) -> nn.Conv2d:
        conv, static = layer.to_conv2d(), layer.atoms.detach().flatten(0, -3)
        bases[id(conv)] = static if len(static) < static[0].numel() else None
        return conv

    def make(conv: nn.Conv2d) -> Made:
        options: dict[str, Any] = {
            "num_bases": 6,
            "bases": bases[id(conv)],
            "hidden": hidden,
            "first_kernel": first_kernel,
        }
        layer, error = start_from(AdaptiveConv2d, conv, exact=True, **options)
        layer.mixing.requires_grad_(False)
        return layer, error

    model, report, count = swap(_replaced(model, merged), names, make)
    tell(report, count, "acda.tune.adapt", "float32")
    return model


def _layers(model: nn.Module, shared: bool = False) -> dict[str, AtomConv2d]:
    """The layers with atoms by name; shared: one that is used in several places by each of its names."""
    found = {
        name: part for name, part in model.named_modules(remove_duplicate=not shared) if isinstance(part, AtomConv2d)
    }
    if not found:
        raise ValueError("the model has no layer with atoms; call acda.tune.decompose first.")
    return found


def _own(model: nn.Module, inplace: bool) -> nn.Module:
    """The model to change: itself or a copy."""
    if inplace and isinstance(model, AtomConv2d):
        raise ValueError("the model itself is a layer with atoms, which cannot be swapped in place; use inplace=False.")
    return model if inplace else copy.deepcopy(model)


def _replaced(model: nn.Module, make: Callable[[AtomConv2d], nn.Module]) -> nn.Module:
    """The same model with other layers in the place of those with atoms; shared ones stay shared."""
    made: dict[int, nn.Module] = {}
    for name, layer in _layers(model, shared=True).items():
        if id(layer) not in made:
            made[id(layer)] = make(layer)
        model = put(model, name, made[id(layer)])
    return model


def _parts(layer: AtomConv2d) -> dict[str, Tensor]:
    """The names of a layer's tensors in a file."""
    blend = {} if layer.blend is None else {"blend": layer.blend}
    return {"atoms": layer.atoms, "start": layer.start, "norm": layer.mixing.float().norm(), **blend}


def _change(layer: AtomConv2d, given: dict[str, Tensor], name: str, origin: str) -> Tensor | None:
    """From the model's starting atoms to the file's, (M, M) on the CPU; None where they are the same."""
    norm, wanted = (float(t) for t in (given[_join(name, "norm")], layer.mixing.detach().float().norm()))
    if abs(norm - wanted) > SAME_NORM * wanted:
        raise ValueError(
            f"{origin} is for another base model: the mixing of {name or 'the layer'} has the norm {wanted:.5g}, and "
            f"{norm:.5g} there. Decompose the model that it was tuned on."
        )
    own, theirs = (t.detach().cpu().double().flatten(1) for t in (layer.start, given[_join(name, "start")]))
    if torch.equal(own, theirs):
        return None
    change = own @ theirs.T
    if float((change @ change.T - torch.eye(len(own), dtype=torch.float64)).abs().max()) > SAME_SPAN:
        raise ValueError(
            f"{origin} is for another base model: the starting atoms of {name or 'the layer'} do not span the same "
            "filters. Decompose the model that it was tuned on."
        )
    return change


def _read(path: Path) -> dict[str, Tensor]:
    if path.suffix != ".safetensors":
        raise ValueError(f"source needs to be a file of save_atoms, which ends with .safetensors; got {path}.")
    tensors, facts = read_weights(path)
    if facts.get("format") != FORMAT:
        raise ValueError(f"{path} was not written by acda.tune.save_atoms.")
    return tensors


def _matching(kind: str, known: Mapping[str, object], patterns: str | Iterable[str]) -> set[str]:
    """Names that one of these patterns means; a pattern that means none is an error."""
    found: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        if not (meant := {name for name in known if fnmatchcase(name, pattern)}):
            raise ValueError(f"the model has no {kind} whose name is like {pattern!r}; it has {_some(list(known))}.")
        found |= meant
    return found


def _join(name: str, part: str) -> str:
    return f"{name}.{part}" if name else part


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more
