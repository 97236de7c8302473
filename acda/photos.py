"""People's own photos: found by file, folder or pattern, and read the right way up."""

import glob
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from acda.data.image_files import images_in, open_upright


def find_photos(names: Iterable[str]) -> list[Path]:
    """The photos that these names mean: files as they are, folders by what is in them, patterns by what they match."""
    found: list[Path] = []
    for name in names:
        path = Path(name)
        if path.is_dir():
            photos = images_in(path)
            if not photos:
                raise ValueError(f"{path} has no photos.")
            found += photos
        elif path.exists() or not glob.has_magic(name):
            found.append(path)  # one that is missing is told when it is its turn, and the others go on
        else:
            matches = sorted(Path(match) for match in glob.glob(name, recursive=True))  # noqa: PTH207  any place
            if not matches:
                raise ValueError(f"no file matches {name}.")
            found += [match for match in matches if not match.is_dir()]
    return list(dict.fromkeys(found))


def read_photo(path: Path) -> Tensor:
    """(1, 3, H, W) of eight bits, turned as its EXIF says."""
    return torch.from_numpy(np.array(open_upright(path)).transpose(2, 0, 1).copy())[None]
