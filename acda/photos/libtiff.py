"""Messages of libtiff, kept for the thread that decodes, so that they can be reported with the name of the file.

Pillow leaves them to libtiff, which writes them to the process's standard error, without a name.
"""

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from acda.support.extras import need

# void handler(const char *module, const char *format, va_list arguments). A va_list reaches a function as a pointer.
HANDLER = ctypes.CFUNCTYPE(None, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p)
LONGEST = 200
# The file name that Pillow gives to libtiff.
PILLOWS_NAME = b"tempfile.tif"
_kept = threading.local()


@contextmanager
def messages_kept() -> Iterator[list[str]]:
    """What libtiff reports in this thread while the block runs; the list fills as it does."""
    _listen()
    before, _kept.messages = getattr(_kept, "messages", None), []
    try:
        yield _kept.messages
    finally:
        _kept.messages = before


@cache
def _listen() -> Any:
    """Register a handler with libtiff, once per process; returns the objects that have to stay alive for it.

    Where Pillow was built without libtiff, or hides it, nothing changes.
    """
    try:
        library = ctypes.CDLL(need("PIL._imaging", "photos").__file__)
        set_handler = library.TIFFSetErrorHandler
    except (OSError, AttributeError):
        return None
    handler = HANDLER(_receive)
    set_handler.argtypes, set_handler.restype = [HANDLER], ctypes.c_void_p
    set_handler(handler)
    return handler


def _receive(module: bytes | None, form: bytes, arguments: int) -> None:
    buffer = ctypes.create_string_buffer(LONGEST)
    ctypes.pythonapi.PyOS_vsnprintf(buffer, ctypes.c_size_t(LONGEST), ctypes.c_char_p(form), ctypes.c_void_p(arguments))
    parts = (module, buffer.value)
    message = ": ".join(part.decode(errors="replace") for part in parts if part and part != PILLOWS_NAME)
    messages: list[str] | None = getattr(_kept, "messages", None)
    if messages is None:  # from a file that is decoded elsewhere
        print(message, file=sys.stderr)
    elif len(messages) < 100:
        messages.append(message)
