"""Small folders of noisy and clean photos."""

import numpy as np
from PIL import Image


def write_pairs(folder, photos=2, noise=20.0, side=24, seed=0):
    """So many pairs for training and for testing: smooth pictures with white noise of this standard deviation."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:side, :side]
    for part in ("train", "test"):
        for index in range(photos):
            phase = random.uniform(0, 6)
            clean = (127 + 90 * np.sin(x / 5 + phase) * np.cos(y / 4))[..., None] * np.ones(3)
            for kind, pixels in (("target", clean), ("input", clean + random.normal(0, noise, clean.shape))):
                file = folder / part / kind / f"{index}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8)).save(file)
