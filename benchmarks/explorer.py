"""How long the explorer takes from the pointer to the picture, in a real browser.

    python benchmarks/explorer.py          # writes results/explorer.json; needs chromium and playwright

A photo of 512×512 in the page that `acda explore` serves; the pointer goes to places across it, one after the other,
and the page's own clock tells when the filter of each is drawn.
"""

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from playwright.sync_api import sync_playwright

from acda.support.environment import write_results

SIDE, MOVES = 512, 60
NETWORKS = ("fresh layer", "restorer", "crowd_counter_s")
# Moves the pointer, and waits until the page has drawn what is there.
MOVE = """([x, y]) => new Promise(done => {
  const box = document.getElementById("photo").getBoundingClientRect(), before = document.body.dataset.shown;
  const begun = performance.now();
  const look = () => {
    if (document.body.dataset.shown !== before) done(performance.now() - begun); else requestAnimationFrame(look);
  };
  const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height, bubbles: true };
  document.getElementById("stage").dispatchEvent(new PointerEvent("pointermove", at));
  requestAnimationFrame(look);
})"""


def main() -> None:
    rows = [row for network in NETWORKS for row in measure(network)]
    budget = f"{MOVES} moves of the pointer over a photo of {SIDE}×{SIDE}"
    write_results(Path(__file__).parent / "results" / "explorer.json", rows, budget=budget, seed=0)
    for row in rows:
        print(f"{row['name']}: {row['metric']} {row['value']}")


def measure(network: str) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        photo = Path(folder, "photo.png")
        y, x = np.mgrid[:SIDE, :SIDE]
        waves = [127 + 100 * np.sin(x / (9 + c)) * np.cos(y / 14) for c in range(3)]
        Image.fromarray(np.stack(waves, 2).astype(np.uint8)).save(photo)
        command = [
            sys.executable,
            "-m",
            "acda",
            "explore",
            str(photo),
            "--model",
            network,
            "--port",
            "0",
            "--no-browser",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                found = re.match(r"(http://\S+/)", server.stdout.readline())
                assert found is not None, "the server did not start"
                taken = move_about(found.group(1))
            finally:
                server.terminate()
    common = {"table": "explorer", "dataset": f"{SIDE}×{SIDE}", "name": network}
    return [
        {**common, "metric": "pointer to picture, median, ms", "value": round(statistics.median(taken), 1)},
        {**common, "metric": "pointer to picture, slowest, ms", "value": round(max(taken), 1)},
    ]


def move_about(address: str) -> list[float]:
    """Milliseconds of each move."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        while not page.evaluate("document.body.dataset.shown > 0"):
            page.wait_for_timeout(50)
        places = np.random.default_rng(0).uniform(0.02, 0.98, (MOVES, 2)).tolist()
        taken = [float(page.evaluate(MOVE, place)) for place in places]
        browser.close()
    return taken


if __name__ == "__main__":
    main()
