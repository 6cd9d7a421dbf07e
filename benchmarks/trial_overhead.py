"""What it costs to run a trial that does nothing: of a command beyond its own start, and on Ray beyond this machine.

    python benchmarks/trial_overhead.py

A trial is timed from `Backend.start` until its `Finished` has come, one after the other. The program of a command
prints one result and ends. `own start` is the same program, started and waited for by Python's `subprocess`. On Ray (a
cluster of one node on this machine) a trial is that of the local backend, in a process forked from a server; so its
overhead is what it takes longer than there. First trials are left out: they start servers, and connect.
"""

import argparse
import contextlib
import functools
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import machine
import nothing

from protein.ports import Backend, Finished, Job
from protein.run.command import CommandBackend, CommandSettings
from protein.run.trainer import TrainerBackend
from protein.types import Direction, Trial, TrialState

ENTRY = "nothing:main"
PROGRAM = (sys.executable, "-S", "-c", f"print({json.dumps(json.dumps(nothing.RESULT))})")
WARM_UP = 3  # trials that are not counted


def run_trial(backend: Backend, folder: Path, number: int) -> float:
    """Returns the seconds from the start of a trial until its end is known."""
    trial = Trial(id=number, sweep_id=1, number=number, params={}, seed=0, owner="benchmark")
    settings = CommandSettings(text=shlex.join(PROGRAM).replace("{", "{{").replace("}", "}}"))
    config = {"train": {}, "seed": 0, "max_seconds": None, "command": settings.to_dict()}
    began = time.perf_counter()
    backend.start(
        Job(trial=trial, config=config, directory=folder / str(number), max_seconds=None, max_memory_bytes=None)
    )
    while True:
        for event in backend.poll(1.0):
            if isinstance(event, Finished):
                assert event.outcome.state is TrialState.COMPLETE, event.outcome.reason
                return time.perf_counter() - began


def run_plainly(number: int) -> float:
    began = time.perf_counter()
    subprocess.run(PROGRAM, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def on_ray(folder: Path) -> Backend:
    from protein.run.fleet import Fleet
    from protein.run.ray import Needs, RayTransport
    from protein.run.slot import SlotSettings, put_probe

    make = functools.partial(TrainerBackend, entry=ENTRY, preload=())
    settings = SlotSettings(make_backend=make, artifacts=folder, probe=put_probe(folder), search_path=tuple(sys.path))
    return Fleet(RayTransport(None, Needs(cores=1.0)), settings)


@contextlib.contextmanager
def timed(kind: str) -> Iterator[Callable[[int], float]]:
    """Yields what runs one trial of a kind, given its number, and returns the seconds it took."""
    if kind == "own start":
        yield run_plainly
        return
    makers: dict[str, Callable[[Path], Any]] = {
        "command": lambda _: CommandBackend(Direction.MAXIMIZE),
        "local": lambda _: TrainerBackend(entry=ENTRY, preload=()),
        "ray": on_ray,
    }
    with tempfile.TemporaryDirectory() as folder:
        backend = makers[kind](Path(folder))
        try:
            yield lambda number: run_trial(backend, Path(folder), number)
        finally:
            backend.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--kinds", nargs="+", default=["own start", "command", "local", "ray"])
    parser.add_argument("--no-result", action="store_true", help="only print")
    arguments = parser.parse_args()
    print(machine.headline())
    taken: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        run = {kind: stack.enter_context(timed(kind)) for kind in arguments.kinds}
        for number in range(WARM_UP + arguments.trials):  # in turn, so that other work on the machine meets all kinds
            for kind, one in run.items():
                seconds = one(number)
                if number >= WARM_UP:
                    taken.setdefault(kind, []).append(seconds)
    base = {"command": "own start", "ray": "local"}
    rows = []
    for kind, all_seconds in taken.items():
        row: dict[str, Any] = {"kind": kind, "trials": len(all_seconds)}
        row["median_ms"] = round(1e3 * statistics.median(all_seconds), 1)
        row["p90_ms"] = round(1e3 * statistics.quantiles(all_seconds, n=10)[-1], 1)
        if base.get(kind) in taken:
            over = [a - b for a, b in zip(all_seconds, taken[base[kind]], strict=True)]
            row["overhead_median_ms"] = round(1e3 * statistics.median(over), 1)
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if not arguments.no_result:
        print(f"written: {machine.write_result('trial_overhead', rows)}")


if __name__ == "__main__":
    main()
