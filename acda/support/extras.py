"""Optional dependencies: imported where they are used; an error names the extra if one is missing."""

import importlib
from types import ModuleType


def need(module: str, extra: str) -> ModuleType:
    """Import a module that an extra of this package brings, or say which extra that is.

    >>> need("json", "cli").__name__
    'json'
    """
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise ImportError(f"{module} is needed here; install it with: pip install 'acda[{extra}]'") from missing
