"""Train the networks of the paper's tables, as a queue that can be stopped and started again at any moment.

    python paper/run.py --data DIR                 # DIR has the folders of ARMS; two runs at once, one thread each
    python paper/run.py --data DIR --only cifar10  # the runs whose names have this, or one of several words, in them
    python paper/run.py --data DIR --at-once 1 --threads 2    # one after the other: a long one is done sooner
    python paper/run.py --collect                  # results/*.json from the runs that are complete

Runs are in runs/paper. One that is complete, there or in results/*.json, is not run again (unless with --again), one
that was stopped goes on where it was. Ctrl-C (or SIGTERM) lets each run save its state first. Collecting happens by
itself when the queue is empty; figures of runs that are no longer there stay as they are.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from acda.cost import count
from acda.photos.weights import load
from acda.support.environment import write_results

HERE = Path(__file__).parent
RESULTS = HERE / "results"
RUNS = HERE.parent / "runs" / "paper"
# To glibc: what a step of a training has freed is wanted again by the next one.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)}


@dataclass(frozen=True)
class Arm:
    """One network of one table. size: of the images for which its cost is counted

    variant, settings: what the run's name and its command have beside the recipe's.
    winograd: whether its 3×3 convolutions are winograd.py's, not torch's
    """

    table: str
    dataset: str
    name: str
    recipe: str
    folder: str
    size: int
    begins_with: str | None = None
    variant: str = ""
    settings: tuple[str, ...] = ()
    winograd: bool = False

    @property
    def run(self) -> str:
        return self.recipe + self.variant

    @property
    def out(self) -> Path:
        return RUNS / self.run

    @property
    def log(self) -> Path:
        return RUNS / f"{self.run}.log"

    @property
    def training(self) -> dict[str, str]:
        """What its rows say of how it was trained."""
        return {"recipe": self.recipe, **({"convolutions": "paper/winograd.py's"} if self.winograd else {})}

    @property
    def is_complete(self) -> bool:
        return (self.out / "weights.safetensors").exists()

    @property
    def is_saved(self) -> bool:
        """Whether its figures are in a results file, whatever became of the run."""
        saved = {(row["dataset"], row["name"]) for row in read_results(self.table)["rows"] if "recipe" in row}
        return bool(saved & {(self.dataset, self.name), ("", self.name)})


def ablation(table: str, name: str, option: str, value: int, seed: int = 0) -> Arm:
    """An arm of the paper's Table B: `restorer` with another number of atoms, or another size, for 1,000 steps."""
    default = value == {"num_atoms": 6, "kernel_size": 7}[option]
    return Arm(
        table,
        "City100, iPhone" + (f", seed {seed}" if default else ""),
        name,
        "city100_restorer",
        "city100/City100_iPhoneX",
        96,
        variant="_1000" + ("" if default else f"_{option}_{value}") + (f"_seed_{seed}" if seed else ""),
        settings=(
            *("--epochs", "1", "--crops", "8000", "--seed", str(seed)),
            *(() if default else ("--options", option, str(value))),
        ),
    )


ARMS = [
    Arm("lenet", "CIFAR-10", "LeNet + ACDA", "cifar10_lenet_acda", "cifar10", 32),
    Arm("lenet", "CIFAR-100", "LeNet + ACDA", "cifar100_lenet_acda", "cifar100", 32),
    Arm("lenet", "CIFAR-10", "LeNet, as wide as ACDA costs", "cifar10_lenet_wide", "cifar10", 32),
    Arm("lenet", "CIFAR-100", "LeNet, as wide as ACDA costs", "cifar100_lenet_wide", "cifar100", 32),
    Arm("lenet", "CIFAR-10", "LeNet", "cifar10_lenet", "cifar10", 32),
    Arm("lenet", "CIFAR-100", "LeNet", "cifar100_lenet", "cifar100", 32),
    *(
        Arm("tinyimagenet20", "20 classes", name, f"tinyimagenet20_{model}", "tinyimagenet20", 64)
        for name, model in (("Ad-ResNet-s", "ad_resnet_s"), ("Baseline", "ad_resnet_s_conv"))
    ),
    *(
        Arm(
            "counting",
            "ShanghaiTech A",
            name,
            f"shanghaitech_a_crowd_counter_s{kind}",
            "shanghaitech/part_A",
            512,
            f"tinyimagenet20_ad_resnet_s{kind}",
        )
        for name, kind in (("Ad-ResNet-s", ""), ("Baseline", "_conv"))
    ),
    *(
        Arm("city100", "City100, iPhone", name, f"city100_{model}", "city100/City100_iPhoneX", 96)
        for name, model in (
            ("ACDA", "restorer"),
            ("the same with Conv2d 7×7", "restorer_conv"),
            ("the same with Conv2d 3×3", "restorer_conv_small"),
            ("KPN, l = 5", "kpn"),
            ("LP-KPN, l = 5", "lp_kpn"),
        )
    ),
    *(
        ablation("ablation_atoms", f"m = {m}", "num_atoms", m, seed)
        for m in (3, 5, 6, 7, 9, 11, 13, 15)
        for seed in ((0, 1) if m == 6 else (0,))
    ),
    *(
        ablation("ablation_scales", f"S = {s}", "kernel_size", 2 * s + 1, seed)
        for s in range(1, 6)
        for seed in ((0, 1) if s == 3 else (0,))
    ),
    *(
        Arm("denoising", "PolyU and SIDD", name, f"polyu_sidd_{model}", "denoising", 96, winograd=model == "dncnn")
        for name, model in (
            ("DnCNN", "dncnn"),
            ("ACDA + MSE", "restorer"),
            ("the same with Conv2d 7×7, MSE", "restorer_conv"),
            ("ACDA + variational", "restorer_variational"),
            ("ACDA + relative MSE", "restorer_relative"),
        )
    ),
    Arm(
        "denoising",
        "PolyU and SIDD",
        "DnCNN, as narrow as ACDA costs",
        "polyu_sidd_dncnn",
        "denoising",
        96,
        variant="_width_32",
        settings=("--options", "width", "32"),
        winograd=True,
    ),
]
GAIN = "error lower than LeNet's by, %"
RESTORED = {"PSNR": ("PSNR on Y, dB", 2), "SSIM": ("SSIM on Y", 4)}
# What a table shows of the last epoch's scores, and to how many digits. Denoising is scored set by set: restoration.py.
METRICS = {
    "lenet": {"error": ("top-1 error, %", 2)},
    "tinyimagenet20": {"error": ("top-1 error, %", 1)},
    "counting": {"MAE": ("MAE", 2), "root MSE": ("root MSE", 2)},
    "city100": RESTORED,
    "ablation_atoms": RESTORED,
    "ablation_scales": RESTORED,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD")
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--threads", type=int, default=1, help="of each training")
    parser.add_argument("--again", action="store_true", help="also what has its figures in results/*.json")
    parser.add_argument("--collect", action="store_true")
    options = parser.parse_args()
    if not options.collect:
        if options.data is None:
            parser.error("--data is needed: the folder of the datasets")
        # Arms of two tables may be one run.
        wanted = {arm.run: arm for arm in ARMS if any(word in arm.run for word in options.only) and not arm.is_complete}
        wait_for([arm for arm in wanted.values() if options.again or not arm.is_saved], options)
    collect()


def wait_for(arms: list[Arm], options: argparse.Namespace) -> None:
    """Run these, so many at once; Ctrl-C goes to all of them, and they save."""
    waiting = list(arms)
    running: dict[Arm, subprocess.Popen[bytes]] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    lock = only_queue()
    try:
        while waiting or running:
            ready = [arm for arm in waiting if arm.begins_with is None or weights_of(arm.begins_with).exists()]
            if not ready and not running:
                first = waiting[0]
                sys.exit(f"{first.recipe} begins with the weights of {first.begins_with}: run that first, with --again")
            for arm in ready[: options.at_once - len(running)]:
                waiting.remove(arm)
                running[arm] = start(arm, options.data, options.threads, lock)
            time.sleep(1)
            for arm, process in list(running.items()):
                if process.poll() is not None:
                    del running[arm]
                    print(f"{arm.run}: {'complete' if process.returncode == 0 else f'failed, see {arm.log}'}")
    except KeyboardInterrupt:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        sys.exit("stopped; the same command goes on")


def weights_of(recipe: str) -> Path:
    return RUNS / recipe / "weights.safetensors"


def only_queue() -> int:
    """A lock that lasts as long as this queue or any of its trainings, which inherit it: two would write one folder."""
    RUNS.mkdir(parents=True, exist_ok=True)
    lock = os.open(RUNS / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another queue, or a training that it left behind, still works in {RUNS}")
    return lock


def start(arm: Arm, data: Path, threads: int, lock: int) -> "subprocess.Popen[bytes]":
    acda = [str(HERE / "winograd.py")] if arm.winograd else ["-m", "acda"]
    command = [sys.executable, *acda, "train", arm.recipe, "--data", str(data / arm.folder)]
    command += ["--out", str(arm.out), "--threads", str(threads)]
    command += arm.settings
    command += ["--initial", str(weights_of(arm.begins_with))] if arm.begins_with else []
    command += ["--resume"] if (arm.out / "checkpoints" / "last.ckpt").exists() else []
    print(f"{arm.run}: {'goes on' if '--resume' in command else 'begins'}", flush=True)
    with arm.log.open("a") as log:
        # A group of its own: Ctrl-C reaches it once, through us. More threads than that would fight for the cores.
        return subprocess.Popen(
            command,
            stdout=log,
            stderr=log,
            env={**os.environ, "OMP_NUM_THREADS": str(threads), **KEEP_MEMORY},
            process_group=0,
            pass_fds=(lock,),
            preexec_fn=in_the_background,
        )


def in_the_background() -> None:
    """What a training does before it begins: let others go first, and hear Ctrl-C also where the queue does not."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def collect() -> None:
    """The last epoch's scores of the runs that are complete, one results file a table."""
    for table in METRICS:
        if arms := [arm for arm in ARMS if arm.table == table and arm.is_complete]:
            save_rows(table, [row for arm in arms for row in rows_of(arm)], trained_how(arms))


def read_results(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else {"rows": [], "circumstances": {}}


def save_rows(name: str, rows: list[dict[str, Any]], facts: dict[str, Any]) -> None:
    """results/NAME.json: these rows, and in ARMS' order among them the saved ones of runs that are no longer there."""
    earlier = read_results(name)
    fresh = {(row["dataset"], row["name"]) for row in rows}
    kept = [row for row in earlier["rows"] if (row["dataset"], row["name"]) not in fresh]
    order = {key: place for place, arm in enumerate(ARMS) for key in ((arm.dataset, arm.name), arm.name)}
    rows = sorted(kept + rows, key=lambda r: order.get((r["dataset"], r["name"]), order.get(r["name"], -1)))
    if name == "lenet":
        rows = [row for row in rows if row["metric"] != GAIN]
        rows += gains(rows)
    write_results(RESULTS / f"{name}.json", rows, **(also(facts, earlier["circumstances"]) if kept else facts))


def also(facts: dict[str, Any], earlier: dict[str, Any]) -> dict[str, Any]:
    """These circumstances, with the commits and the seeds of earlier ones."""
    merged = {**facts, "seeds": sorted({*facts["seeds"], *earlier["seeds"]})}
    for key in ("commit", "scored at"):
        commits = {commit for each in (facts, earlier) if key in each for commit in each[key].split(", ")}
        merged |= {key: ", ".join(sorted(commits))} if commits else {}
    return merged


def trained_how(arms: list[Arm]) -> dict[str, Any]:
    """The circumstances of these runs: where, with what, how long, which seeds."""
    found = []
    for arm in arms:
        recipe = json.loads((arm.out / "recipe.json").read_text())
        facts = json.loads((arm.out / "scores.json").read_text())["circumstances"]
        found.append({**facts, "budget": budget_of(recipe), "seeds": [recipe["seed"]]})
    return reduce(also, found)


def gains(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By what part the other networks' errors are lower than LeNet's, on each dataset."""
    errors = {(row["dataset"], row["name"]): row for row in rows if row["metric"] == METRICS["lenet"]["error"][0]}
    return [
        {**row, "metric": GAIN, "value": round(100 * (1 - row["value"] / base["value"]), 1)}
        for (dataset, name), row in errors.items()
        if name != "LeNet" and (base := errors.get((dataset, "LeNet")))
    ]


def budget_of(recipe: dict[str, Any]) -> str:
    epochs = f"{recipe['epochs']} epoch{'s' if recipe['epochs'] > 1 else ''}"
    crops = f" of {recipe['crops']:,} crops of {recipe['crop']}×{recipe['crop']}" if "crops" in recipe else ""
    return f"{epochs}{crops} in batches of {recipe['batch_size']}, {recipe['optimiser']}"


def hours_of(arm: Arm) -> float:
    """How long the training took."""
    epochs = json.loads((arm.out / "scores.json").read_text())["epochs"]
    return round(sum(epoch["seconds"] for epoch in epochs) / 3600, 2)


def rows_of(arm: Arm) -> list[dict[str, Any]]:
    epochs = json.loads((arm.out / "scores.json").read_text())["epochs"]
    cost = count(load(arm.out).model, (1, 3, arm.size, arm.size))
    seed = json.loads((arm.out / "recipe.json").read_text())["seed"]
    common = {"table": arm.table, "dataset": arm.dataset, "name": arm.name, **arm.training, "seed": seed}
    scores = [
        {**common, "metric": metric, "value": round(epochs[-1][key], digits), "hours": hours_of(arm)}
        for key, (metric, digits) in METRICS[arm.table].items()
    ]
    pixels = f"multiply-adds at {arm.size}×{arm.size}, M"
    return [
        *scores,
        {**common, "metric": "parameters, M", "value": round(cost.parameters / 1e6, 3)},
        {**common, "metric": pixels, "value": round(cost.multiply_adds / 1e6, 2)},
    ]


if __name__ == "__main__":
    main()
