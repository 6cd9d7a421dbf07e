"""What it costs to look at big sweeps: the store's answers, the commands that read, a sweep that is taken up again.

    python benchmarks/view.py                                   50 and 100,000 trials with 100 curve points each
    python benchmarks/view.py --sizes 1000x100 10000x100

Each figure is taken in a process of its own: wall clock, CPU seconds and the largest memory. On a busy machine the CPU
seconds say more. Calls of the store are measured without the interpreter's start and imports, commands with them.
`benchmarks/view_page.py` measures the page in a browser.
"""

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import big_store
import machine

from protein.columns import DOT_FIELDS
from protein.ports import Store
from protein.storage import open_store
from protein.sweep.trials import read_trials

PROTEIN = str(Path(sys.executable).parent / "protein")
COMMANDS = {
    "protein --help": ("--help",),
    "protein status": ("status",),
    "protein status NAME": ("status", "big"),
    "protein pareto": ("pareto", "big"),
    "protein best": ("best", "big"),
}
KEPT = ("protein status NAME", "protein pareto", "protein best")  # whose answers are kept until a trial has finished
GOAL_SECONDS = 1.0  # of `status`, `pareto` and `best` of 100,000 trials
GOAL_CPU_SECONDS = 0.6  # of `status` and `best` of 50 trials, asked again: a sweep that ends leaves its answers kept


def _changes(store: Store) -> Callable[[], object]:
    cursor = store.columns(1).cursor
    return lambda: store.columns(1, cursor)


# What a process does before the clock starts, given the store, and what is measured then.
CALLS: dict[str, Callable[[Store], Callable[[], object]]] = {
    "summaries": lambda store: lambda: store.summaries(),
    "columns of a front": lambda store: lambda: store.columns(1, fields=DOT_FIELDS),
    "all columns": lambda store: lambda: store.columns(1),
    "what changed since a cursor": _changes,
    "200 curves, 800 points each": lambda store: lambda: store.curves(1, range(200), 800),
    "200 curves, thinned to 50": lambda store: lambda: store.curves(1, range(200), 50),
    "one trial": lambda store: lambda: store.trial(1, 5),
    "wishes": lambda store: lambda: store.wishes(1),
    "a sweep is taken up": lambda store: lambda: read_trials(store, 1),
}


def measure_call(name: str, path: str) -> dict[str, float]:
    """Returns what one call takes, in this process, and by how much the memory grew at most."""
    store = open_store(path)
    call = CALLS[name](store)
    before = _peak_megabytes()
    began, cpu = time.perf_counter(), time.process_time()
    call()
    return {
        "seconds": time.perf_counter() - began,
        "cpu_seconds": time.process_time() - cpu,
        "megabytes": _peak_megabytes() - before,
    }


def _peak_megabytes() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


# A process of little memory: what its child needs at most is not below what the parent held when it was forked.
_LAUNCHER = """
import json, resource, subprocess, sys, time
began = time.perf_counter()
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
seconds, used = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
megabytes = used.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
print(json.dumps({"seconds": seconds, "cpu_seconds": used.ru_utime + used.ru_stime, "megabytes": megabytes}))
"""


def measure_process(command: Sequence[str]) -> dict[str, float]:
    """Returns what a whole process takes."""
    launched = [sys.executable, "-I", "-c", _LAUNCHER, *command]
    found: dict[str, float] = json.loads(subprocess.run(launched, capture_output=True, check=True).stdout)
    return found


def measure(path: Path, repeats: int) -> list[dict[str, Any]]:
    """Returns a row for each call and command: the run that took the least CPU."""
    rows = []
    for name in CALLS:
        command = [sys.executable, __file__, "--call", name, str(path)]
        runs = [json.loads(subprocess.run(command, capture_output=True, check=True).stdout) for _ in range(repeats)]
        rows.append({"what": f"store: {name}", **min(runs, key=lambda run: run["cpu_seconds"])})
    with tempfile.TemporaryDirectory() as cache:
        os.environ["XDG_CACHE_HOME"] = cache
        for name, words in COMMANDS.items():
            store = () if words == ("--help",) else ("--store", str(path))
            for when in ("", ", asked again") if name in KEPT else ("",):
                found = []
                for _ in range(repeats):
                    if not when:
                        shutil.rmtree(cache, ignore_errors=True)
                    found.append(measure_process([PROTEIN, *words, *store]))
                rows.append({"what": name + when, **min(found, key=lambda run: run["cpu_seconds"])})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=["50x100", "100000x100"], help="trials x points of each curve")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--call", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.call:
        print(json.dumps(measure_call(*arguments.call)))
        return
    print(machine.headline())
    rows = []
    for size in arguments.sizes:
        trials, points = (int(part) for part in size.split("x"))
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "big.db"
            began = time.perf_counter()
            big_store.make(path, trials=trials, points=points)
            made = f"made in {time.perf_counter() - began:.0f} s, {path.stat().st_size / 1e6:,.0f} MB"
            print(f"\n{trials:,} trials with {points:,} curve points each ({made})")
            print(f"{'':<36}{'wall':>10}{'CPU':>10}{'memory':>12}")
            for row in measure(path, arguments.repeats):
                rows.append({"trials": trials, "points": points, **row})
                print(
                    f"{row['what']:<36}{row['seconds']:>8.2f} s{row['cpu_seconds']:>8.2f} s{row['megabytes']:>9.0f} MB"
                )
    result = machine.write_result(
        "view", rows, repeats=arguments.repeats, goal_seconds=GOAL_SECONDS, goal_cpu_seconds=GOAL_CPU_SECONDS
    )
    print(f"\nwritten to {result.relative_to(machine.ROOT)}")


if __name__ == "__main__":
    main()
