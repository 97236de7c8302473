"""Photos as files: read upright, written whole with colour profile and EXIF."""

import io
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from acda.photos import sixteen_bits
from acda.photos.image_files import Upright, naming, open_upright
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
# Formats accepted from untrusted sources: they state their size before they are decoded, and start no other program.
UPLOADED = ("JPEG", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM")


@dataclass(frozen=True)
class Photo:
    """A photo and what is known about it.

    pixels: (1, 3, H, W), uint8; or floating point from 0 to 1, where it came as such a tensor or has 16 bits
    alpha: (1, 1, H, W) of either kind, or None    about: colour profile and EXIF, as Pillow writes them
    lost: what is lost of its file, as text
    is_grey: whether it is written without colours, like its file    lossless: whether its file keeps every pixel
    """

    pixels: Tensor
    alpha: Tensor | None
    about: dict[str, bytes]
    lost: str = ""
    is_grey: bool = False
    lossless: bool = False


def read_photo(path: Path, deep: bool = False) -> Photo:
    """Whatever Pillow reads, turned as its EXIF says. deep: with all 16 bits of PNG and TIFF, in floating point"""
    return _photo(open_upright(path, deep=deep))


def _photo(file: Upright) -> Photo:
    about: dict[str, bytes] = {}
    # Another profile does not describe the pixels that are written. Greyscale files often have the profile of RGB.
    if file.profile[16:20] in ({b"RGB ", b"GRAY"} if file.is_grey else {b"RGB "}):
        about["icc_profile"] = file.profile
    if file.exif:
        with suppress(Exception):  # what the maker of a camera wrote there cannot always be written again
            about["exif"] = file.exif.tobytes()
    alpha = None if file.alpha is None else pixels_of(np.array(file.alpha)[:, :, None])
    lost = {
        f"{file.pages} pages, of which the result has the first": file.pages > 1,
        "more than 8 bits per channel, of which the result has 8": file.deeper and file.values is None,
        "the colours of a printer (CMYK), for which the result has RGB": file.mode == "CMYK",
        "a profile of other colours than RGB, which the result has not": file.profile and "icc_profile" not in about,
        f"damage ({file.damage.rstrip('.')}), which the result shows": file.damage,
    }
    told = " and ".join(what for what, is_lost in lost.items() if is_lost)
    pixels = pixels_of(np.array(file.image))
    if file.values is not None:
        values = torch.from_numpy(file.values.astype(np.float32) / 65535).permute(2, 0, 1)[None]
        pixels, alpha = values[:, :3].expand(-1, 3, -1, -1), values[:, 3:] if values.shape[1] == 4 else alpha
    return Photo(pixels, alpha, about, told, file.is_grey, file.lossless)


def read_photo_bytes(content: bytes, most_pixels: int) -> Tensor:
    """The visible pixels of a photo given as bytes, (1, 3, H, W); a larger one is refused before it is decoded."""
    with (
        naming("the upload", f"that is taken here ({', '.join(UPLOADED)}). Convert it"),
        need("PIL.Image", "photos").open(io.BytesIO(content), formats=UPLOADED) as image,
    ):
        width, height = image.size
    if width * height > most_pixels:
        raise ValueError(
            f"the photo has {width}×{height} pixels; at most {most_pixels / 1e6:g} million are taken. Make it smaller."
        )
    return revealed(_photo(open_upright(io.BytesIO(content), "the upload", UPLOADED)))


def pixels_of(array: np.ndarray[Any, np.dtype[np.uint8]]) -> Tensor:
    """An array (H, W, C) as a tensor (1, C, H, W)."""
    return torch.from_numpy(array.transpose(2, 0, 1).copy())[None]


def resized(x: Tensor, height: int, width: int) -> Tensor:
    """Pixels, of uint8 or floating point, at another size, bicubic as Pillow does it."""
    image_module = need("PIL.Image", "photos")
    planes = [
        np.array(image_module.fromarray(plane.numpy()).resize((width, height), image_module.Resampling.BICUBIC))
        for plane in x[0]
    ]
    return torch.from_numpy(np.stack(planes))[None]


def resized_photo(photo: Photo, height: int, width: int) -> Photo:
    """The same for a whole photo: the colours that a transparent one hides do not show at its edges."""
    if photo.alpha is None:
        pixels = resized(photo.pixels, height, width)
        # Bicubic interpolation overshoots; Pillow limits it for uint8 only.
        return replace(photo, pixels=pixels.clamp(0, 1) if pixels.is_floating_point() else pixels)
    opaque = 1.0 if photo.alpha.is_floating_point() else 255.0
    weight = resized(photo.alpha.float(), height, width)
    alpha = _like(weight, photo.alpha)
    visible = resized(photo.pixels * photo.alpha.float(), height, width) / weight.clamp_min(opaque / 255)
    hidden = _like(resized(photo.pixels, height, width), photo.pixels)
    return replace(photo, pixels=torch.where(alpha > 0, _like(visible, photo.pixels), hidden), alpha=alpha)


def _like(x: Tensor, pixels: Tensor) -> Tensor:
    """Values in the range of these pixels as the same dtype."""
    if pixels.is_floating_point():
        return x.clamp(0, 1)
    return x if x.dtype == torch.uint8 else eight_bits(x / 255)


def revealed(photo: Photo) -> Tensor:
    """The pixels of a photo, with the nearest visible colour where it is fully transparent: what is hidden there
    is no part of the picture."""
    if photo.alpha is None or not (hidden := photo.alpha[0, 0] == 0).any() or hidden.all():
        return photo.pixels
    from scipy import ndimage  # imported here, so that `import acda` is quick

    rows, columns = ndimage.distance_transform_edt(hidden.numpy(), return_distances=False, return_indices=True)
    return photo.pixels[:, :, torch.from_numpy(rows), torch.from_numpy(columns)]


def eight_bits(x: Tensor) -> Tensor:
    """Floating point from 0 to 1 as uint8."""
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
    """The metadata of the photo that this format cannot keep."""
    most = MOST_ABOUT.get(kind, {})
    return {name for name, value in photo.about.items() if len(value) > most.get(name, len(value))}


def colourless(pixels: Tensor) -> Tensor:
    """The same pixels, (1, 3, H, W), with the mean of the three channels in each of them.

    From equal channels a network makes three estimates of the same grey, and the mean weights them equally. Luma would
    follow green, in which the denoiser leaves the most noise.
    """
    mean = pixels.float().mean(1, keepdim=True)
    return (mean if pixels.is_floating_point() else mean.round().to(torch.uint8)).expand_as(pixels)


def has_colours(pixels: Tensor) -> bool:
    """Whether the channels of (1, 3, H, W) differ anywhere."""
    return not bool((pixels == pixels[:, :1]).all())


def picture_of(photo: Photo) -> Any:
    """A photo of uint8 as a PIL image: grey or RGB, with transparency where it has some."""
    pixels = colourless(photo.pixels)[:, :1] if photo.is_grey else photo.pixels
    planes = pixels if photo.alpha is None else torch.cat([pixels, photo.alpha], 1)
    channels = planes[0].permute(1, 2, 0).numpy()
    return need("PIL.Image", "photos").fromarray(channels[:, :, 0] if channels.shape[2] == 1 else channels)


def _on_white(photo: Photo) -> Photo:
    """A photo without transparency, as it is seen on white."""
    assert photo.alpha is not None
    pixels, share = colourless(photo.pixels) if photo.is_grey else photo.pixels, photo.alpha.int()
    blended = (pixels * share + 255 * (255 - share) + 127) // 255
    return replace(photo, pixels=blended.to(torch.uint8), alpha=None)


def in_eight_bits(photo: Photo) -> Photo:
    """The same in uint8, where it has more."""
    pixels, alpha = (
        part if part is None or not part.is_floating_point() else eight_bits(part)
        for part in (photo.pixels, photo.alpha)
    )
    assert pixels is not None
    return replace(photo, pixels=pixels, alpha=alpha)


def has_sixteen_bits(photo: Photo) -> bool:
    """Whether a photo, read from a file, has more than eight bits a channel."""
    return photo.pixels.is_floating_point()


def _write_sixteen_bits(photo: Photo, path: Path, kind: str, about: dict[str, bytes]) -> None:
    """Grey where it has neither colours nor transparency, otherwise RGB."""
    pixels = colourless(photo.pixels) if photo.is_grey else photo.pixels
    pixels = pixels[:, :1] if photo.is_grey and photo.alpha is None else pixels
    planes = pixels if photo.alpha is None else torch.cat([pixels, _in_unit_range(photo.alpha)], 1)
    values = (planes[0].double().clamp(0, 1) * 65535).round().permute(1, 2, 0).numpy().astype(np.uint16)
    sixteen_bits.write(path, values, kind, about)


def _in_unit_range(x: Tensor) -> Tensor:
    return x if x.is_floating_point() else x.float() / 255


def write_photo(photo: Photo, path: Path) -> None:
    """Write in the format of the file's name, whole or not at all; in JPEG, transparency becomes white.

    16 bits are kept in PNG and TIFF. WebP is written without loss where the photo's own file has none.
    """
    kind = format_for(path, *photo.pixels.shape[2:])
    # Colours at half the resolution, as is usual in JPEG, would undo some of what was restored.
    options: dict[str, Any] = {"JPEG": {"quality": 95, "subsampling": 0}, "WEBP": {"quality": 95}}.get(kind, {})
    if kind == "WEBP" and photo.lossless:
        options = {"lossless": True, "exact": True}
    about = {name: photo.about[name] for name in photo.about.keys() - without_room(photo, kind)}
    if has_sixteen_bits(photo) and kind in sixteen_bits.KINDS:
        with written_whole(path) as file:
            _write_sixteen_bits(photo, file, kind, about)
        return
    photo = in_eight_bits(photo)
    picture = picture_of(photo if photo.alpha is None or kind in WITH_ALPHA else _on_white(photo))
    with written_whole(path) as file:
        picture.save(file, format=kind, **options, **about)
