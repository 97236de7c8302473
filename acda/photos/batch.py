"""Many photos: find them, choose where the results go, and continue when one of them fails."""

import glob
import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from acda.photos.files import FORMATS
from acda.photos.image_files import images_in
from acda.support.lines import complain
from acda.support.names import Missing


def find_photos(names: Iterable[str], mark: str) -> list[Path]:
    """The photos that these names stand for: files, the photos in folders, and the files that patterns match.

    mark: the end of the names of results. Folders and patterns skip results that are beside their originals; a file
    that is named itself counts as a photo and is not overwritten. A file that is missing, empty or unreadable is
    reported when its turn comes, and the others are processed.
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
        raise Missing("which photos? Give files, folders or patterns.")
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
    results = {(photo.parent, f"{photo.stem}{mark}") for photo in photos} if mark else set()
    return [photo for photo in photos if (photo.parent, photo.stem) not in results]


def each_photo(verb: str, paths: Iterable[Path], work: Callable[[Path], None], jobs: int = 1) -> int:
    """Do the work for every photo; one that fails is reported in one line and skipped.

    jobs: photos at a time    returns: the exit status, 1 if one failed
    """
    if jobs < 1:
        raise ValueError(f"jobs needs to be at least 1; got {jobs}.")

    def done(path: Path) -> bool:
        try:
            work(path)
        except BrokenPipeError:
            raise  # the reader has closed the pipe
        except Exception as error:  # whatever it is, the other photos are processed
            complain(verb, _reason(path, error))
            return False
        return True

    if jobs == 1:
        return int(False in [done(path) for path in paths])
    with ThreadPoolExecutor(jobs) as pool:  # torch and Pillow compute without Python's lock
        try:
            return int(False in list(pool.map(done, paths)))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _reason(path: Path, error: Exception) -> str:
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or "can't allocate memory" in str(error):
        return f"{path} does not fit into the free memory. Try a smaller --tile."
    what = str(error) or type(error).__name__
    return what if path.name in what else f"{path}: {what}"


def are_several(names: list[str], found: list[Path]) -> bool:
    """Whether results need a folder: for several photos, and for any folder or pattern."""
    return len(found) > 1 or found != [Path(name) for name in names]


def output_path(
    photo: Path, out: Path | None, mark: str, several: bool, suffix: str | None = None, form: str | None = None
) -> Path:
    """Where the result goes: beside the photo with a mark in its name, or to out, a folder where there are several.

    suffix: at the end of the name in both cases, in place of the mark    form: of the file, such as "png"
    """
    kind = f".{form}" if form else photo.suffix if photo.suffix.lower() in FORMATS else ".png"
    if out is None:
        return photo.with_name(f"{photo.stem}{mark if suffix is None else suffix}{kind}")
    if several and out.suffix.lower() in FORMATS and not out.is_dir():
        raise ValueError(f"results of several photos, or of a folder, need a folder; {out} would be a file.")
    if several or out.is_dir() or not out.suffix:
        return out / f"{photo.stem}{suffix or ''}{kind}"
    if form is not None and FORMATS.get(out.suffix.lower()) != FORMATS[kind]:
        raise ValueError(f"--format {form} and --out {out} contradict each other. Give one of them.")
    return out


def check_naming(suffix: str | None, form: str | None) -> None:
    """Refuse names of results that would lead elsewhere, and formats that no photo is written in."""
    if suffix is not None and (Path(f"a{suffix}").name != f"a{suffix}" or "\0" in suffix):
        raise ValueError(f"--suffix needs to be the end of a file's name, such as _clean; got {suffix!r}.")
    if form is not None and f".{form}" not in FORMATS:
        raise ValueError(f"--format needs one of {', '.join(kind[1:] for kind in FORMATS)}; got {form!r}.")


def real(path: Path) -> Path:
    """The file behind all links. Path.resolve() raises where links lead in a circle; this does not."""
    return Path(os.path.realpath(path))


class Places:
    """The files of results: none is one of the given photos, unless that is asked for, and none is used twice."""

    def __init__(self, photos: Iterable[Path], overwrite: bool = False) -> None:
        self.photos = {real(photo) for photo in photos}
        self.overwrite = overwrite
        self.taken: dict[Path, Path] = {}
        self.one_at_a_time = threading.Lock()

    def take(self, to: Path, photo: Path) -> None:
        """Reserve a path for the result of a photo; refuse one that is not free."""
        place = real(to)
        if place.is_symlink():  # where links lead in a circle, there is no file behind them
            raise ValueError(f"{to} is a link that leads back to itself. Give another place.")
        if place in self.photos and not (self.overwrite and place == real(photo)):
            raise ValueError(
                f"the result for {photo} would be written over {to}, one of the photos themselves. Give another place "
                "for results, or --overwrite where a photo is to be replaced by its own."
            )
        with self.one_at_a_time:
            first = self.taken.setdefault(place, photo)
        if first != photo:
            raise ValueError(
                f"the result for {photo} would be written over that for {first}, which has the same name: {to}. "
                "Give them separately, each with its own output."
            )
