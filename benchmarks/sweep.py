"""The cost of the engine and the store: their share of a real sweep's wall clock.

    python benchmarks/sweep.py [--minutes 10]

Runs `protein sweep --env pong` on a fresh store and reads what it stored. The wall clock is measured from the first
trial's start to the last one's end: the time that loading Python takes would only lower the share.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import machine

from protein import storage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of training: the sweep's budget")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        budget = f"{round(60 * arguments.minutes)}s"
        protein = Path(sys.executable).with_name("protein")
        done = subprocess.run(
            [protein, "sweep", "--env", "pong", "--max-cost", budget],
            cwd=folder,
            check=True,
            capture_output=True,
            text=True,
        )
        store = storage.open_store(f"{folder}/runs/protein.db")
        sweep = store.find_sweep("pong")
        assert sweep is not None
        trials = [trial for trial in store.trials(sweep.id) if trial.finished_at is not None]
        store.close()
    share = next(line for line in done.stdout.splitlines() if line.startswith("the engine took"))
    ends = [trial.finished_at for trial in trials if trial.finished_at is not None]
    wall = (max(ends) - trials[0].started_at).total_seconds()
    suggest = sum(trial.suggest_seconds for trial in trials)
    training = sum(trial.cost_seconds for trial in trials)
    started = sum(trial.timings.get("startup", 0.0) for trial in trials)
    evaluated = sum(trial.timings.get("evaluation", 0.0) for trial in trials)
    parts = {
        "wall clock, first start to last end": wall,
        "training (the budget)": training,
        "starting trials": started,
        "evaluating trials": evaluated,
        "suggest": suggest,
    }
    rows = [{"part": part, "seconds": seconds, "share": seconds / wall} for part, seconds in parts.items()]
    print(machine.headline())
    print(f"{len(trials)} trials of pong in a sweep of {arguments.minutes:g} minutes of training")
    for part, seconds in parts.items():
        print(f"{part:<40}{seconds:>10.2f} s{100 * seconds / wall:>8.2f} %")
    print(f"suggest and store together, as the sweep itself counted: {share}")
    machine.write_result("sweep", rows, threads=machine.cores(), trials=len(trials), counted=share)


if __name__ == "__main__":
    main()
