"""A lock on a folder that is released when its process ends, however that ends."""

import errno
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

NAME = ".lock"
# On Windows a locked part cannot be read by others: the lock lies far beyond the text that says who holds it.
FAR = 1 << 30
_held: set[BinaryIO] = set()


@contextmanager
def locked(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder for the length of the block, or refuse and say who holds it. what: for messages, "a training".

    The system releases the lock when the process ends. The file stays: removing it would let two processes hold locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / NAME
    with path.open("a+b") as file:
        try:
            _lock(file)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES, errno.EDEADLK):
                print(f"{folder} cannot be locked ({error}). Start nothing else there.", file=sys.stderr)
            else:
                raise ValueError(_refusal(folder, what)) from error
        file.truncate(0)
        file.write(f"{os.getpid()} {socket.gethostname()} {time.strftime('%Y-%m-%d %H:%M:%S')}\n".encode())
        file.flush()
        _held.add(file)
        try:
            yield
        finally:
            _held.discard(file)


def _refusal(folder: Path, what: str) -> str:
    holder = (folder / NAME).read_text(errors="replace")[:200].split(maxsplit=2)
    by = "" if len(holder) < 3 else f": process {holder[0]} on {holder[1]}, since {holder[2].strip()}"
    return f"{folder} is in use by {what}{by}. Wait for its end, stop it, or choose another folder."


def _lock(file: BinaryIO) -> None:
    """Without waiting: OSError where another holds it."""
    if sys.platform == "win32":
        import msvcrt

        file.seek(FAR)
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        file.seek(0)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _let_go() -> None:
    """In a forked process, such as one that reads images: it would hold the lock as long as it runs."""
    for file in _held:
        os.close(file.fileno())
    _held.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
