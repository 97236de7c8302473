"""How much memory the photo tools need for a large photo.

    python benchmarks/photos.py          # writes results/photos.json; takes long: 96 megapixels

A JPEG of 24 megapixels through the network that each command takes, each in a process of its own, with its own
tiles.
"""

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from acda.photos.weight_folders import named_weights
from acda.support.environment import write_results

WIDTH, HEIGHT = 6000, 4000
# What a person would type, and the network that it takes.
COMMANDS = {
    "acda restore photo.jpg --weights super_resolver": "super_resolver",
    "acda upscale photo.jpg --scale 2": "upscaler",
    "acda denoise photo.jpg": "denoiser",
}
# The command, and then its peak as the last line.
CHILD = """
import sys
from acda.cli import main
from acda.support.environment import peak_megabytes
status = main()
print(peak_megabytes())
sys.exit(status)
"""


def main() -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        y, x = np.mgrid[:HEIGHT, :WIDTH].astype(np.float32)
        waves = [127 + 100 * np.sin(x / (9 + c)) * np.cos(y / 14) for c in range(3)]
        Image.fromarray(np.stack(waves, 2).astype(np.uint8)).save(Path(folder, "photo.jpg"))
        for command, network in COMMANDS.items():
            if network in named_weights():
                rows.append(measure(command, Path(folder)))
                print(f"{command}: {rows[-1]['value']} MB", flush=True)
    budget = f"one JPEG of {WIDTH}×{HEIGHT}, tiles as the commands choose them"
    write_results(Path(__file__).parent / "results" / "photos.json", rows, budget=budget, seed=0)


def measure(command: str, folder: Path) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, *command.split()[1:]], cwd=folder, capture_output=True, text=True, check=True
    )
    *_, written, peak = child.stdout.split()
    with Image.open(folder / written) as image:
        size = f"{image.width}×{image.height}"
    common = {"table": "photos", "dataset": f"{WIDTH}×{HEIGHT}", "name": command, "metric": "peak, MB"}
    return {**common, "value": round(float(peak)), "result": size}


if __name__ == "__main__":
    main()
