"""The study of how a layer should begin as a table and a picture, from studies/start.json.

    python -m paper.start_summary     # writes results/start.json and pictures/start.png

`python -m paper.start` trains; this takes the means over its seeds.
"""

import json
import statistics
from typing import Any

from acda.support.drawing import GREEN, GREY, INDIGO, TEAL, new_figure, save
from paper.results import PICTURES, Row, result, write
from paper.start import RESULTS as STUDY

# Identifiers of the forms that are shown, and the colours of those that are drawn.
FORMS = {
    "conv 3×3": "conv_3",
    "conv 7×7": "conv_same",
    "paper": "adaptivity_1",
    "scale 1, shift 1": "scale_1_shift_1",
    "scale 0.7": "adaptivity_07",
    "scale 0.5": "adaptivity_05",
    "scale 0.2": "adaptivity_02",
    "scale 0.1": "adaptivity_01",
    "scale 0": "adaptivity_0",
    "scale 0.2, shift 0.5": "scale_02_shift_05",
    "scale 0.2, shift 2": "scale_02_shift_2",
    "gain 0.1": "gain_01",
    "gain 0.3": "gain_03",
    "atoms as filters": "atoms_as_filters",
}
COLOURS = {"conv 7×7": GREY, "paper": GREEN, "scale 1, shift 1": TEAL, "scale 0.2": INDIGO}
LABELS = {
    "conv 7×7": "Conv2d",
    "paper": "paper's start",
    "scale 1, shift 1": "scale 1, shift 1",
    "scale 0.2": "default",
}
# Which number of a run is its score, and its digits.
SCORES = {
    "patches": ("PSNR", 2),
    "uniform": ("PSNR", 2),
    "restorer": ("PSNR", 2),
    "counting": ("mae", 1),
    "lenet": ("error", 1),
    "lenet_adamw": ("error", 1),
    "lenet_long": ("error", 1),
    "toy_adam": ("loss", 7),
}
METRICS = {"PSNR": "psnr", "error": "top1_error", "mae": "mae", "loss": "mse"}


def main() -> None:
    study = json.loads(STUDY.read_text())
    rows = [row for row in study["rows"] if row["problem"] in SCORES and row["form"] in FORMS]
    facts = study["circumstances"]
    write(
        "start",
        summary(rows),
        budget="studies/start.json: each problem as paper/start.py says",
        trained=facts["commit"],
    )
    save(draw(rows), PICTURES / "start.png")


def summary(rows: list[dict[str, Any]]) -> list[Row]:
    """Mean score of each form on each problem, and the score of each seed."""
    found = []
    for problem, (score, digits) in SCORES.items():
        for form, identifier in FORMS.items():
            seeds = {str(r["seed"]): r[score] for r in rows if (r["problem"], r["form"]) == (problem, form)}
            values = [value for value in seeds.values() if value is not None]
            if values and len(values) == len(seeds):
                mean = round(statistics.mean(values), digits)
                found.append(result("start", f"start_{problem}", identifier, METRICS[score], mean, seeds=seeds))
    return found


def draw(rows: list[dict[str, Any]]) -> Any:
    """Validation scores along the runs: noise that varies, noise that does not, LeNet."""
    figure = new_figure(12, 3.6)
    shown = {
        "patches": "noise that varies: PSNR, dB",
        "uniform": "uniform noise: PSNR, dB",
        "lenet": "LeNet, SGD: error, %",
        "lenet_adamw": "LeNet, AdamW: error, %",
    }
    shown = {problem: title for problem, title in shown.items() if any(row["problem"] == problem for row in rows)}
    panels = figure.subplots(1, len(shown), squeeze=False)[0]
    for axes, (problem, title) in zip(panels, shown.items(), strict=True):
        for form, colour in COLOURS.items():
            for row in (r for r in rows if (r["problem"], r["form"]) == (problem, form)):
                # Steps, loss, score, …; LeNet's curve has a row for each epoch, without its number.
                curve = (
                    row["curve"]
                    if problem in ("patches", "uniform")
                    else [[i + 1, *r] for i, r in enumerate(row["curve"])]
                )
                axes.plot([r[0] for r in curve], [r[2] for r in curve], color=colour, marker=".", label=LABELS[form])
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("steps" if problem in ("patches", "uniform") else "epochs")
    drawn = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(drawn.values(), drawn.keys(), loc="outside lower center", ncols=4)
    return figure


if __name__ == "__main__":
    main()
