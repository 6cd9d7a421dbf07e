"""Score against seconds in characters: every trial, the Pareto front as a staircase, failures along the axis.

    ●  front    ★  best    ·  other complete trials    ○  cut short (stopped)    ×  failed

The star is the trial that the caller names, which is the best expected one where it is known. Without a name it is the
best measured one.

The cost axis is logarithmic; both axes are labelled at round values.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from protein.columns import TrialColumns
from protein.direction import shown_score
from protein.engine import pareto
from protein.types import Direction, TrialEnd, TrialRecord, TrialState
from protein.units import format_duration

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

MIN_WIDTH, MIN_HEIGHT = 24, 6
_ROUND_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400)
MAX_DECIMALS = 9  # of a label of the score's axis; smaller scores are written as 4.6e-12
LEGEND = "● front  ★ best measured  · other  ○ cut short  × failed"
LEGEND_EXPECTED = LEGEND.replace("best measured", "best expected")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class _Points:
    """What is drawn of n trials, `n` each: a large sweep as an object for each trial takes three times as long.

    Attributes:
        number: of the trial.
        score: to be maximised; NaN where there is none.
        cost: of the whole run, in seconds.
        finished: whether the trial is drawn at all.
        front: whether it may be on the front: it is complete and not excluded.
        pruned: whether it was stopped.
        failed: whether it failed by itself.
    """

    number: NDArray[np.int64]
    score: Floats
    cost: Floats
    finished: Flags
    front: Flags
    pruned: Flags
    failed: Flags

    @classmethod
    def of(cls, trials: Sequence[TrialRecord] | TrialColumns) -> "_Points":
        if isinstance(trials, TrialColumns):
            number, state, end = trials.number, trials.state, trials.end
            score, cost, excluded = trials.score, trials.run_seconds, trials.excluded
        else:
            number = np.array([trial.number for trial in trials], dtype=np.int64)
            state, end = [trial.state for trial in trials], [trial.end for trial in trials]
            score = np.array([np.nan if trial.score is None else trial.score for trial in trials], dtype=np.float64)
            cost = np.array([trial.run_seconds for trial in trials], dtype=np.float64)
            excluded = np.array([trial.excluded for trial in trials], dtype=np.bool_)
        states, ends = np.array(state, dtype=object), np.array(end, dtype=object)
        complete, pruned, failed = (
            np.asarray(states == one, dtype=np.bool_)
            for one in (TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAILED)
        )
        return cls(
            number=number,
            score=score,
            cost=cost,
            finished=(complete | pruned | failed) & ~excluded,
            front=complete & ~excluded,
            pruned=pruned,
            failed=failed & np.asarray(ends != TrialEnd.INTERRUPTED, dtype=np.bool_),
        )

    def some(self, which: NDArray[np.intp] | Flags) -> "_Points":
        return _Points(**{field.name: getattr(self, field.name)[which] for field in dataclasses.fields(self)})


def scatter(
    trials: Sequence[TrialRecord] | TrialColumns,
    width: int,
    height: int,
    *,
    best: int | None = None,
    direction: Direction = Direction.MAXIMIZE,
) -> list[str]:
    """Returns the plot as `height` lines of at most `width` characters; one line of text when no trial has a score.

    Args:
        trials: of one sweep, as records or as columns with at least `protein.columns.DOT_FIELDS`; running and excluded
            ones are left out.
        width: characters, at least `MIN_WIDTH` are used.
        height: lines, axis included, at least `MIN_HEIGHT` are used.
        best: number of the trial that gets the star; None: the best measured one.
        direction: of the scores at the axis (see `protein.direction`); the best is at the top in any case.
    """
    points = _Points.of(trials)
    points = points.some(points.finished)
    scored = points.some(~np.isnan(points.score))
    if not len(scored.number):
        return ["no trial has a score yet"]
    low, high = bounds([float(scored.score.min()), float(scored.score.max())])
    rows = max(height, MIN_HEIGHT) - 2
    labels = {
        row: score_label(shown_score(high - (high - low) * row / (rows - 1), direction), high - low)
        for row in (0, (rows - 1) // 2, rows - 1)
    }
    margin = max(len(label) for label in labels.values()) + 1
    columns = max(width, MIN_WIDTH) - margin - 1
    left, right = cost_bounds([float(scored.cost.min()), float(scored.cost.max())])

    def x(cost: float) -> int:
        cost = min(max(cost, left), right)  # a failure may lie outside
        return round((math.log(cost) - math.log(left)) / (math.log(right) - math.log(left)) * (columns - 1))

    def y(score: float) -> int:
        return round((high - score) / (high - low) * (rows - 1))

    def places(points: _Points) -> list[tuple[int, int]]:
        return [(x(cost), y(score)) for cost, score in zip(points.cost.tolist(), points.score.tolist(), strict=True)]

    grid = [[" "] * columns for _ in range(rows)]
    able = scored.some(scored.front)
    front = places(able.some(pareto.front_indices(able.score, able.cost)))
    for step, (column, row) in enumerate(front):
        end, above = front[step + 1] if step + 1 < len(front) else (columns - 1, row)
        grid[row][column : end + 1] = "─" * (end + 1 - column)
        if step + 1 < len(front):
            for between in range(above + 1, row):
                grid[between][end] = "│"
            if above != row:
                grid[row][end] = "┘"
    seen = scored.some(_on_top(scored, (left, right, columns), (low, high, rows)))
    for (column, row), pruned in zip(places(seen), seen.pruned.tolist(), strict=True):
        grid[row][column] = "○" if pruned else "·"
    for column, row in front:
        grid[row][column] = "●"
    for column, row in front[-1:] if best is None else places(scored.some(scored.number == best)):
        grid[row][column] = "★"
    axis = ["─"] * columns
    for cost in points.cost[points.failed].tolist():
        axis[x(cost)] = "×"
    lines = [f"{labels.get(i, ''):>{margin - 1}} ┤{''.join(row)}".rstrip() for i, row in enumerate(grid)]
    lines.append(" " * margin + "└" + "".join(axis))
    lines.append((" " * (margin + 1) + _cost_labels(left, right, columns)).rstrip())
    return lines


def _on_top(scored: _Points, costs: tuple[float, float, int], scores: tuple[float, float, int]) -> NDArray[np.intp]:
    """Returns of each character of the plot the last trial that is drawn there: few of many trials are seen.

    Args:
        scored: trials with a score.
        costs: the ends of the cost axis, and its number of columns.
        scores: the ends of the score axis, and its number of rows.
    """
    left, right, columns = costs
    low, high, rows = scores
    cost = np.clip(scored.cost, left, right)
    column = np.rint((np.log(cost) - np.log(left)) / (np.log(right) - np.log(left)) * (columns - 1))
    row = np.rint((high - scored.score) / (high - low) * (rows - 1))
    _, last = np.unique((row * columns + column)[::-1], return_index=True)
    return len(scored.number) - 1 - np.sort(last)[::-1]


def bounds(scores: Sequence[float]) -> tuple[float, float]:
    """Returns the lowest and the highest score, apart even when all are equal."""
    low, high = min(scores), max(scores)
    if high > low:
        return low, high
    margin = max(abs(low) * 0.1, 1.0)
    return low - margin, high + margin


def cost_bounds(costs: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of a logarithmic cost axis, in seconds, at least a factor of 2 apart."""
    positive = [max(cost, pareto.MIN_COST_SECONDS) for cost in costs]
    low, high = min(positive), max(positive)
    if high < 2 * low:
        middle = math.sqrt(low * high)
        low, high = middle / math.sqrt(2), middle * math.sqrt(2)
    return low, high


def cost_ticks(low: float, high: float) -> list[float]:
    """Returns round costs within an axis from `low` to `high` seconds, the ends included; three at least."""
    decades: Iterable[int] = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    small = [digit * 10.0**decade for decade in decades if decade < 0 for digit in (1, 2, 5)]
    large = [86400.0 * digit * 10.0**decade for decade in decades if decade >= 0 for digit in (2, 5, 10)]
    ticks = [tick for tick in (*small, *map(float, _ROUND_SECONDS), *large) if low <= tick <= high]
    unit = max(unit for unit in (1.0, 60.0, 3600.0, 86400.0) if unit == 1.0 or 2 * unit <= high)
    step = unit * 10.0 ** math.ceil(math.log10((high - low) / unit))
    for divisor in (1, 2, 5, 10, 20):  # a narrow axis: even steps
        if len(ticks) >= 3:
            break
        even = step / divisor
        ticks = [even * count for count in range(math.ceil(low / even), math.floor(high / even) + 1)]
    return ticks


def score_label(value: float, span: float) -> str:
    """Returns a score with as many decimals as an axis of this span resolves: a hundredth of it."""
    if span >= 1e6:
        return f"{value:.3g}"
    decimals = max(1 - math.floor(math.log10(span)), 0)
    if decimals <= MAX_DECIMALS or abs(value) > 1e-3:
        return f"{value:.{min(decimals, MAX_DECIMALS)}f}"
    if abs(value) < 0.5 * 10.0**-decimals:
        return "0"
    return f"{value:.{max(decimals + math.floor(math.log10(abs(value))) + 1, 1)}g}"


def _cost_labels(left: float, right: float, columns: int) -> str:
    """Returns the labels below the axis, as many as fit, each centred on its place."""
    line = [" "] * columns
    named: dict[str, float] = {}  # a very narrow axis names one duration twice
    for tick in cost_ticks(left, right):
        named.setdefault(format_duration(tick), tick)
    for label, tick in named.items():
        position = (math.log(tick) - math.log(left)) / (math.log(right) - math.log(left)) * (columns - 1)
        begin = min(max(round(position - len(label) / 2), 0), max(columns - len(label), 0))
        if all(char == " " for char in line[max(begin - 1, 0) : begin + len(label) + 1]):
            line[begin : begin + len(label)] = label
    return "".join(line)
