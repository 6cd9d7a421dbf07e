"""`/api/front`: score against cost of every trial of some sweeps. `/api/expected`: a sweep's expected front.

All costs are on one clock: `calm_seconds`, those without the time in which other programs had the cores. The measured
ones are `run_seconds`.

A chart cannot show 100,000 points. Where there are more than `points`, they are thinned: what stands close together
becomes one point, and the front, the extremes and the selected trials stay. The front is that of all trials.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from starlette.routing import BaseRoute

from protein.analysis.columns import Column, Indices
from protein.engine.gp import Array
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.errors import UsageError
from protein.types import MAX_BUSY_SHARE, WAITED, WALL, TrialState
from protein.web import findings
from protein.web.answers import Query, get
from protein.web.frame import Frame, shown_columns
from protein.web.viewer import MAX_SWEEPS, Viewer

MAX_POINTS = 10_000  # of all sweeps together
DEFAULT_POINTS = 4_000
MAX_WITH_PARAMS = 600  # trials whose params are sent along; of more, a page asks for those it points at
CELLS = (400, 300)  # columns and rows of the finest grid, about one for each pixel or two of a page's chart
COLUMNS = (
    "number",
    "run_seconds",
    "score",
    "state",
    "end",
    "predicted_score",
    "predicted_score_low",
    "predicted_score_high",
    "predicted_cost_seconds",
    "continued_seconds",
)


def routes(viewer: Viewer) -> list[BaseRoute]:
    def front(query: Query) -> dict[str, Any]:
        names = query.texts("sweep", most=MAX_SWEEPS)
        points = query.integer("points", DEFAULT_POINTS, least=1, most=MAX_POINTS)
        frames = viewer.frames(names)
        share = max(1, points // len(frames))
        return {"version": viewer.version(frames), "sweeps": [scatter(frame, share) for frame in frames]}

    def config(query: Query) -> dict[str, Any]:
        [name] = query.texts("sweep", most=1) or [""]
        frame = viewer.frame(name)
        rows = frame.rows([query.integer("number", -1, least=0, most=2**53)])
        if not len(rows):
            raise UsageError(f"sweep '{name}' has no such trial")
        return {"params": _params(frame, rows[0])}

    def within(query: Query) -> dict[str, Any]:
        frame = viewer.frame((query.texts("sweep", most=1) or [""])[0])
        costs, scores = calm_seconds(frame), frame.columns["score"].floats()
        inside = np.ones(len(frame), dtype=bool)
        for values, name in ((costs, "cost"), (scores, "score")):
            low, high = query.number(f"least_{name}"), query.number(f"most_{name}")
            inside &= (values >= (-math.inf if low is None else low)) & (values <= (math.inf if high is None else high))
        numbers = frame.numbers[inside].tolist()
        return {"total": len(numbers), "numbers": numbers[:MAX_POINTS]}

    def expected(query: Query) -> dict[str, Any]:
        [name] = query.texts("sweep", most=1) or [""]
        return findings.asked(findings.finding(viewer, name, "expected"))

    return [
        get("/front", front),
        get("/front/config", config),
        get("/front/within", within),
        get("/expected", expected),
    ]


def scatter(frame: Frame, points: int) -> dict[str, Any]:
    """Returns a sweep's trials as points, at most `points` and those that must not be left out."""
    state, scores, excluded = frame.columns["state"], frame.columns["score"], frame.columns["excluded"]
    shown = ~scores.missing & ~np.isnan(scores.floats())
    drawn = np.flatnonzero(shown)
    calm = calm_seconds(frame)
    costs = np.maximum(calm, MIN_COST_SECONDS)
    able = shown & _is(state, TrialState.COMPLETE) & (excluded.values == 0) & frame.within_limits()
    complete = np.flatnonzero(able)
    front = complete[front_indices(frame.stored_score()[complete], costs[complete])]
    kept = thinned(np.log(costs[drawn]), scores.floats()[drawn], points, np.searchsorted(drawn, front))
    failed = np.flatnonzero(_is(state, TrialState.FAILED))
    some = thinned(np.log(costs[failed]), np.zeros(len(failed)), max(1, points // 4), np.zeros(0, dtype=np.intp))
    rows = np.concatenate([drawn[kept], failed[some]])
    columns = shown_columns(frame)
    running = np.flatnonzero(_is(state, TrialState.RUNNING))
    return {
        "name": frame.sweep.spec.name,
        "env": frame.sweep.spec.env,
        "direction": str(frame.sweep.spec.direction),
        "total": len(frame),
        "left_out": len(drawn) + len(failed) - len(rows),
        "points": {
            **{key: _short(columns[key].listed(rows)) for key in COLUMNS},
            "calm_seconds": [findings.short(one) if math.isfinite(one) else None for one in calm[rows].tolist()],
            "excluded": excluded.listed(rows),
        },
        "params": _columns(frame, rows) if len(rows) <= MAX_WITH_PARAMS else None,
        "front": frame.numbers[front].tolist(),
        "running": frame.numbers[running].tolist()[:100],
        "waited_share": waited_share(frame),
    }


def waited_share(frame: Frame) -> float:
    """Returns for which share of the trials' time other programs had the cores; 0 where that is not known."""
    wall, waited = _waits(frame)
    known = np.isfinite(wall) & np.isfinite(waited) & (wall > 0)
    return float(np.sum(waited[known]) / np.sum(wall[known])) if known.any() else 0.0


def calm_seconds(frame: Frame) -> Array:
    """Returns what each of n trials' whole run would have cost without other programs, `n`; NaN where it has no cost.

    Where the wait is not known, it is what the run has cost. As `whole_run_shares` of `protein.engine.history` has it.
    """
    wall, waited = _waits(frame)
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.nan_to_num(np.clip(np.where(wall > 0, waited / wall, 0.0), 0.0, MAX_BUSY_SHARE))
    run = frame.columns["run_seconds"].floats()
    busy = np.nan_to_num(frame.columns["cost_seconds"].floats()) * share
    before, behind = frame.columns["continues"], frame.columns["continued_seconds"].floats()
    for row in np.flatnonzero(~before.missing).tolist():  # a part has a higher number than what it went on with
        for source in frame.rows([int(before.values[row])]).tolist():
            if run[source] > 0:
                busy[row] += behind[row] * busy[source] / run[source]
    calm: Array = run - np.minimum(busy, MAX_BUSY_SHARE * run)
    return calm


def _waits(frame: Frame) -> tuple[Array, Array]:
    """Returns the seconds of n trials on the clock, and those in which other programs had their cores, `n` each."""
    none = np.full(len(frame), np.nan)
    columns = [frame.columns.get(f"timings.{name}") for name in (WALL, WAITED)]
    wall, waited = (none if column is None else column.floats() for column in columns)
    return wall, waited


def thinned(x: Array, y: Array, most: int, keep: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Returns which of n points to draw, in rising order: at most `most`, and those in `keep` in any case.

    The point with the lowest index stands for its cell. The grid is made coarser until the points are few enough. The
    extreme points of both axes are kept.

    Args:
        x: `n`, finite, on the scale of the axis.
        y: `n`, finite.
        most: at least 1.
        keep: indices that must be drawn.
    """
    number = len(x)
    if number <= most:
        return np.arange(number)
    ends = [int(find(values)) for values in (x, y) for find in (np.argmin, np.argmax)]
    always = np.unique(np.concatenate([np.asarray(keep, dtype=np.intp), ends]))
    columns, rows = CELLS
    while True:
        cell = _bins(x, columns) * rows + _bins(y, rows)
        _, first = np.unique(cell, return_index=True)
        chosen = np.union1d(first, always)
        if len(chosen) <= max(most, len(always)) or (columns == 1 and rows == 1):
            return chosen
        columns, rows = max(1, columns * 4 // 5), max(1, rows * 4 // 5)


def _short(values: list[Any]) -> list[Any]:
    return [findings.short(value) for value in values]


def _is(state: Column, wanted: TrialState) -> Any:
    """Returns which of n trials are in a state, `n`."""
    if wanted.value not in state.words:
        return np.zeros(len(state), dtype=bool)
    return ~state.missing & (state.values == state.words.index(wanted.value))


def _columns(frame: Frame, rows: Indices) -> dict[str, list[Any]]:
    return {name: column.listed(rows) for name, column in frame.group("params").items()}


def _params(frame: Frame, row: int) -> dict[str, Any]:
    return {
        name: column.value(int(row)) for name, column in frame.group("params").items() if not column.missing[int(row)]
    }


def _bins(values: Array, count: int) -> npt.NDArray[np.intp]:
    low, high = float(values.min()), float(values.max())
    if not high > low:
        return np.zeros(len(values), dtype=np.intp)
    return np.minimum(((values - low) / (high - low) * count).astype(np.intp), count - 1)
