"""How well the engine foresees what more budget buys, and what stopping by it saves.

    python benchmarks/engine/outlook.py --seeds 2

Runs the engine on each task (25 mean random-trial costs, at most 120 trials) and asks at moments of each run, with the
trials until then alone, by how much the best score and the front will rise after a tenth, a quarter, a half and all of
what was spent (`protein.engine.outlook`). What came is the true score of the recommended config, less that of the one
recommended before, or 0 where that is worse; for the front the mean rise of the best true score at cost <= t. Scores
are normalised: 0 the median random config, 1 the best known.

    n          forecasts;  none: share of them after which nothing rose (less than a thousandth of the scale)
    holds      share of the 80 % intervals that hold what came. They begin at 0, so nothing lies below them
    rose       mean rise;  expected: mean of the expected ones;  width: mean width of the intervals
    sharp      share of the intervals that end below .005
    q80        80 % quantile of what came over what was expected: `BEST_80` or `FRONT_80` where those are right

Stopping: each run ends at the first moment at which the expected rise of the best score, over a quarter of the budget,
is below a limit, given in percent of the scale. Saved: mean share of the budget that is left. Lost: mean difference of
the recommended config's true score to that after the whole budget; and the share of runs that lose more than .02. The
rows "always at" end every run at the same moment instead.

Constants were chosen on `DEVELOPMENT` and on seeds from 30 on (`engine.tasks`); the committed result is of the others.
"""

import argparse
import dataclasses
import json
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
import numpy as np
from engine.cells import Run, incumbents, play
from engine.methods import make_method
from engine.protocol import Task
from engine.reference import Reference, reference
from engine.tasks import FAMILIES, HELD_OUT, SOURCES, make_task
from numpy.typing import NDArray

from protein.engine.outlook import outlook
from protein.types import TrialState

RESULTS = machine.RESULTS / "engine_outlook.json"
MOMENTS = tuple(round(0.05 * i, 2) for i in range(2, 19))  # shares of the budget
RATIOS = (0.1, 0.25, 0.5, 1.0)  # of what was spent
LIMITS = (1.0, 2.0, 3.0, 5.0)  # percent of the scale, over a quarter of the budget
_NOTHING = 1e-3
_ROUNDING = 1e-9
_NUM_LEVELS = 24

Array = NDArray[np.float64]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Forecast:
    """One forecast, normalised: the expected rise, the end of its interval, and what came."""

    family: str
    what: str  # "best" or "front"
    ratio: float
    expected: float
    high: float
    came: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Moment:
    """A moment of a run: its share of the budget, what a quarter more should give, and the recommended truth."""

    share: float
    expected: float
    truth: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class Cell:
    """What was found on one task."""

    family: str
    seed: int
    forecasts: list[Forecast]
    moments: list[Moment]
    final: float  # truth of the recommended config at the end


def run_cell(family: str, seed: int, budget: float, cap: int) -> Cell:
    """Runs the engine on a task and compares its outlooks with what came."""
    task = make_task(family, seed)
    scale = reference(task)
    total = budget * scale.mean_cost
    run = play(task, make_method("protein", task.space, task.start, seed), total_seconds=total, cap=cap, seed=seed)
    truth = _truth(task, scale, run)
    held = incumbents(run.history, run.advice, truth)
    end = np.cumsum([o.cost_seconds for o in run.history])
    last = total if len(run.history) < cap else float(end[-1])  # the number of trials may end a run before the budget
    forecasts, moments = [], []
    for share in MOMENTS:
        n = _finished(end, share * last)
        ahead = outlook(task.space, run.history[:n]) if 0 < n < len(end) else None
        if ahead is None:
            continue
        unit = scale.best - scale.median
        expected = ahead.best(0.25 * last).expected / unit
        moments.append(Moment(share=share, expected=expected, truth=float(held[n - 1])))
        for ratio in RATIOS:
            seconds = ratio * float(end[n - 1])
            if end[n - 1] + seconds > last * (1.0 + _ROUNDING):
                continue
            later = _finished(end, float(end[n - 1]) + seconds)
            came = {"best": max(float(held[later - 1] - held[n - 1]), 0.0), "front": _front_rise(run, truth, n, later)}
            for what, rise in (("best", ahead.best(seconds)), ("front", ahead.front(seconds))):
                forecasts.append(
                    Forecast(
                        family=family,
                        what=what,
                        ratio=ratio,
                        expected=rise.expected / unit,
                        high=rise.high / unit,
                        came=came[what],
                    )
                )
    return Cell(family=family, seed=seed, forecasts=forecasts, moments=moments, final=float(held[-1]))


def _truth(task: Task, scale: Reference, run: Run) -> Array:
    """Returns the normalised true scores of a run's trials; NaN where there is no score."""
    truth = np.full(len(run.history), np.nan)
    scored = [i for i, o in enumerate(run.history) if o.score is not None]
    truth[scored] = scale.normalise(np.array([task.true_score(run.history[i]) for i in scored]))
    return truth


def _finished(end: Array, seconds: float) -> int:
    return int(np.searchsorted(end, seconds * (1.0 + _ROUNDING), side="right"))


def _front_rise(run: Run, truth: Array, before: int, after: int) -> float:
    """Returns the mean rise of the best true score at cost <= t, over ln t within the costs of the first trials."""
    complete = np.array([o.state is TrialState.COMPLETE for o in run.history])
    log_cost = np.log([o.cost_seconds for o in run.history])
    first = log_cost[:before][complete[:before]]
    low, high = float(np.min(first)), float(np.max(first))
    levels = low + (high - low) * (np.arange(_NUM_LEVELS) + 0.5) / _NUM_LEVELS

    def front(n: int) -> Array:
        reached = complete[None, :n] & (log_cost[None, :n] <= levels[:, None])
        return np.asarray(np.max(np.where(reached, truth[None, :n], -np.inf), axis=1))

    return float(np.mean(front(after) - front(before)))


def row(forecasts: Sequence[Forecast]) -> dict[str, float]:
    """Returns the figures of some forecasts: see the head of this file."""
    came, expected, high = (np.array([getattr(f, name) for f in forecasts]) for name in ("came", "expected", "high"))
    return {
        "n": len(forecasts),
        "none": round(float(np.mean(came < _NOTHING)), 3),
        "holds": round(float(np.mean(came <= high + _NOTHING)), 3),
        "rose": round(float(np.mean(came)), 4),
        "expected": round(float(np.mean(expected)), 4),
        "width": round(float(np.mean(high)), 4),
        "sharp": round(float(np.mean(high < 0.005)), 3),
        "q80": round(float(np.quantile(came[expected > 0] / expected[expected > 0], 0.8)), 2),
    }


def stopping(cells: Sequence[Cell], ends: Iterable[Moment | None]) -> dict[str, float]:
    """Returns what ending each run at a moment (None: at its end) saves and loses."""
    pairs = list(zip(cells, ends, strict=True))
    saved = [0.0 if moment is None else 1.0 - moment.share for _, moment in pairs]
    lost = np.array([0.0 if moment is None else cell.final - moment.truth for cell, moment in pairs])
    return {
        "saved": round(float(np.mean(saved)), 3),
        "lost": round(float(np.mean(lost)), 4),
        "lost_median": round(float(np.median(lost)), 4),
        "lost_much": round(float(np.mean(lost > 0.02)), 3),
    }


def results(cells: Sequence[Cell]) -> dict[str, Any]:
    """Returns all figures."""
    forecasts = [f for cell in cells for f in cell.forecasts]
    found: dict[str, Any] = {}
    for what in ("best", "front"):
        own = [f for f in forecasts if f.what == what]
        groups = {"all": own} | {f"ahead {ratio:g}": [f for f in own if f.ratio == ratio] for ratio in RATIOS}
        groups |= {source: [f for f in own if f.family in names] for source, names in SOURCES.items()}
        found[what] = {name: row(group) for name, group in groups.items() if group}
    rules = {}
    for limit in LIMITS:
        below = (next((m for m in cell.moments if m.expected < 0.01 * limit), None) for cell in cells)
        rules[f"below {limit:g} %"] = stopping(cells, below)
    for share in (0.6, 0.7, 0.8):
        then = ([m for m in cell.moments if m.share <= share] for cell in cells)
        rules[f"always at {share:g}"] = stopping(cells, (moments[-1] if moments else None for moments in then))
    return found | {"stopping": rules}


def main() -> None:
    """Runs the tasks, prints the table and writes the JSON file."""
    held_out = [family for family in FAMILIES if family not in SOURCES["rl"] and family not in SOURCES["real"]]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--families", nargs="+", default=[*held_out, *HELD_OUT], choices=FAMILIES)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=float, default=25.0, help="in mean random-trial costs")
    parser.add_argument("--cap", type=int, default=120, help="most trials")
    parser.add_argument("--file", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    cells = [run_cell(family, seed, arguments.budget, arguments.cap) for seed in seeds for family in arguments.families]
    found = results(cells)
    print(machine.headline())
    print(f"{len(cells)} runs, {arguments.budget:g} mean random-trial costs, at most {arguments.cap} trials")
    for what in ("best", "front"):
        columns = list(found[what]["all"])
        print(f"\n{what:<14}" + "".join(f"{column:>10}" for column in columns))
        for name, values in found[what].items():
            print(f"{name:<14}" + "".join(f"{values[column]:>10}" for column in columns))
    columns = list(next(iter(found["stopping"].values())))
    print(f"\n{'stopping':<16}" + "".join(f"{column:>13}" for column in columns))
    for name, values in found["stopping"].items():
        print(f"{name:<16}" + "".join(f"{values[column]:>13}" for column in columns))
    header = machine.describe() | {"budget": arguments.budget, "cap": arguments.cap, "runs": len(cells)}
    arguments.file.write_text(json.dumps({"header": header, **found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
