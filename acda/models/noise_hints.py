"""What a photo tells about its own noise, measured rather than learnt: a denoiser gets it beside the pixels."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Side of the cells that are measured, in pixels, and how many cells the calmest one is looked for in.
CELL, NEIGHBOURS = 8, (3, 11)
# Details of one, two and four pixels.
SCALES = (1, 2, 4)
# Brightness, and two differences of colours.
OPPONENT = ((1 / 3, 1 / 3, 1 / 3), (0.5, -0.5, 0.0), (0.0, -0.5, 0.5))
# A quarter of a level of 0–255, squared: less than this is not told apart from nothing.
LEAST = 1e-6
# Logarithms are brought to about -2 to 2.
CENTRE, SPREAD = 12.0, 4.0
# Added where all pixels are clipped, so that such a cell is not taken for a calm one.
CLIPPED = 8.0


class NoiseHints(nn.Module):
    """Features for a denoiser from the strength of noise and the share of clipped pixels around each place.

    Weak noise and fine texture look alike in a small neighbourhood. But noise is everywhere, so where even the calmest
    cells of the surroundings fluctuate, there is noise. Where noise was cut off at black or white, the mean is wrong;
    the share of pixels at black and white tells by how much.

    width: number of features. The layer starts with zeros.
    x: (B, 3, H, W) from 0 to 1, H and W multiples of 8    returns: (B, width, H/2, W/2)

    >>> NoiseHints(5)(torch.rand(1, 3, 16, 24)).shape
    torch.Size([1, 5, 8, 12])
    """

    # Pixels around a cell that are looked at, rounded up to whole cells, and the period.
    stride = CELL

    def __init__(self, width: int, hidden: int = 64) -> None:
        super().__init__()
        maps = len(SCALES) * 3 * (1 + len(NEIGHBOURS)) + 6
        last = nn.Conv2d(hidden, width, 1)
        self.features = nn.Sequential(nn.Conv2d(maps, hidden, 1), nn.ReLU(inplace=True), last)
        nn.init.zeros_(last.weight)
        assert last.bias is not None
        nn.init.zeros_(last.bias)

    def forward(self, x: Tensor) -> Tensor:
        features = self.features(measured(x))
        return F.interpolate(features, scale_factor=CELL / 2, mode="bilinear", align_corners=False)


def measured(x: Tensor) -> Tensor:
    """Local fluctuation, its least value nearby, and the shares of black and white: (B, 33, H/8, W/8).

    >>> noise = 0.5 + 0.02 * torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    >>> bool((measured(noise) > measured(torch.full_like(noise, 0.5))).all(0)[:27].all())
    True
    """
    black, white = (F.avg_pool2d(share.to(x.dtype), CELL) for share in (x < 0.5 / 255, x > 254.5 / 255))
    opponent = F.conv2d(x, x.new_tensor(OPPONENT)[:, :, None, None])
    local = torch.cat([_fluctuation(opponent, scale) for scale in SCALES], dim=1)
    unclipped = local + CLIPPED * (black + white).amax(1, keepdim=True)
    calmest = [-F.max_pool2d(-unclipped, side, 1, side // 2) for side in NEIGHBOURS]
    return torch.cat([local, *calmest, black, white], dim=1)


def _fluctuation(x: Tensor, scale: int) -> Tensor:
    """The logarithm of the energy of details of a scale, one number for each cell."""
    coarse = F.avg_pool2d(x, scale) if scale > 1 else x
    details = coarse - F.avg_pool2d(coarse, 3, 1, 1, count_include_pad=False)
    return (torch.log2(F.avg_pool2d(details.square(), CELL // scale) + LEAST) + CENTRE) / SPREAD
