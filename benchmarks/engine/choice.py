"""The loss between the best config that a sweep tried and the one that it hands over: where it is, what could save it.

    python benchmarks/engine/choice.py --methods protein:num_continued=4 tpe random --seeds 8 --processes 2
    python benchmarks/engine/choice.py --table       # from what was measured before: nothing is run

On the tables of reinforcement learning, whose luck is known. Each method searches with 25 mean random-trial costs, and
this project's recommender chooses among its trials. All figures are true scores, normalised as in `engine.cells`.

    measured   of what measured best
    handed     of what the recommender takes
    ideal      of what a chooser takes that knows what no engine can: the smoothness of the landscape (a Gaussian
               process fitted to the truth at 160 random configs) and the variance of the luck of each trial. So it is
               about as much as any choice among these trials can give
    tried      the highest of all configs that were trained to their end. It is chosen with hindsight
    longer     of what the recommender takes, had it been trained for the most steps
    longest    the highest of all configs that were trained to their end, had each been trained for the most steps
    steps      what the recommender takes was trained for this share of the most steps
    price      what going on from there to the most steps takes of the budget
"""

import argparse
import functools
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy loads: one process, one thread
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MKL_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import machine
import numpy as np
from engine.cells import play
from engine.methods import Engine, make_method
from engine.reference import Reference, reference
from engine.rl import OURS, RlTask, make_rl
from engine.suite import TRIAL_CAPS, check_methods
from engine.tasks import DEVELOPMENT
from numpy.typing import NDArray

from protein.engine import gp
from protein.engine.history import complete_runs
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.errors import UsageError
from protein.types import Observation, TrialState

Array = NDArray[np.float64]
Row = dict[str, Any]

RESULTS = machine.RESULTS / "engine_choice.jsonl"
BUDGET = 25.0  # mean random-trial costs
FIRST_SEED = 100  # fresh ones
FIGURES = ("measured", "handed", "ideal", "tried", "longer", "longest", "steps", "price")
_NUM_KNOWN = 160  # configs at which the ideal chooser knows the truth
_NUM_RESAMPLED = 2000


def run_one(job: tuple[str, str, int]) -> Row:
    """Runs one method on one table and returns its figures."""
    name, family, seed = job
    task = make_rl(family, seed)
    scale = reference(task)
    total = BUDGET * scale.mean_cost
    method = make_method(name, task.space, task.start, seed)
    if isinstance(method, Engine):
        method.recommends = False  # asked at the end alone
    history = play(task, method, total_seconds=total, cap=TRIAL_CAPS[BUDGET], seed=seed).history
    return {"method": name, "family": family, "seed": seed} | figures(task, scale, history, total)


def figures(task: RlTask, scale: Reference, history: Sequence[Observation], total_seconds: float) -> Row:
    """Returns a run's figures: see the head of this file."""
    table, space = task.table, task.space
    groups, x = complete_runs(space, history)

    def normalised(score: Array) -> Array:
        return np.maximum(scale.normalise(score), 0.0)

    truth = normalised(np.array([task.true_score(history[group[0]]) for group in groups]))
    longer = normalised(table.at(table.course(x), np.full(len(x), table.steps[-1])))
    chosen = best(contenders(space, history))
    assert chosen is not None
    taken = next(i for i, group in enumerate(groups) if group[0] == chosen.trials[0])
    measured = max((o for o in history if o.score is not None), key=lambda o: o.score or 0.0)
    share = float(table.steps_of(x)[taken] / table.steps[-1])
    cost = history[chosen.trials[0]].run_seconds
    found = {
        "measured": normalised(np.array([task.true_score(measured)]))[0],
        "handed": truth[taken],
        "ideal": truth[int(np.argmax(ideal_mean(task, history, x)))],
        "tried": truth.max(),
        "longer": longer[taken],
        "longest": longer.max(),
        "steps": share,
        "price": cost * (1.0 / share - 1.0) / total_seconds,
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def ideal_mean(task: RlTask, history: Sequence[Observation], x: Array) -> Array:
    """Returns what the ideal chooser expects at `m x d` points, `m`, of what was measured.

    Of trials that continue each other only the last counts, because they share their luck.
    """
    table, space = task.table, task.space
    process, line, sd = _landscape(task.name)
    continued = {o.continues for o in history if o.score is not None}
    ends = [o for o in history if o.score is not None and o.number not in continued]
    u = np.array([space.to_unit(o.params) for o in ends])
    complete = np.array([o.state is TrialState.COMPLETE for o in ends])
    reached = np.array([float(o.curve[-1].steps) for o in ends])
    steps = np.where(complete, table.steps_of(u), reached)
    u[:, -1] = space.parameters[-1].encode(np.round(steps).astype(np.float64))
    ran = (table.breaks >= 0)[..., None]
    squares = np.sum(np.where(ran, table.luck**2, 0.0), axis=1) / np.maximum(np.sum(ran, axis=1), 1)
    luck = np.maximum(table.at(table.weights(u) @ squares, steps), 0.0) / sd**2
    scores = np.array([o.score for o in ends], dtype=np.float64)
    inputs = space.features(u)
    covariance = process.kernel(inputs, inputs)
    covariance.flat[:: len(u) + 1] += luck + process.noise
    weights = np.linalg.solve(covariance, (scores - line[0] - line[1] * u[:, -1]) / sd)
    mean = process.kernel(space.features(x), inputs) @ weights
    return np.asarray(line[0] + line[1] * x[:, -1] + sd * mean)


@functools.cache
def _landscape(family: str) -> tuple[gp.GaussianProcess, Array, float]:
    """Returns a process over the true scores around a line over the steps, the line, and the scores' deviation."""
    task = make_rl(family, 0)
    u = task.space.sample(_NUM_KNOWN, np.random.default_rng(5))
    score, _, _ = task.table.final(u)
    design = np.column_stack([np.ones(len(u)), u[:, -1]])
    line, sd = np.linalg.lstsq(design, score, rcond=None)[0].astype(np.float64), float(score.std())
    prior = gp.Prior(
        log_lengthscale=(-0.3 + 0.5 * math.log(task.space.num_dims / 8.0), gp.LENGTHSCALE_SD),
        log_outputscale=(0.0, 1.0),
        log_noise=(math.log(1e-3), 1.5),
    )
    process = gp.fit(task.space.features(u), (score - design @ line) / sd, task.space.feature_groups(), prior)
    return process, line, sd


def table(rows: Sequence[Row]) -> list[str]:
    """Returns the means of each method on each half of the tables, and differences to `handed` with 90 % intervals."""
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        for half in ("development", "held-out"):
            own = [r for r in rows if r["method"] == method and (r["family"] in DEVELOPMENT) == (half == "development")]
            if not own:
                continue
            lines += ["", f"{method}, {half}, {len(own)} runs"]
            for name in FIGURES:
                line = f"  {name:<9} {np.mean([row[name] for row in own]):.3f}"
                if name in ("measured", "ideal", "tried", "longer"):
                    line += "  {:+.3f} [{:+.3f}, {:+.3f}]".format(*_difference(own, name))
                lines.append(line)
    return lines[1:]


def _difference(rows: Sequence[Row], name: str) -> tuple[float, float, float]:
    """Returns the mean of a figure less `handed`, and its 90 % interval over seeds inside the families."""
    rng = np.random.default_rng(0)
    gaps: dict[str, list[float]] = {}
    for row in rows:
        gaps.setdefault(row["family"], []).append(row[name] - row["handed"])
    draws = [(np.array(own), rng.integers(0, len(own), (_NUM_RESAMPLED, len(own)))) for own in gaps.values()]
    drawn = [own[chosen].mean(axis=1) for own, chosen in draws]
    mean = float(np.mean([np.mean(own) for own in gaps.values()]))
    low, high = np.quantile(np.mean(drawn, axis=0), [0.05, 0.95])
    return mean, float(low), float(high)


def main(argv: Sequence[str] | None = None) -> None:
    """Runs what is missing, and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", nargs="+", default=["protein:num_continued=4", "tpe", "random"])
    parser.add_argument("--families", nargs="+", default=list(OURS), choices=OURS, metavar="FAMILY")
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--file", type=Path, default=RESULTS)
    parser.add_argument("--table", action="store_true", help="run nothing, print what is there")
    arguments = parser.parse_args(argv)
    try:
        if arguments.seeds < 1 or arguments.processes < 1:
            raise UsageError("seeds and processes must be at least 1")
        check_methods(arguments.methods)
    except UsageError as error:
        parser.exit(2, f"error: {error}\n")
    rows = _read(arguments.file)
    done = {(row["method"], row["family"], row["seed"]) for row in rows}
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    jobs = [(m, f, s) for s in seeds for m in arguments.methods for f in arguments.families if (m, f, s) not in done]
    if jobs and not arguments.table:
        with arguments.file.open("a") as file, multiprocessing.get_context("spawn").Pool(arguments.processes) as pool:
            file.write(json.dumps({"header": machine.describe()}) + "\n")
            for row in pool.imap_unordered(run_one, jobs):
                file.write(json.dumps(row, separators=(",", ":")) + "\n")
                file.flush()
        rows = _read(arguments.file)
    wanted = [row for row in rows if row["method"] in arguments.methods and row["family"] in arguments.families]
    if not wanted:
        parser.exit(2, f"error: {arguments.file} has no run of these methods; leave out --table to run them\n")
    print("\n".join(table(wanted)))


def _read(path: Path) -> list[Row]:
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [row for row in lines if "method" in row]


if __name__ == "__main__":
    main()
