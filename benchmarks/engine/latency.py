"""How long the engine takes for one suggestion, by number of parameters and of finished trials.

python benchmarks/engine/latency.py
"""

import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.tasks import make_task

from protein.sweep.methods import make_designer
from protein.types import Budget

REPEATS = 7
POINTS = (10, 25, 50, 100, 200, 1000, 10_000)
TASKS = {8: "deceptive", 10: "takeoff", 20: "wide"}


def main() -> None:
    """Prints the table and writes benchmarks/results/engine_latency.json."""
    rows = []
    for dims, family in TASKS.items():
        task = make_task(family, 0)
        designer = make_designer("protein", task.space, task.start)
        x = task.space.sample(max(POINTS), np.random.default_rng(0))
        history = [task.run(params, seed=0) for params in task.space.from_unit_many(x)]
        for points in POINTS:
            seconds = []
            for seed in range(REPEATS):
                began = time.perf_counter()
                suggestion = designer.suggest(history[:points], [], Budget(remaining_seconds=1e4), seed)
                seconds.append(time.perf_counter() - began)
                assert suggestion is not None
            rows.append({"dims": dims, "points": points, "median_seconds": round(statistics.median(seconds), 4)})
    print(machine.headline())
    print(f"median of {REPEATS} suggestions, one thread")
    print("dims  " + "".join(f"{points:>9}" for points in POINTS) + "  finished trials")
    for dims in TASKS:
        line = [row["median_seconds"] for row in rows if row["dims"] == dims]
        print(f"{dims:>4}  " + "".join(f"{value:>7.3f} s" for value in line))
    print(f"written: {machine.write_result('engine_latency', rows, threads=1)}")


if __name__ == "__main__":
    main()
