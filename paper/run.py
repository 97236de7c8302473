"""Train the networks of the paper's tables, as a queue that can be stopped and started again at any moment.

    python -m paper.run --data DIR                 # DIR has the folders that paper/runs.py names; two runs at once
    python -m paper.run --data DIR --only cifar10  # the runs whose names contain this, or one of several words
    python -m paper.run --data DIR --at-once 1 --threads 2    # one after the other: a long one is done sooner
    python -m paper.run --collect --data DIR       # train nothing, only collect the runs that are complete

Runs are in runs/paper. A run that is complete, there or in results/*.json, is not repeated (unless with --again). One
that was stopped is resumed. Ctrl-C (or SIGTERM) lets each run save its state first. When the queue is empty, the
figures are collected: see paper/collect.py.
"""

import argparse
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from paper.collect import collect
from paper.runs import FOLDER, RUNS, PaperRun, weights_of

# Tell glibc to keep what a training step frees, because the next step needs it again.
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(2**32), "MALLOC_TRIM_THRESHOLD_": str(2**33)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the folder of the datasets")
    parser.add_argument("--only", nargs="+", default=[""], metavar="WORD", help="only runs with WORD in their names")
    parser.add_argument("--at-once", type=int, default=2, help="trainings at the same time")
    parser.add_argument("--threads", type=int, default=1, help="threads of each training")
    parser.add_argument("--again", action="store_true", help="also runs whose figures are in results/*.json")
    parser.add_argument("--collect", action="store_true", help="train nothing; collect the runs that are complete")
    options = parser.parse_args()
    if not options.collect:
        if options.data is None:
            parser.error("--data is needed: the folder of the datasets")
        wait_for(wanted(options.only, options.again), options)
    collect(options.data)


def wanted(words: list[str], again: bool) -> list[PaperRun]:
    """The runs with one of these words in their names that are not complete, nor saved unless again."""
    # Two tables may share a run.
    open_runs = {run.name: run for run in RUNS if any(word in run.name for word in words) and not run.is_complete}
    return [run for run in open_runs.values() if again or not run.is_saved]


def wait_for(runs: list[PaperRun], options: argparse.Namespace) -> None:
    """Train these, some at once. Ctrl-C goes to all of them, and they save their state."""
    waiting = list(runs)
    running: dict[PaperRun, subprocess.Popen[bytes]] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C
    lock = only_queue()
    try:
        while waiting or running:
            ready = [run for run in waiting if run.begins_with is None or weights_of(run.begins_with).exists()]
            if not ready and not running:
                first = waiting[0]
                sys.exit(f"{first.recipe} starts from the weights of {first.begins_with}: run that first, with --again")
            for run in ready[: options.at_once - len(running)]:
                waiting.remove(run)
                running[run] = start(run, options.data, options.threads, lock)
            time.sleep(1)
            for run, process in list(running.items()):
                if process.poll() is not None:
                    del running[run]
                    print(f"{run.name}: {'complete' if process.returncode == 0 else f'failed, see {run.log}'}")
    except KeyboardInterrupt:
        for process in running.values():
            process.send_signal(signal.SIGINT)
        for process in running.values():
            process.wait()
        sys.exit("stopped; the same command resumes")


def only_queue() -> int:
    """A lock that this queue and its trainings hold, so that no second queue writes into the same folders."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    lock = os.open(FOLDER / ".lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another queue, or a training that it started, is still working in {FOLDER}")
    return lock


def start(run: PaperRun, data: Path, threads: int, lock: int) -> "subprocess.Popen[bytes]":
    program = ["-m", "paper.winograd" if run.winograd else "acda"]
    command = [sys.executable, *program, "train", run.recipe, "--data", str(data / run.folder)]
    command += ["--out", str(run.out), "--threads", str(threads)]
    command += run.settings
    if (run.out / "checkpoints" / "last.ckpt").exists():
        command += ["--resume"]
    elif run.begins_with:
        command += ["--initial", str(weights_of(run.begins_with))]
    print(f"{run.name}: {'resumed' if '--resume' in command else 'started'}", flush=True)
    with run.log.open("a") as log:
        # In its own process group, so that Ctrl-C reaches it once, through the queue.
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
    """Before a training starts: lower its priority, and let Ctrl-C stop it even where the queue ignores it."""
    os.nice(10)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


if __name__ == "__main__":
    main()
