"""Files are written whole or not at all."""

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def check_room(path: Path) -> None:
    """Refuse, before any work, a path where no file can be written; make its folder."""
    if path.is_dir():
        raise ValueError(f"{path} is a folder, and the result would be a file of that name. Give another place.")
    if path.parent.exists() and not path.parent.is_dir():
        raise ValueError(f"{path.parent} is a file, and not a folder for results. Give another place.")
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=path.parent):
        pass


@contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces it when the block succeeds and is removed when it fails.

    It gets the permissions of the file that it replaces. Where `path` is a link, the file behind it is replaced.

    >>> with tempfile.TemporaryDirectory() as folder, written_whole(Path(folder, "a.txt")) as unfinished:
    ...     _ = unfinished.write_text("complete")
    """
    path = path.resolve() if path.is_symlink() else path
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.stem}-", suffix=path.suffix)
    os.close(handle)
    unfinished = Path(name)
    try:
        yield unfinished
    except OSError as error:
        if error.filename is None and error.errno is not None:  # the error of a full disk does not name the file
            error.filename = str(path)
        raise
    else:
        # mkstemp makes files that only their owner can read.
        unfinished.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def remove_unfinished(*paths: Path) -> None:
    """Remove what written_whole left beside these paths when its process was killed."""
    for path in paths:
        left = re.compile(rf"\.{re.escape(path.stem)}-[a-z0-9_]{{8}}{re.escape(path.suffix)}")  # as mkstemp names them
        for file in path.parent.iterdir() if path.parent.is_dir() else ():
            if left.fullmatch(file.name) and file.is_file() and not file.is_symlink():
                file.unlink(missing_ok=True)


def _umask() -> int:
    """The umask, which can only be read by setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
