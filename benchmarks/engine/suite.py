"""Compares optimisers on training of five sources (see `engine.tasks`) at equal total cost, with paired seeds.

    python benchmarks/engine/suite.py --methods protein random tpe --seeds 10 --processes 2
    python benchmarks/engine/suite.py --table                     # from what was measured before: nothing is run
    python benchmarks/engine/suite.py --figure docs/images/engine.svg
    python benchmarks/engine/suite.py --ablations                 # the engine's settings against the engine as shipped
    python benchmarks/engine/suite.py --sources rl surrogate --half held-out --seeds 5 --budgets 25 50
    python benchmarks/engine/suite.py --blind                     # without an initial config

Each cell (method, family, seed, budget, with or without an initial config) is one line of a JSON-lines file and is run
once. Stop at any time and run again: it continues. Files of two machines or runs are merged by `cat`; of several lines
for one cell, the last counts. A line `{"header": ...}` names the machine and the commit of the lines below it.
`engine.cells` defines a cell's figures, and `engine.report` averages and compares them.
"""

import argparse
import contextlib
import json
import multiprocessing
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
from engine import recorded
from engine.cells import BLIND, DEFAULT, run_cell
from engine.methods import PEERS, SLOW
from engine.report import OURS, ablations, tables
from engine.tasks import DEVELOPMENT, FAMILIES, HELD_OUT, SOURCES
from engine.variants import variant

from protein.errors import UsageError

RESULTS = machine.RESULTS / "engine_suite.jsonl"
INITIAL = machine.RESULTS / "engine_initial.json"  # `initial` by family and seed, of cells that were run without it
BUDGETS = (25.0, 60.0)  # mean random-trial costs
TRIAL_CAPS = {25.0: 120, 50.0: 240, 60.0: 200}
_OTHER_HALF = {"development": HELD_OUT, "held-out": DEVELOPMENT}
_LARGEST_CAP = 200

Row = dict[str, Any]
Key = tuple[str, str, int, float, str]
Job = tuple[str, str, int, tuple[tuple[float, int], ...], str]


def key(row: Row) -> Key:
    """Returns what identifies a cell."""
    return row["method"], row["family"], row["seed"], row["budget"], row["start"]


def read(path: Path) -> list[Row]:
    """Returns the cells of a file, each once, in the order of their first line; none where there is no file."""
    if not path.exists():
        return []
    lines = [{"start": DEFAULT} | json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    rows = list({key(row): row for row in lines if "trace" in row}.values())
    initial = json.loads(INITIAL.read_text())
    for row in rows:
        if "initial" not in row and str(row["seed"]) in initial.get(row["family"], {}):
            row["initial"] = initial[row["family"]][str(row["seed"])]
    return rows


def missing(
    rows: Iterable[Row],
    methods: Sequence[str],
    families: Sequence[str],
    seeds: Iterable[int],
    budgets: Sequence[float],
    start: str = DEFAULT,
) -> list[Job]:
    """Returns what is left to run: seed by seed, so that pairs are complete early, the slow methods first."""
    done = {key(row) for row in rows}
    order = sorted(methods, key=lambda method: method not in SLOW)
    jobs = []
    for seed in seeds:
        for method in order:
            for family in families:
                limits = tuple(
                    (budget, TRIAL_CAPS.get(budget, _LARGEST_CAP))
                    for budget in budgets
                    if (method, family, seed, budget, start) not in done
                )
                if limits:
                    jobs.append((method, family, seed, limits, start))
    return jobs


def run(jobs: Sequence[Job], path: Path, processes: int) -> None:
    """Runs jobs and appends their cells to a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(path.open("a"))
        file.write(json.dumps({"header": machine.describe(), "surrogates": recorded.errors()}) + "\n")
        done: Iterable[list[Row]] = map(_run, jobs)
        if processes > 1:
            pool = stack.enter_context(multiprocessing.get_context("spawn").Pool(processes))
            done = pool.imap_unordered(_run, jobs, chunksize=1)
        for rows in done:
            file.writelines(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
            file.flush()


def _run(job: Job) -> list[Row]:
    return run_cell(*job)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs what is missing, or only reports. A mistake on the command line gives one line and exit code 2."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", help="default: protein and every peer")
    parser.add_argument("--sources", nargs="+", default=list(SOURCES), choices=SOURCES)
    parser.add_argument("--families", nargs="+", choices=FAMILIES, metavar="FAMILY", help="default: all of the sources")
    parser.add_argument("--half", choices=list(_OTHER_HALF), help="of the families that are split; default: both")
    parser.add_argument("--blind", action="store_true", help="without an initial config")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budgets", type=float, nargs="+", default=list(BUDGETS), help="in mean random-trial costs")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    parser.add_argument("--ablations", action="store_true", help="run nothing, print the engine's settings")
    parser.add_argument("--figure", type=Path, help="run nothing, draw best-so-far and hypervolume over the budget")
    arguments = parser.parse_args(argv)
    methods = arguments.methods or ["protein", *PEERS]
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    start = BLIND if arguments.blind else DEFAULT
    families = arguments.families or [family for source in arguments.sources for family in SOURCES[source]]
    families = [family for family in families if family not in _OTHER_HALF.get(arguments.half, ())]
    try:
        if min(arguments.budgets) <= 0 or arguments.seeds < 1 or arguments.processes < 1:
            raise UsageError("budgets must be above 0, seeds and processes at least 1")
        check_methods(methods)
        rows = read(arguments.file)
        if not (arguments.table or arguments.ablations or arguments.figure):
            jobs = missing(rows, methods, families, seeds, arguments.budgets, start)
            run(jobs, arguments.file, arguments.processes)
            rows = read(arguments.file)
        rows = [r for r in rows if r["family"] in families and r["seed"] in seeds]
        rows = [r for r in rows if r["budget"] in arguments.budgets and r["start"] == start]
        if arguments.methods is not None:
            rows = [r for r in rows if r["method"] in methods]
        _check_rows(rows, arguments)
    except UsageError as error:
        parser.exit(2, f"error: {error}\n")
    if arguments.figure:
        from engine.figure import draw

        draw(rows, arguments.budgets, arguments.figure)
        print(f"written: {arguments.figure}")
        return
    for budget in arguments.budgets:
        cells = [row for row in rows if row["budget"] == budget]
        if cells:
            report = ablations if arguments.ablations or all(_is_variant(row) for row in cells) else tables
            condition = "without an initial config" if arguments.blind else "with the initial config"
            cap = f"at most {max(row['cap'] for row in cells)} trials"
            print(f"\nbudget {budget:g} mean random-trial costs, {cap}, {condition}")
            print("\n".join(report(cells)))


def check_methods(methods: Iterable[str]) -> None:
    """Raises `UsageError` for an unknown method, or an unknown setting of ours."""
    for method in methods:
        name, _, settings = method.partition(":")
        if name == OURS:
            variant(settings)
        elif method not in PEERS:
            raise UsageError(f"unknown method {method!r}; known: {OURS}, {', '.join(PEERS)}")


def _check_rows(rows: Sequence[Row], arguments: argparse.Namespace) -> None:
    """Raises `UsageError` where nothing was measured yet: names the missing file and the command for it."""
    path, script = arguments.file, "python benchmarks/engine/suite.py"
    words = "" if path == RESULTS else f" --file {path}"
    changed = [row for row in rows if _is_variant(row)]
    if not path.exists():
        raise UsageError(f"there is no file {path}; run {script}{words} to measure, it takes hours")
    if not rows:
        raise UsageError(
            f"{path} has no cell of these methods, families, seeds and budgets; measure them with the same words"
            " but without --table, --ablations or --figure"
        )
    if arguments.ablations and not changed:
        raise UsageError(
            f"{path} has no cell of a changed setting; run {script}{words} --methods {OURS} {OURS}:price_floor=0.1"
        )
    if arguments.figure and len(changed) == len(rows):
        raise UsageError(
            f"{path} has changed settings of the engine alone; run {script}{words} --methods {OURS} random"
        )


def _is_variant(row: Row) -> bool:
    return str(row["method"]).startswith(f"{OURS}:")


if __name__ == "__main__":
    main()
