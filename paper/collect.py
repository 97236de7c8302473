"""Turn the runs that are complete into rows of results/*.json.

    python -m paper.collect --data DIR     # DIR as for paper.run

Most figures are the scores of a run's last epoch. Runs with test sets (denoising) are scored on them photo by photo.
So are City100's runs, for their second table. These need --data. Figures of runs that are gone stay as they are.
"""

import argparse
import json
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from acda.cost import count
from acda.photos.weights import load
from acda.support.environment import describe
from paper.results import Row, read, result, write
from paper.runs import RUNS, PaperRun, identity
from paper.scoring import held_out, score_rows, scores

RESTORED = {"PSNR": ("psnr_y", 2), "SSIM": ("ssim_y", 4)}
# The metrics that a table shows of the last epoch's scores, and to how many digits.
METRICS: dict[str, dict[str, tuple[str, int]]] = {
    "lenet": {"error": ("top1_error", 2)},
    "tinyimagenet20": {"error": ("top1_error", 1)},
    "counting": {"MAE": ("mae", 2), "root MSE": ("rmse", 2)},
    "city100": RESTORED,
    "ablation_atoms": RESTORED,
    "ablation_scales": RESTORED,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the datasets")
    collect(parser.parse_args().data)


def collect(data: Path | None) -> None:
    """One results file per table, from the runs that are complete."""
    for table in dict.fromkeys(run.table for run in RUNS):
        runs = [run for run in RUNS if run.table == table and run.is_complete]
        if data is None and any(run.test_sets for run in runs):
            print(f"{table}: not collected, because it is scored photo by photo; that needs --data")
        elif runs:
            save_rows(table, [row for run in runs for row in rows_of(run, data)], trained_how(runs))
            if table == "city100" and data is not None:
                photo_by_photo(runs, data / runs[0].folder)


def rows_of(run: PaperRun, data: Path | None) -> list[Row]:
    """The scores of a run and its cost."""
    model = load(run.out).model
    facts = {**run.training, "seed": saved(run, "recipe")["seed"]}
    if run.test_sets:
        assert data is not None
        facts["hours"] = hours_of(run)
        sets = {name: held_out(data / folder) for name, folder in run.test_sets.items()}
        found = [r for name, test in sets.items() for r in score_rows(run.table, name, run.model, model, test, **facts)]
    else:
        last = saved(run, "scores")["epochs"][-1]
        found = [
            result(run.table, run.dataset, run.model, metric, round(last[key], digits), **facts, hours=hours_of(run))
            for key, (metric, digits) in METRICS[run.table].items()
        ]
    cost = count(model, (1, 3, run.size, run.size))
    figures = {"parameters": round(cost.parameters / 1e6, 3)}
    figures[f"multiply_adds_{run.size}"] = round(cost.multiply_adds / 1e6, 2)
    return found + [result(run.table, run.dataset, run.model, *figure, **facts) for figure in figures.items()]


def save_rows(table: str, rows: list[Row], facts: dict[str, Any]) -> None:
    """results/TABLE.json: these rows, and among them, in the order of RUNS, the saved ones of other runs."""
    earlier = read(table)
    kept = [old for old in earlier["rows"] if identity(old) not in {identity(new) for new in rows}]
    order = {run.identity: place for place, run in enumerate(RUNS)}
    rows = sorted(kept + rows, key=lambda row: order.get(identity(row), -1))
    if table == "lenet":
        rows = [row for row in rows if row["metric"] != "error_reduction"]
        rows += error_reductions(rows)
    write(table, rows, **(merged(facts, earlier["circumstances"]) if kept else facts))


def error_reductions(rows: list[Row]) -> list[Row]:
    """By how many percent the other networks' errors are lower than LeNet's, on each dataset."""
    errors = {(row["dataset"], row["model"]): row for row in rows if row["metric"] == "top1_error"}
    return [
        {**row, "metric": "error_reduction", "value": round(100 * (1 - row["value"] / base["value"]), 1)}
        for (dataset, model), row in errors.items()
        if model != "lenet" and (base := errors.get((dataset, "lenet")))
    ]


def photo_by_photo(runs: list[PaperRun], folder: Path) -> None:
    """results/city100_photos.json: what each network gains on each photo, and how sure it is that ours is ahead."""
    earlier, photos = read("city100_photos"), held_out(folder)
    gains = {row["model"]: np.array(row["each"]) for row in earlier["rows"] if "each" in row}
    before = [p for p, _ in scores(lambda x: x, photos, on_luma=True)]
    for run in runs:
        gains[run.model] = np.array([p for p, _ in scores(load(run.out).model, photos, on_luma=True)]) - before
    others = set(gains) - {run.model for run in runs}
    facts = merged(trained_how(runs), earlier["circumstances"]) if others else trained_how(runs)
    write("city100_photos", [row for model in gains for row in gain_rows(model, gains)], **facts)


def gain_rows(model: str, gains: dict[str, Any]) -> list[Row]:
    gain, ours = gains[model], gains.get("restorer")
    figures = {"gain": gain.mean(), "smallest_gain": gain.min()}
    if model != "restorer" and ours is not None:
        lead = ours - gain
        figures["restorer_lead"] = lead.mean()
        figures["restorer_lead_error"] = lead.std(ddof=1) / len(lead) ** 0.5
        figures["restorer_lead_photos"] = (lead > 0).sum()
    rows = [
        result("city100_photos", "city100_iphone", model, metric, round(float(value), 3), photos=len(gain))
        for metric, value in figures.items()
    ]
    rows[0]["each"] = [round(float(value), 3) for value in gain]
    return rows


def trained_how(runs: list[PaperRun]) -> dict[str, Any]:
    """The circumstances of these runs: where, with what, how long, which seeds."""
    found = []
    for run in runs:
        recipe = saved(run, "recipe")
        facts = {**saved(run, "scores")["circumstances"], "budget": budget_of(recipe), "seeds": [recipe["seed"]]}
        found.append({**facts, "scored_at": describe()["commit"]} if run.test_sets else facts)
    return reduce(merged, found)


def merged(facts: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """These circumstances, with the commits and the seeds of earlier ones."""
    both = {**facts, "seeds": sorted({*facts["seeds"], *earlier["seeds"]})}
    for key in ("commit", "scored_at"):
        commits = {commit for each in (facts, earlier) if key in each for commit in each[key].split(", ")}
        both |= {key: ", ".join(sorted(commits))} if commits else {}
    return both


def budget_of(recipe: dict[str, Any]) -> str:
    epochs = f"{recipe['epochs']} epoch{'s' if recipe['epochs'] > 1 else ''}"
    crops = f" of {recipe['crops']:,} crops of {recipe['crop']}×{recipe['crop']}" if "crops" in recipe else ""
    return f"{epochs}{crops} in batches of {recipe['batch_size']}, {recipe['optimiser']}"


def hours_of(run: PaperRun) -> float:
    """How long the training took."""
    return round(sum(epoch["seconds"] for epoch in saved(run, "scores")["epochs"]) / 3600, 2)


def saved(run: PaperRun, name: str) -> dict[str, Any]:
    """recipe.json or scores.json of a run."""
    return json.loads((run.out / f"{name}.json").read_text())


if __name__ == "__main__":
    main()
