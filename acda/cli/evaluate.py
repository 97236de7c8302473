"""acda evaluate: score a run again."""

from pathlib import Path


def evaluate(run: str, /, data: Path) -> None:
    """Score a network on the test images of a folder, and print the metrics.

    Args:
        run: folder of a run, its weights.safetensors, or a packaged network.
        data: folder of the dataset.
    """
    from acda.training.run import evaluate as score

    scores = score(run, data)
    for name, value in scores.items():
        print(f"{name:<16} {value:>12,.4f}" if name != "images" else f"{name:<16} {value:>12,.0f}")
