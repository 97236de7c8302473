"""Names that users type: the error for a wrong one suggests similar ones."""

import difflib
from collections.abc import Iterable


class Missing(ValueError):
    """An argument was not given, and nothing can be done without it."""


def unknown(kind: str, name: str, known: Iterable[str], otherwise: str | None = None) -> ValueError:
    """The error for a name that is not among the known ones. otherwise: the hint if none is similar.

    >>> print(unknown("model", "lenet_adca", ["lenet", "lenet_acda"]))
    there is no model 'lenet_adca'. Did you mean lenet_acda or lenet?
    >>> print(unknown("verb", "zzz", ["train", "cost"]))
    there is no verb 'zzz'. There are: train, cost.
    """
    known = list(known)
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f"Did you mean {' or '.join(near)}?" if near else otherwise or f"There are: {', '.join(known)}."
    return ValueError(f"there is no {kind} {name!r}. {hint}")
