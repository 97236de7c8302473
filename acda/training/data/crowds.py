"""Photos with a point on every head (ShanghaiTech, UCF-QNRF or your own), and the density maps made from them."""

import csv
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acda.photos.image_files import image_size, images_in, orientation_of
from acda.training.data.mat_files import Cells, Structs, Value, read_mat

Points = np.ndarray[Any, np.dtype[np.float64]]
# With more heads outside the picture than this, the points are not of this picture.
MOST_OUTSIDE = 0.05


@dataclass(frozen=True)
class Crowd:
    """A photo and the places of its heads. points: (n, 2), x and y in pixels, within the photo"""

    file: Path
    size: tuple[int, int]
    points: Points


def read_crowds(folder: Path) -> tuple[list[Crowd], list[Crowd]]:
    """The training and the test photos of a folder in one of three layouts, all annotations read and checked.

    ShanghaiTech: {train,test}_data/images/IMG_1.jpg and ground-truth/GT_IMG_1.mat.
    UCF-QNRF: {Train,Test}/img_0001.jpg and img_0001_ann.mat.
    Your own: {train,test}/ with photos and points.csv (file, x, y; a photo without heads: its name alone) or
    points.json ({"photo.jpg": [[x, y], …], …}).
    """
    for read, (train, test) in LAYOUTS:
        if (folder / train).is_dir() and (folder / test).is_dir():
            return read(folder / train), read(folder / test)
    needed = " or ".join(f"{train} and {test}" for _, (train, test) in LAYOUTS)
    raise ValueError(f"{folder} needs the folders {needed}.")


def read_test_crowds(folder: Path) -> list[Crowd]:
    """The test photos alone; the folder may have no others."""
    for read, (_, test) in LAYOUTS:
        if (folder / test).is_dir():
            return read(folder / test)
    raise ValueError(f"{folder} needs one of the folders {', '.join(test for _, (_, test) in LAYOUTS)}.")


def _shanghaitech(folder: Path) -> list[Crowd]:
    truth = next((folder / name for name in ("ground-truth", "ground_truth") if (folder / name).is_dir()), None)
    if truth is None or not (folder / "images").is_dir():
        raise ValueError(f"{folder} needs the folders images and ground-truth.")
    return _with_points(folder / "images", lambda photo: _mat(truth / f"GT_{photo.stem}.mat", _image_info))


def _image_info(path: Path) -> Value:
    """ShanghaiTech's points: the first field of a struct in a cell, `image_info{1}(1).location`."""
    info = read_mat(path, "image_info")
    inner = info.values[0] if isinstance(info, Cells) and info.values else None
    if not isinstance(inner, Structs) or not inner.values or not inner.values[0]:
        raise ValueError("its image_info is not a struct in a cell")
    return next(iter(inner.values[0].values()))


def _ucf_qnrf(folder: Path) -> list[Crowd]:
    return _with_points(folder, lambda photo: _mat(folder / f"{photo.stem}_ann.mat", _ann_points))


def _ann_points(path: Path) -> Value:
    return read_mat(path, "annPoints")


def _own(folder: Path) -> list[Crowd]:
    table, listed = folder / "points.csv", folder / "points.json"
    if not table.exists() and not listed.exists():
        raise ValueError(f"{folder} needs points.csv (file, x, y) or points.json, with the heads of its photos.")
    points = _read_csv(table) if table.exists() else _read_json(listed)
    strangers = sorted(set(points) - {photo.name for photo in images_in(folder)})
    if strangers:
        raise ValueError(f"{folder} has points for photos that are not there: {', '.join(strangers[:5])}.")

    def of(photo: Path) -> Any:
        if photo.name not in points:
            raise ValueError(f"{photo} has no points. One without heads is listed too: without x and y.")
        if orientation_of(photo) != 1:
            raise ValueError(
                f"{photo} has an EXIF rotation, and its points may or may not be rotated: save it upright."
            )
        return points[photo.name]

    return _with_points(folder, of)


LAYOUTS: list[tuple[Callable[[Path], list[Crowd]], tuple[str, str]]] = [
    (_shanghaitech, ("train_data", "test_data")),
    (_ucf_qnrf, ("Train", "Test")),
    (_own, ("train", "test")),
]


def _read_csv(path: Path) -> dict[str, list[list[float]]]:
    try:
        rows = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path} cannot be read as CSV in UTF-8 ({error}).") from error
    points: dict[str, list[list[float]]] = {}
    for line, row in enumerate(rows, start=1):
        if not row or (line == 1 and row[0].strip().lower() == "file"):
            continue
        name, *numbers = (cell.strip() for cell in row)
        heads = points.setdefault(name, [])
        if not any(numbers):
            continue
        try:
            x, y = map(float, numbers)
        except ValueError as error:
            raise ValueError(f"{path}, line {line}: a file, x and y are needed; got {','.join(row)}.") from error
        heads.append([x, y])
    return points


def _read_json(path: Path) -> dict[str, Any]:
    try:
        points = json.loads(path.read_text(encoding="utf-8-sig"))
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as JSON ({error}).") from error
    if not isinstance(points, dict):
        raise ValueError(f'{path} needs the form {{"photo.jpg": [[x, y], …], …}}.')
    return points


def _mat(path: Path, points_in: Callable[[Path], Value]) -> Any:
    if not path.is_file():
        raise ValueError(f"{path} is missing: the heads of its photo.")
    try:
        points = points_in(path)
    except ValueError as error:
        raise ValueError(f"{path} cannot be read as an annotation: {error}.") from error
    if not isinstance(points, np.ndarray):
        raise ValueError(f"{path} cannot be read as an annotation: its points are not numbers.")
    return points


def _with_points(folder: Path, points_of: Callable[[Path], Any]) -> list[Crowd]:
    photos = images_in(folder)
    if not photos:
        raise ValueError(f"{folder} has no photos.")
    return [_checked(photo, points_of(photo)) for photo in photos]


def _checked(photo: Path, points: Any) -> Crowd:
    """Move points just outside the photo to its border, so that no head is lost; many such points are a mistake."""
    try:
        heads = np.asarray(points, dtype=np.float64) if np.size(points) else np.empty((0, 2))
    except (TypeError, ValueError) as error:
        raise ValueError(f"the points of {photo} need the form [[x, y], …].") from error
    if heads.ndim != 2 or heads.shape[1] != 2:
        raise ValueError(f"the points of {photo} need the form [[x, y], …]; got numbers in the shape {heads.shape}.")
    if not np.isfinite(heads).all():
        raise ValueError(f"the points of {photo} have values that are not numbers.")
    width, height = image_size(photo)
    within = np.clip(heads, 0, np.array([width, height]) - 1e-3)
    outside = int((np.abs(within - heads).max(1) > 1).sum())
    if outside > max(1, MOST_OUTSIDE * len(heads)):
        raise ValueError(
            f"{outside} of the {len(heads)} points of {photo} are outside its {width}×{height} pixels. "
            "Are x and y in the right order, and the points of this photo?"
        )
    return Crowd(photo, (height, width), within)


def density_map(points: Points, size: tuple[int, int], sigma: float, stride: int = 1) -> Tensor:
    """Heads per cell, as (H, W): each head is a Gaussian of one size, normalised within the map.

    points: x, y in pixels    size: of the map    stride: pixels per cell; sigma is in cells

    >>> round(float(density_map(np.array([[0.0, 0.0], [30.0, 20.0]]), (24, 32), sigma=4.0).sum()), 6)
    2.0
    """
    height, width = size
    density = np.zeros(size)
    reach = int(np.ceil(4 * sigma))
    for x, y in points / stride:
        rows = np.arange(max(0, int(y) - reach), min(height, int(y) + reach + 1))
        columns = np.arange(max(0, int(x) - reach), min(width, int(x) + reach + 1))
        down, across = (np.exp(-(((at + 0.5 - centre) / sigma) ** 2) / 2) for at, centre in ((rows, y), (columns, x)))
        density[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1] += np.outer(
            down / down.sum(), across / across.sum()
        )
    return torch.from_numpy(density)
