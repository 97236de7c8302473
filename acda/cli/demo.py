"""acda demo: the paper's toy pattern detection, an ordinary convolution beside an adaptive one."""

import json
import time
from pathlib import Path
from typing import Any

from acda.cli.arguments import Count, Folder
from acda.support.drawing import save
from acda.support.environment import describe
from acda.support.extras import need
from acda.support.files import written_whole
from acda.training.toy import LABELS, SHIFT, compare, draw


def demo(seed: Count = 0, out: Folder = Path("demo"), steps: Count = 1500, as_in_paper: bool = False) -> None:
    """Train one 7×7 convolution and one adaptive 7×7 convolution to find 25 patterns in one noisy image.

    Both are trained on the same image with Adam (learning rate 0.01, mean square error), and then tested on the image
    shifted by 20 pixels. Writes the figure demo.png and the numbers demo.json.

    Args:
        seed: seed of the image and of both layers.
        out: folder for the figure and the numbers.
        steps: training steps. The error of the adaptive layer still falls after the default number.
        as_in_paper: use SGD (learning rate 0.01, momentum 0.9) and the paper's start of the layer; learns more slowly.
    """
    if steps < 1:
        raise ValueError(f"--steps needs at least 1; got {steps}.")
    # Find out before the training, not after it, whether the result can be written.
    need("matplotlib", "cli")
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    compared = compare(seed, steps, as_in_paper)
    numbers = {
        **compared.errors,
        "steps": steps,
        "seed": seed,
        "seconds": round(time.perf_counter() - started, 1),
        "curves": compared.curves,
        "circumstances": describe(),
    }
    print(_summary(numbers))
    with written_whole(out / "demo.json") as file:
        file.write_text(json.dumps(numbers, indent=1) + "\n")
    save(draw(compared), out / "demo.png")
    print(f"Written: {out / 'demo.png'}, {out / 'demo.json'}")


def _summary(numbers: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"mean square error after {numbers['steps']} steps, seed {numbers['seed']}, {numbers['seconds']:.0f} s",
            f"             {'input':>9}  shifted by {SHIFT} pixels",
            *(
                f"  {label:<10} {numbers[name]:9.2e}  {numbers[name + '_shifted']:9.2e}"
                for name, label in LABELS.items()
            ),
            f"ACDA's error is {numbers['conv'] / numbers['acda']:.1f} times lower.",
        ]
    )
