"""Degradations that photos have, put on clean ones: noise of several kinds, JPEG, and a reduction in size.

Photos are (3, H, W) from 0 to 1, sRGB. Everything random comes from the generator given. The ranges below are wide
enough for a phone at night, and begin at none: a photo without noise has to come out as it went in.
"""

import io
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from acda.training.data.batches import generator_for

# Shares of the training crops: without noise, with white noise, with a camera's; the rest of the ranges are uniform,
# or log-uniform where a range spans orders of magnitude.
CLEAN, WHITE = 0.15, 0.3
# Largest standard deviation of white noise, and the share of crops in which it varies over the crop.
SIGMA, VARYING = 55 / 255, 0.25
# In linear light: variance of shot noise per unit of light, standard deviation of read noise.
SHOT, READ = (2e-5, 2e-2), (1e-4, 2e-2)
# White balance multiplies red and blue, and their noise, by up to this; before the tone curve.
GAINS = (1.0, 2.2)
# Shares of the camera's photos: grain as demosaicing leaves it, blurred grain, grain with a coarse part, grain that the
# three colours share in part, grain whose colours the camera smoothed, chroma blotches.
MOSAIC, BLURRED, COARSE, SHARED, SMOOTHED, BLOTCHES = 0.4, 0.7, 0.5, 0.9, 0.6, 0.3
# Standard deviation of the blurs in pixels: of grain, and of its coarse part. Largest shares of the variance that is
# coarse, and that the colours have in common.
GRAIN_BLUR, COARSE_BLUR, MOST_COARSE, MOST_SHARED = (0.3, 1.3), (1.3, 8.0), 0.6, 0.95
# Share of the camera's photos with the grain of a file that the camera developed itself at full size, and the standard
# deviation of its blur in pixels. In such photos weak grain of the brightness, blurred, is most of the noise.
DEVELOPED, DEVELOPED_BLUR = 0.5, (0.5, 1.1)
# Smoothed colours: standard deviation of the blur in pixels, and of the result relative to the brightness.
COLOUR_BLUR, COLOUR_PART = (1.0, 6.0), (0.2, 0.9)
# Standard deviation and size in pixels of the blotches.
BLOTCH, BLOTCH_SIZE = (0.5 / 255, 8 / 255), (3, 12)
# Before a photo is made smaller: share that is blurred, and by what standard deviation in pixels at most.
SOFT, SOFTNESS = 0.3, 0.8
# What makes photos smaller: bicubic and Lanczos filters, or the mean of the pixels that become one.
REDUCERS = (Image.Resampling.BICUBIC, Image.Resampling.LANCZOS, Image.Resampling.BOX)
# JPEG: shares of the noisy, the clean and the reduced photos, and range of quality.
JPEG_NOISY, JPEG_CLEAN, JPEG_SMALL, QUALITY = 0.5, 0.3, 0.3, (60, 98)
# A crop is degraded with this margin, cut at a random offset, so that JPEG's blocks lie anywhere.
MARGIN = 16


@dataclass(frozen=True)
class Degradation:
    """random: of a training crop, from a generator. held_out: of the test photo of an index, always the same.

    sizes: half of the training crops are resized by a factor in this range before
    aliased: share of those made smaller that keep single pixels instead of means, as some photos on the web do
    """

    random: Callable[[Tensor, torch.Generator], Tensor]
    held_out: Callable[[Tensor, int], Tensor]
    sizes: tuple[float, float]
    aliased: float = 0.0


def add_noise(clean: Tensor, generator: torch.Generator) -> Tensor:
    """Add the noise, or the JPEG artefacts, or neither, of a random photo; the result is as a file of uint8 has it.

    >>> add_noise(torch.full((3, 40, 40), 0.5), torch.Generator().manual_seed(0)).shape
    torch.Size([3, 40, 40])
    """
    kind = _uniform(0, 1, generator)
    if kind < CLEAN:
        return _as_some_file(clean, JPEG_CLEAN, generator)
    noisy = clean + white_noise(clean, generator) if kind < CLEAN + WHITE else camera_noise(clean, generator)
    return _as_some_file(noisy, JPEG_NOISY, generator)


def held_out_noise(clean: Tensor, index: int) -> Tensor:
    """White noise of σ = 10, 25 or 50, or a camera's, by turns."""
    generator = generator_for(index)
    if index % 4 == 3:
        return _as_some_file(camera_noise(clean, generator), 0.0, generator)
    sigma = (10, 25, 50)[index % 4] / 255
    return _as_some_file(clean + sigma * _normal(clean.shape, generator), 0.0, generator)


def shrink_and_enlarge(clean: Tensor, generator: torch.Generator) -> Tensor:
    """Make a photo half as wide and high in one of several ways, then enlarge it again as `acda upscale` does.

    H and W are even.
    """
    sharp = _blurred(clean, _uniform(0.2, SOFTNESS, generator)) if _happens(SOFT, generator) else clean
    small = _resized(sharp, 0.5, REDUCERS[int(torch.randint(len(REDUCERS), (), generator=generator))])
    return _resized(_as_some_file(small, JPEG_SMALL, generator), 2, Image.Resampling.BICUBIC)


def held_out_small(clean: Tensor, index: int) -> Tensor:
    """Made smaller and enlarged again by bicubic interpolation, as the published benchmarks do it."""
    height, width = (length - length % 2 for length in clean.shape[1:])
    small = _resized(clean[:, :height, :width], 0.5, Image.Resampling.BICUBIC)
    enlarged = _resized(small, 2, Image.Resampling.BICUBIC)
    return F.pad(enlarged[None], (0, clean.shape[2] - width, 0, clean.shape[1] - height), mode="replicate")[0]


def white_noise(clean: Tensor, generator: torch.Generator) -> Tensor:
    """Gaussian noise of one strength, or of one that varies over the photo."""
    sigma = torch.full((1, 1, 1), _uniform(0, SIGMA, generator))
    if _happens(VARYING, generator):
        corners = torch.rand(1, 1, 4, 4, generator=generator) * SIGMA
        sigma = F.interpolate(corners, clean.shape[1:], mode="bilinear", align_corners=True)[0]
    return sigma * _normal(clean.shape, generator)


def camera_noise(clean: Tensor, generator: torch.Generator) -> Tensor:
    """Shot and read noise in linear light, before the camera's processing; their strength follows the light."""
    contrast = _uniform(0, 1, generator) if _happens(0.5, generator) else 0.0
    light = to_light(clean, contrast)
    gains = torch.tensor([_uniform(*GAINS, generator), 1.0, _uniform(*GAINS, generator)])[:, None, None]
    shot, read = _log_uniform(*SHOT, generator), _log_uniform(*READ, generator)
    sensor = light / gains  # what the sensor saw
    noise = (shot * sensor + read**2).sqrt() * grain(clean.shape, generator)
    noisy = from_light((light + gains * noise).clamp(0, 1), contrast)
    if _happens(BLOTCHES, generator):
        noisy = noisy + chroma_blotches(clean.shape, generator)
    return noisy


def grain(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Noise of variance 1 with the sizes and colours that a camera's processing gives it.

    White, or correlated: neighbours by demosaicing and by two blurs, colours by what they have in common. In photos
    straight from a camera, colours go together, and so do pixels that are three apart.
    """
    developed = _happens(DEVELOPED, generator)
    noise = _normal(shape, generator)
    if _happens(SHARED, generator):
        common = _uniform(0, MOST_SHARED, generator)
        noise = math.sqrt(1 - common) * noise + math.sqrt(common) * _normal((1, *shape[1:]), generator)
    coarse = _unit(_blurred(noise, _uniform(*COARSE_BLUR, generator)))
    if _happens(MOSAIC, generator) and not developed:
        noise = _unit(demosaiced(noise))
    if developed or _happens(BLURRED, generator):
        noise = _unit(_blurred(noise, _uniform(*(DEVELOPED_BLUR if developed else GRAIN_BLUR), generator)))
    if _happens(COARSE, generator):
        part = _uniform(0, MOST_COARSE, generator)
        noise = _unit(math.sqrt(1 - part) * noise + math.sqrt(part) * coarse)
    if developed or _happens(SMOOTHED, generator):
        noise = _unit(with_smooth_colours(noise, generator))
    return noise


def with_smooth_colours(noise: Tensor, generator: torch.Generator) -> Tensor:
    """Fine grain in the brightness, coarse grain in the colours: cameras smooth colours more, and so does JPEG."""
    brightness = noise.mean(0, keepdim=True)
    colours = _blurred(noise - brightness, _uniform(*COLOUR_BLUR, generator))
    strength = _uniform(*COLOUR_PART, generator) * brightness.std() / colours.std().clamp_min(1e-8)
    return brightness + strength * colours


def _unit(noise: Tensor) -> Tensor:
    return noise / noise.std((1, 2), keepdim=True)


def to_light(photo: Tensor, contrast: float) -> Tensor:
    """Undo the tone curve: light in proportion to what the lens let through.

    contrast: from 0, sRGB's own curve, to 1, a curve with the steepest middle

    >>> x = torch.linspace(0, 1, 11)
    >>> torch.allclose(from_light(to_light(x, 0.5), 0.5), x, atol=1e-4)
    True
    """
    curve = contrast * (0.5 - torch.sin(torch.asin(1 - 2 * photo.clamp(0, 1)) / 3)) + (1 - contrast) * photo
    return torch.where(curve <= 0.04045, curve / 12.92, ((curve.clamp_min(0) + 0.055) / 1.055) ** 2.4)


def from_light(light: Tensor, contrast: float) -> Tensor:
    """The tone curve that to_light undoes."""
    curve = torch.where(light <= 0.0031308, light * 12.92, 1.055 * light.clamp_min(1e-8) ** (1 / 2.4) - 0.055)
    if not contrast:
        return curve
    # The inverse of a blend of two curves has no formula: read it off a table.
    values = torch.linspace(0, 1, 1025)
    blended = contrast * (0.5 - torch.sin(torch.asin(1 - 2 * values) / 3)) + (1 - contrast) * values
    index = torch.searchsorted(blended, curve.contiguous()).clamp(1, 1024)
    low, high = blended[index - 1], blended[index]
    part = ((curve - low) / (high - low).clamp_min(1e-8)).clamp(0, 1)
    return (index - 1 + part) / 1024


def demosaiced(noise: Tensor) -> Tensor:
    """What noise becomes on a Bayer sensor: every pixel keeps one of its colours, neighbours give the others.

    Bilinear demosaicing is linear, so that noise can be demosaiced by itself.
    """
    height, width = noise.shape[1:]
    row, column = torch.arange(height)[:, None] % 2, torch.arange(width)[None] % 2
    kept = torch.stack([(row == 0) & (column == 0), row != column, (row == 1) & (column == 1)]).to(noise)
    line = torch.tensor([0.5, 1.0, 0.5])
    corners, cross = line[:, None] * line, torch.tensor([[0, 0.25, 0], [0.25, 1, 0.25], [0, 0.25, 0]])
    filters = torch.stack([corners, cross, corners])[:, None]
    padded = F.pad((noise * kept)[None], (2, 2, 2, 2), mode="reflect")
    return F.conv2d(padded, filters, groups=3)[0, :, 1:-1, 1:-1]


def chroma_blotches(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Coloured spots of several pixels that keep the brightness, as strong denoising in a camera leaves them."""
    size = _uniform(*BLOTCH_SIZE, generator)
    coarse = [max(2, round(length / size)) for length in shape[1:]]
    spots = _normal((1, 2, *coarse), generator)
    blue, red = F.interpolate(spots, shape[1:], mode="bicubic", align_corners=False)[0]
    strength = _log_uniform(*BLOTCH, generator)
    return strength * torch.stack([1.402 * red, -0.344 * blue - 0.714 * red, 1.772 * blue])


def jpeg(photo: Tensor, quality: int, halved_colours: bool) -> Tensor:
    """The photo after a JPEG file of this quality, with colours at half the resolution or at all of it."""
    buffer = io.BytesIO()
    _image(photo).save(buffer, "JPEG", quality=quality, subsampling=2 if halved_colours else 0)
    return _photo(Image.open(buffer))


def _resized(photo: Tensor, factor: float, filter: Image.Resampling) -> Tensor:
    height, width = (round(length * factor) for length in photo.shape[1:])
    return _photo(_image(photo).resize((width, height), filter))


def _image(photo: Tensor) -> Image.Image:
    return Image.fromarray((photo.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())


def _photo(image: Image.Image) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255


def _as_some_file(photo: Tensor, jpeg_share: float, generator: torch.Generator) -> Tensor:
    if _happens(jpeg_share, generator):
        return jpeg(photo, int(_uniform(QUALITY[0], QUALITY[1] + 1, generator)), _happens(0.5, generator))
    return (photo.clamp(0, 1) * 255).round() / 255


def _blurred(photo: Tensor, sigma: float) -> Tensor:
    reach = max(1, math.ceil(3 * sigma))
    line = torch.exp(-0.5 * (torch.arange(-reach, reach + 1) / sigma) ** 2)
    line = (line / line.sum()).expand(3, 1, 1, -1)
    padded = F.pad(photo[None], (reach,) * 4, mode="reflect")
    return F.conv2d(F.conv2d(padded, line, groups=3), line.transpose(2, 3), groups=3)[0]


def _uniform(low: float, high: float, generator: torch.Generator) -> float:
    return low + (high - low) * float(torch.rand((), generator=generator))


def _log_uniform(low: float, high: float, generator: torch.Generator) -> float:
    return math.exp(_uniform(math.log(low), math.log(high), generator))


def _happens(share: float, generator: torch.Generator) -> bool:
    return _uniform(0, 1, generator) < share


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


# By the names that recipes have for them.
DEGRADATIONS = {
    # Photos as they come from a camera are softer than these, which were made smaller; some on the web are harder.
    "noise": Degradation(add_noise, held_out_noise, (0.4, 3.0), aliased=0.3),
    "size": Degradation(shrink_and_enlarge, held_out_small, (0.5, 1.5)),
}
