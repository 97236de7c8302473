"""acda bench: time and memory of the layer beside Conv2d, F.unfold and plain torch."""

from pathlib import Path
from typing import Any

import torch

from acda import bench as measuring
from acda.backends import native
from acda.cli.arguments import Count, Folder, Number
from acda.support.drawing import GREEN, GREY, INDIGO, new_figure, save
from acda.support.environment import write_results
from acda.support.extras import need

LABELS = {"conv": "Conv2d", "unfold": "unfold", "reference": "acda, plain torch", "native": "acda, native"}


def bench(out: Folder = Path("bench"), threads: Count = 2, seconds: Number = 2.0, quick: bool = False) -> None:
    """Measure one layer side by side: Conv2d of the same size, F.unfold, the reference and the native kernel.

    Forward and training, as ratios to Conv2d, with the peak memory of a fresh process each. Run it on an idle machine.
    Takes up to twenty minutes. Writes speed-PROCESSOR.json and speed-PROCESSOR.png, where PROCESSOR names the model and
    the vector instructions that the kernel ran with: figures of different processors are not mixed.

    Args:
        out: folder for the numbers and the picture.
        threads: number of threads that torch may use.
        seconds: time for each layer, mode and implementation; each is run three times at least.
        quick: measure only the layers with 256 channels, and not the memory.
    """
    if native.MISSING:
        raise ValueError(f"the native kernel cannot run, so there is nothing to compare: {native.MISSING}.")
    if threads < 1:
        raise ValueError(f"--threads needs at least 1; got {threads}.")
    need("matplotlib", "cli")
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    cases = [case for case in measuring.CASES if case.channels == 256 and case.batch == 1] if quick else measuring.CASES
    rows = []
    for row in measuring.measure(cases, seconds, memory=not quick):
        rows.append(row)
        print(f"{row['dataset']:<42} {row['metric']:<24} {LABELS[row['name']]:<18} {row['value']:8.2f}", flush=True)
    budget = f"{seconds} s a case, mode and contender, at least {measuring.LEAST_ROUNDS} rounds"
    name = f"speed-{measuring.processor()}"
    circumstances = write_results(out / f"{name}.json", rows, budget=budget, seed=0)
    save(draw(rows, circumstances), out / f"{name}.png")
    print(f"Written: {out / name}.json, {out / name}.png")


def draw(rows: list[dict[str, Any]], circumstances: dict[str, Any]) -> Any:
    """Bars of time relative to Conv2d, on a logarithmic axis, one panel a mode."""
    figure = new_figure(12, 0.55 * len({r["dataset"] for r in rows}) + 1.8)
    panels = figure.subplots(1, 2, sharey=True)
    colours = {"unfold": GREY, "reference": GREEN, "native": INDIGO}
    for axis, mode in zip(panels, measuring.MODES, strict=True):
        chosen = [r for r in rows if r["table"] == "speed" and r["metric"].startswith(mode)]
        names = list(dict.fromkeys(r["dataset"] for r in chosen))
        for offset, (name, colour) in enumerate(colours.items()):
            values = [next(r["value"] for r in chosen if r["dataset"] == d and r["name"] == name) for d in names]
            places = [i + 0.27 * (offset - 1) for i in range(len(names))]
            bars = axis.barh(places, values, height=0.25, color=colour, label=LABELS[name])
            axis.bar_label(bars, fmt="%.2f", padding=3, fontsize=7, bbox={"color": "white", "pad": 0.3})
        axis.axvline(1, color="black", linewidth=1, zorder=0)
        axis.set_xscale("log")
        axis.margins(x=0.18, y=0.02)
        axis.set_yticks(range(len(names)), names)
        axis.set_title({"forward": "inference", "training": "forward and backward"}[mode])
        axis.set_xlabel("time / Conv2d of the same size (left is faster)")
    panels[0].invert_yaxis()
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supxlabel(
        f"{circumstances['threads']} threads, {circumstances['machine']}, torch {circumstances['torch']}", fontsize=8
    )
    return figure
