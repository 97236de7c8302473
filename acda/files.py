"""Files are written whole or not at all."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_room(path: Path) -> None:
    """Refuse, before any work, a place where no file can be written; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which takes its place when the block ends well and vanishes when it does not.

    >>> with tempfile.TemporaryDirectory() as folder, written_whole(Path(folder, "a.txt")) as unfinished:
    ...     _ = unfinished.write_text("complete")
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
        # mkstemp makes files that only their owner can read; the finished one gets the usual permissions.
        umask = os.umask(0)
        os.umask(umask)
        unfinished.chmod(0o666 & ~umask)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
