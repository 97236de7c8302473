"""The packaged networks beside what people already have: OpenCV's non-local means, wavelets, BM3D; bicubic, Lanczos.

    pip install '.[alternatives]'
    python -m paper.alternatives --denoise NOISY CLEAN     # two folders of photos with equal names
    python -m paper.alternatives --upscale CLEAN           # a folder of sharp photos, which are made smaller first
    python -m paper.alternatives --data DIR                # the project's own tables: results/alternatives.json and
                                                           # results/upscaling.json

--only names the methods to run, --sets the sets of noisy photos (set14_25, polyu, …). Figures of other methods that the
results file has are kept; --bm3d adds BM3D, which takes a minute for each photo.

Each method runs at its defaults and, where it has a strength, at the best one for each photo, which a person does not
know: judged by the clean photo. BM3D is told the true σ of white noise. Its licence (PyPI's bm3d) allows research only.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from acda.photos.image_files import images_in, read_rgb
from acda.photos.weights import load
from acda.support.extras import need
from acda.training.data.pairs import read_clean, read_pairs
from acda.training.metrics import luma, psnr
from paper.enlargement import batch
from paper.results import Row, path_of, read, result, write

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
# A noisy photo, the clean one, and σ of its noise on a scale of 0–255 where that is known.
Pair = tuple[Pixels, Pixels, float | None]
Method = Callable[[Pixels, float | None], Pixels]
SIGMAS = (10, 25, 50)
SCALES = (2, 3, 4)
# Computed anew whenever this runs.
OURS = ("denoiser",)
# Strengths among which the best is looked for.
NLM_STRENGTHS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
WAVELET_SIGMAS = (2, 4, 6, 9, 13, 18, 25, 35, 50)
BM3D_SIGMAS = (2, 4, 7, 11, 16)


def nlm(photo: Pixels, strength: float) -> Pixels:
    """OpenCV's non-local means for colours; 3 is its default strength."""
    cv2 = need("cv2", "alternatives")
    return np.asarray(cv2.fastNlMeansDenoisingColored(photo, None, strength, strength), np.uint8)


def wavelets(photo: Pixels, sigma: float | None) -> Pixels:
    """scikit-image's BayesShrink in YCbCr; without σ it estimates it."""
    restoration = need("skimage.restoration", "alternatives")
    unit = None if sigma is None else sigma / 255
    return _levels(
        restoration.denoise_wavelet(photo / 255.0, sigma=unit, channel_axis=-1, convert2ycbcr=True, rescale_sigma=True)
    )


def bm3d(photo: Pixels, sigma: float) -> Pixels:
    return _levels(need("bm3d", "alternatives").bm3d_rgb(photo / 255.0, sigma / 255))


def _levels(photo: Any) -> Pixels:
    return np.asarray((np.clip(photo, 0, 1) * 255).round(), np.uint8)


def _at(method: Callable[[Pixels, float], Pixels], strength: float) -> Method:
    return lambda photo, sigma: method(photo, strength)


def denoisers() -> dict[str, list[Method]]:
    """Every method as the settings among which the best counts for a photo; a single one where it has no choice."""
    ours, before = load("denoiser"), load("camera_denoiser")
    return {
        "input": [lambda photo, sigma: photo],
        "denoiser": [lambda photo, sigma: ours(photo)],
        "camera_denoiser": [lambda photo, sigma: before(photo)],
        "nlm": [lambda photo, sigma: nlm(photo, 3)],
        "nlm_best": [_at(nlm, strength) for strength in NLM_STRENGTHS],
        "wavelets": [lambda photo, sigma: wavelets(photo, None)],
        # Its own estimate is one of the choices.
        "wavelets_best": [lambda photo, sigma: wavelets(photo, None), *(_at(wavelets, s) for s in WAVELET_SIGMAS)],
    }


def bm3d_for(pairs: list[Pair]) -> dict[str, list[Method]]:
    """Told the true σ where the noise is white, and elsewhere at its best σ."""
    if pairs[0][2] is not None:
        return {"bm3d": [lambda photo, sigma: bm3d(photo, sigma or 1)]}
    return {"bm3d_best": [_at(bm3d, sigma) for sigma in BM3D_SIGMAS]}


def compare(name: str, settings: list[Method], pairs: list[Pair], dataset: str) -> list[Row]:
    """Mean PSNR of a method over the photos, with that of each, and the largest shift of a channel's mean, 0–255."""
    started, values, shifts = time.perf_counter(), [], []
    for photo, clean, sigma in pairs:
        results = [setting(photo, sigma) for setting in settings]
        scores = [psnr_of(restored, clean) for restored in results]
        values.append(max(scores))
        best = results[scores.index(max(scores))]
        shifts.append(float(np.abs(best.mean((0, 1)) - clean.mean((0, 1))).max()))
    each = [round(value, 2) for value in values]
    mean, seconds = round(statistics.mean(values), 2), time.perf_counter() - started
    print(f"{dataset:>18} {name:>16} {mean:6.2f} dB  {seconds:6.1f} s", flush=True)
    return [
        result("alternatives", dataset, name, "psnr", mean, photos=len(pairs), each=each),
        result("alternatives", dataset, name, "colour_shift", round(max(shifts), 2)),
    ]


def psnr_of(photo: Pixels, clean: Pixels) -> float:
    # Equal photos have no PSNR in JSON; 99 dB is more than any other pair of uint8 can have.
    return min(99.0, float(psnr(batch(photo), batch(clean))))


def white_noise(photos: Iterable[Pixels], sigma: float) -> list[Pair]:
    random = np.random.default_rng(0)
    return [
        (_levels((p + sigma * random.standard_normal(p.shape)) / 255) if sigma else p, p, sigma or None) for p in photos
    ]


def noisy_sets(data: Path) -> Iterator[tuple[str, list[Pair]]]:
    """White noise and none on Set14 and held-out photos; the real noise of PolyU's and SIDD's test cameras."""
    for name, photos in sharp_sets(data).items():
        if name == "set5":
            continue
        for sigma in SIGMAS:
            yield f"{name}_{sigma}", white_noise(photos, sigma)
        yield f"{name}_clean", white_noise(photos, 0)
    for name, folder in (("polyu", "polyu/CroppedImages"), ("sidd_256", "sidd_small_256")):
        yield name, [(read_rgb(p.degraded), read_rgb(p.clean), None) for p in read_pairs(data / folder)[1]]


def sharp_sets(data: Path) -> dict[str, list[Pixels]]:
    return {
        "set5": [read_rgb(path) for path in sorted((data / "set5").glob("*.png"))],
        "set14": [read_rgb(path) for path in sorted((data / "set14").glob("*.png"))],
        "free_photos": [middle(read_rgb(path), 384) for path in read_clean(data / "free_photos")[1]],
    }


def own_tables(data: Path, with_bm3d: bool, only: list[str] | None, sets: list[str] | None) -> None:
    """Add what the results file lacks, and our own figures anew."""
    rows: list[Row] = read("alternatives")["rows"]
    for dataset, pairs in noisy_sets(data):
        if sets and dataset not in sets:
            continue
        methods = denoisers() | (bm3d_for(pairs) if with_bm3d else {})
        if dataset.endswith("_clean"):
            methods = {name: methods[name] for name in OURS}
        for name, settings in methods.items():
            if only and name not in only:
                continue
            path = path_of(result("alternatives", dataset, name, "psnr", 0))
            if name in OURS or path not in {path_of(row) for row in rows}:
                found = compare(name, settings, pairs, dataset)
                rows = [row for row in rows if path_of(row) not in {path_of(new) for new in found}] + found
                write("alternatives", rows, budget="the packaged denoisers; no other method is trained", seed=0)


def middle(photo: Pixels, side: int) -> Pixels:
    top, left = ((length - side) // 2 for length in photo.shape[:2])
    return photo[top : top + side, left : left + side]


def upscalers() -> dict[str, Callable[[Image.Image, int], Image.Image]]:
    """Ways to enlarge a photo by a whole number."""

    def resized(method: Image.Resampling) -> Callable[[Image.Image, int], Image.Image]:
        return lambda photo, times: photo.resize((photo.width * times, photo.height * times), method)

    ours = load("upscaler")
    return {
        "bicubic": resized(Image.Resampling.BICUBIC),
        "lanczos": resized(Image.Resampling.LANCZOS),
        "upscaler": lambda photo, times: ours(photo, scale=times),
    }


def compare_upscaling(photos: list[Pixels], times: int, dataset: str) -> list[Row]:
    """Mean PSNR on Y of each way, with that of each photo; a border as wide as the scale is left out, as is usual."""
    each: dict[str, list[float]] = {}
    for photo in photos:
        height, width = (length - length % times for length in photo.shape[:2])
        whole = photo[:height, :width]
        small = Image.fromarray(whole).resize((width // times, height // times), Image.Resampling.BICUBIC)
        inside = (..., slice(times, -times), slice(times, -times))
        for name, enlarge in upscalers().items():
            found, clean = (luma(batch(np.asarray(p)))[inside] for p in (enlarge(small, times), whole))
            each.setdefault(name, []).append(float(psnr(found, clean)))
    for name, values in each.items():
        print(f"{dataset:>18} {name:>16} {statistics.mean(values):6.2f} dB", flush=True)
    return [
        result(
            "upscaling",
            dataset,
            name,
            "psnr_y",
            round(statistics.mean(values), 2),
            photos=len(values),
            each=[round(value, 2) for value in values],
        )
        for name, values in each.items()
    ]


def own_upscaling(data: Path) -> None:
    """Set5, Set14 and held-out photos, made smaller by bicubic interpolation."""
    rows = []
    for times in SCALES:
        for name, photos in sharp_sets(data).items():
            rows += compare_upscaling(photos, times, f"{name}_x{times}")
    write("upscaling", rows, budget="the packaged upscaler; no other method is trained", seed=0)


def own_pairs(noisy: Path, clean: Path) -> list[Pair]:
    """Photos of one name in two folders."""
    found = {path.name: path for path in images_in(clean)}
    pairs = [(path, found[path.name]) for path in images_in(noisy) if path.name in found]
    if not pairs:
        raise SystemExit(f"{noisy} and {clean} have no photos of one name.")
    read: list[Pair] = [(read_rgb(a), read_rgb(b), None) for a, b in pairs]
    for (a, b), (photo, expected, _) in zip(pairs, read, strict=True):
        if photo.shape != expected.shape:
            raise SystemExit(f"{a} and {b} need one size; they have {photo.shape[:2]} and {expected.shape[:2]}.")
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--denoise", nargs=2, type=Path, metavar=("NOISY", "CLEAN"))
    parser.add_argument("--upscale", type=Path, metavar="CLEAN")
    parser.add_argument("--data", type=Path, metavar="DIR")
    parser.add_argument("--bm3d", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="METHOD")
    parser.add_argument("--sets", nargs="+", metavar="SET")
    options = parser.parse_args()
    if options.denoise:
        pairs = own_pairs(*options.denoise)
        for name, settings in (denoisers() | (bm3d_for(pairs) if options.bm3d else {})).items():
            compare(name, settings, pairs, "your photos")
    if options.upscale:
        for times in SCALES:
            compare_upscaling([read_rgb(path) for path in images_in(options.upscale)], times, f"your photos, ×{times}")
    if options.data and (not options.only or set(options.only) - {"upscaler"}):
        own_tables(options.data, options.bm3d, options.only, options.sets)
    if options.data and (not options.only or "upscaler" in options.only):
        own_upscaling(options.data)


if __name__ == "__main__":
    main()
