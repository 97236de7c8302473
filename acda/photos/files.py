"""People's own photos: found by file, folder or pattern, read upright, written whole with colour profile and EXIF."""

import glob
import io
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy import ndimage
from torch import Tensor

from acda.photos.image_files import Upright, images_in, named, open_upright
from acda.support.extras import need
from acda.support.files import written_whole

# What a photo is written as when its own format is not one of these.
FORMATS = {
    ".jpg": "JPEG",
    ".jpeg": "JPEG",
    ".png": "PNG",
    ".webp": "WEBP",
    ".tif": "TIFF",
    ".tiff": "TIFF",
    ".bmp": "BMP",
}
WITH_ALPHA = {"PNG", "WEBP", "TIFF"}
# The longest side that a format has room for, and bytes of EXIF or colour profile.
LONGEST = {"JPEG": 65500, "WEBP": 16383}
MOST_ABOUT = {"JPEG": {"exif": 65533}, "BMP": {"exif": 0, "icc_profile": 0}}
# What is read of strangers: formats that tell their size before they are decoded, and start no other program.
UPLOADED = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM")


@dataclass(frozen=True)
class Photo:
    """pixels: (1, 3, H, W) of eight bits    alpha: (1, 1, H, W), or None    about: colour profile and EXIF, as Pillow
    writes them    lost: what its file has and this has not, for people to read"""

    pixels: Tensor
    alpha: Tensor | None
    about: dict[str, bytes]
    lost: str = ""


def find_photos(names: Iterable[str], mark: str) -> list[Path]:
    """The photos that these names mean: files as they are, folders by what is in them, patterns by what they match.

    mark: of results, which are no photos where folders and patterns find them beside their originals; what is named
    itself is one, and so is not written over. What is not there, or empty, or not to be looked at, is told when it is
    its turn, and the others go on.
    """
    found: list[Path] = []
    for name in names:
        if not name:
            raise ValueError("the name of a photo is empty. Is it a variable of the shell that is not set?")
        try:
            found += _meant_by(name, mark) or [Path(name)]
        except OSError:
            found.append(Path(name))
    if not found:
        raise ValueError("which photos? Give files, folders or patterns.")
    return list(dict.fromkeys(found))


def _meant_by(name: str, mark: str) -> list[Path]:
    path = Path(name)
    if path.is_dir():
        return _originals(images_in(path), mark)
    if path.exists() or not glob.has_magic(name):
        return [path]
    matches = sorted(Path(match) for match in glob.glob(name, recursive=True))  # noqa: PTH207  any place
    return _originals([match for match in matches if not match.is_dir()], mark)


def _originals(photos: list[Path], mark: str) -> list[Path]:
    """Without those that are named as results of others."""
    results = {(photo.parent, f"{photo.stem}_{mark}") for photo in photos}
    return [photo for photo in photos if (photo.parent, photo.stem) not in results]


def each_photo(verb: str, paths: Iterable[Path], work: Callable[[Path], None]) -> int:
    """Do the work for every photo; one that cannot be done is told in a line, and the others go on.

    Returns the exit status: 1 where there was such a one.
    """
    status = 0
    for path in paths:
        try:
            work(path)
        except BrokenPipeError:
            raise  # nobody reads on
        except Exception as error:  # whatever it is, the other photos can do nothing about it
            what = str(error) or type(error).__name__
            named = what if path.name in what else f"{path}: {what}"
            print(f"acda {verb}: {named}", file=sys.stderr, flush=True)
            status = 1
    return status


def read_photo(path: Path) -> Photo:
    """Whatever Pillow reads, turned as its EXIF says."""
    return _photo(open_upright(path))


def _photo(file: Upright) -> Photo:
    about: dict[str, bytes] = {}
    if file.profile[16:20] == b"RGB ":  # another one is not of the pixels that are written
        about["icc_profile"] = file.profile
    if file.exif:
        with suppress(Exception):  # what the maker of a camera wrote there cannot always be written again
            about["exif"] = file.exif.tobytes()
    alpha = None if file.alpha is None else _tensor(np.array(file.alpha)[:, :, None])
    lost = {
        f"{file.pages} pages, of which the result has the first": file.pages > 1,
        "more than eight bits a channel, of which the result has eight": file.deeper,
        "the colours of a printer (CMYK), for which the result has RGB": file.mode == "CMYK",
        "a profile of other colours than RGB, which the result has not": file.profile and "icc_profile" not in about,
    }
    told = " and ".join(what for what, is_lost in lost.items() if is_lost)
    return Photo(_tensor(np.array(file.image)), alpha, about, told)


def read_photo_bytes(content: bytes, most_pixels: int) -> Tensor:
    """What is seen of a photo that came as bytes, (1, 3, H, W); one with more pixels is refused undecoded."""
    with (
        named("the upload", f"that is taken here ({', '.join(UPLOADED)}). Convert it"),
        need("PIL.Image", "photos").open(io.BytesIO(content), formats=UPLOADED) as image,
    ):
        width, height = image.size
    if width * height > most_pixels:
        raise ValueError(
            f"the photo has {width}×{height} pixels; at most {most_pixels / 1e6:g} million are taken. Make it smaller."
        )
    return revealed(_photo(open_upright(io.BytesIO(content), "the upload", UPLOADED)))


def _tensor(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    return torch.from_numpy(pixels.transpose(2, 0, 1).copy())[None]


def resized(x: Tensor, height: int, width: int) -> Tensor:
    """Pixels, of eight bits or floating point, at another size, bicubic as Pillow does it."""
    image_module = need("PIL.Image", "photos")
    planes = [
        np.array(image_module.fromarray(plane.numpy()).resize((width, height), image_module.Resampling.BICUBIC))
        for plane in x[0]
    ]
    return torch.from_numpy(np.stack(planes))[None]


def resized_photo(photo: Photo, height: int, width: int) -> Photo:
    """The same for a whole photo: the colours that a transparent one hides do not show at its edges."""
    if photo.alpha is None:
        return replace(photo, pixels=resized(photo.pixels, height, width))
    weight = resized(photo.alpha.float(), height, width)
    alpha = eight_bits(weight / 255)
    visible = resized(photo.pixels * photo.alpha.float(), height, width) / weight.clamp_min(1)
    pixels = torch.where(alpha > 0, eight_bits(visible / 255), resized(photo.pixels, height, width))
    return replace(photo, pixels=pixels, alpha=alpha)


def revealed(photo: Photo) -> Tensor:
    """The pixels of a photo, with the nearest colour that is seen where it is wholly transparent: what is hidden there
    is no part of the picture."""
    if photo.alpha is None or not (hidden := photo.alpha[0, 0] == 0).any() or hidden.all():
        return photo.pixels
    rows, columns = ndimage.distance_transform_edt(hidden.numpy(), return_distances=False, return_indices=True)
    return photo.pixels[:, :, torch.from_numpy(rows), torch.from_numpy(columns)]


def eight_bits(x: Tensor) -> Tensor:
    """From 0 … 1 to pixels."""
    return (x.clamp(0, 1) * 255).round().to(torch.uint8)


def format_for(path: Path, height: int, width: int) -> str:
    """The format of a file's name, in which a photo of this size can be written."""
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise ValueError(f"{path} has no suffix that photos are written with: {', '.join(FORMATS)}.")
    if max(height, width) > LONGEST.get(kind, max(height, width)):
        raise ValueError(
            f"{path} would have {width}×{height} pixels; {kind} has at most {LONGEST[kind]} a side. Try PNG."
        )
    return kind


def without_room(photo: Photo, kind: str) -> set[str]:
    """What is about the photo and more than this format can keep."""
    most = MOST_ABOUT.get(kind, {})
    return {name for name, value in photo.about.items() if len(value) > most.get(name, len(value))}


def write_photo(photo: Photo, path: Path) -> None:
    """In the format of the file's name, whole or not at all; JPEG has no transparency, and gets it on white."""
    kind = format_for(path, *photo.pixels.shape[2:])
    pixels = photo.pixels[0].permute(1, 2, 0).numpy()
    if photo.alpha is not None:
        alpha = photo.alpha[0].permute(1, 2, 0).numpy()
        if kind in WITH_ALPHA:
            pixels = np.concatenate([pixels, alpha], 2)
        else:
            share = alpha.astype(np.uint16)
            pixels = ((pixels * share + 255 * (255 - share) + 127) // 255).astype(np.uint8)
    # Colours at half the resolution, as is usual in JPEG, would undo some of what was restored.
    options: dict[str, Any] = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"quality": 95}}.get(kind, {})
    about = {name: photo.about[name] for name in photo.about.keys() - without_room(photo, kind)}
    with written_whole(path) as file:
        need("PIL.Image", "photos").fromarray(pixels).save(file, format=kind, **options, **about)


def are_several(names: list[str], found: list[Path]) -> bool:
    """Whether results need a folder: for several photos, and for what is a folder or a pattern with but one."""
    return len(found) > 1 or found != [Path(name) for name in names]


def output_path(photo: Path, out: Path | None, mark: str, several: bool) -> Path:
    """Where the result goes: beside the photo with a mark in its name, or to out, a folder where there are several."""
    suffix = photo.suffix if photo.suffix.lower() in FORMATS else ".png"
    if out is None:
        return photo.with_name(f"{photo.stem}_{mark}{suffix}")
    if several and out.suffix.lower() in FORMATS and not out.is_dir():
        raise ValueError(f"results of several photos, or of a folder, need a folder; {out} would be a file.")
    if several or out.is_dir() or not out.suffix:
        return out / f"{photo.stem}{suffix}"
    return out


class Places:
    """Files to which results go: none of the photos that were given, unless that is asked for, and none twice."""

    def __init__(self, photos: Iterable[Path], overwrite: bool = False) -> None:
        self.photos = {photo.resolve() for photo in photos}
        self.overwrite = overwrite
        self.taken: dict[Path, Path] = {}

    def take(self, to: Path, photo: Path) -> None:
        """Refuse a place that is not free for this photo's result; otherwise it is taken."""
        place = to.resolve()
        if place in self.photos and not (self.overwrite and place == photo.resolve()):
            raise ValueError(
                f"the result for {photo} would be written over {to}, one of the photos themselves. Give another place "
                "for results, or --overwrite where a photo is to be replaced by its own."
            )
        first = self.taken.setdefault(place, photo)
        if first != photo:
            raise ValueError(
                f"the result for {photo} would be written over that for {first}, which has the same name: {to}. "
                "Give them separately, each with an output of its own."
            )
