"""What the CPU kernel is compiled from. setup.py runs this file too, before anything can be imported."""

import hashlib
from pathlib import Path

FOLDER = Path("acda", "backends", "csrc")


def files_in(folder: Path) -> list[Path]:
    """All C++ files of the kernel, in a fixed order."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".cpp", ".h", ".inc"))


def digest_of(folder: Path) -> int:
    """A number that identifies the sources. The kernel contains that of the sources it was compiled from."""
    together = b"".join(path.read_bytes() for path in files_in(folder))
    return int(hashlib.sha256(together).hexdigest()[:15], 16)
