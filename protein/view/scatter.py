"""Score against seconds in characters: every trial, the Pareto front as a staircase, failures along the axis.

    ●  front    ★  best    ·  other complete trials    ○  cut short (stopped)    ×  failed

The star is the trial that the caller names, which is the best expected one where it is known. Without a name it is the
best measured one.

The cost axis is logarithmic; both axes are labelled at round values.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np

from protein.columns import Dot
from protein.direction import shown_score
from protein.engine import pareto
from protein.types import Direction, TrialEnd, TrialRecord, TrialState
from protein.units import format_duration

MIN_WIDTH, MIN_HEIGHT = 24, 6
_ROUND_SECONDS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 18000, 36000, 86400)
LEGEND = "● front  ★ best measured  · other  ○ cut short  × failed"
LEGEND_EXPECTED = LEGEND.replace("best measured", "best expected")


def scatter(
    trials: Sequence[TrialRecord | Dot],
    width: int,
    height: int,
    *,
    best: int | None = None,
    direction: Direction = Direction.MAXIMIZE,
) -> list[str]:
    """Returns the plot as `height` lines of at most `width` characters; one line of text when no trial has a score.

    Args:
        trials: of one sweep; running ones are left out.
        width: characters, at least `MIN_WIDTH` are used.
        height: lines, axis included, at least `MIN_HEIGHT` are used.
        best: number of the trial that gets the star; None: the best measured one.
        direction: of the scores at the axis (see `protein.direction`); the best is at the top in any case.
    """
    done = [trial for trial in trials if trial.state.finished]
    scored = [trial for trial in done if trial.score is not None]
    if not scored:
        return ["no trial has a score yet"]
    low, high = bounds([trial.score for trial in scored if trial.score is not None])
    rows = max(height, MIN_HEIGHT) - 2
    labels = {
        row: score_label(shown_score(high - (high - low) * row / (rows - 1), direction), high - low)
        for row in (0, (rows - 1) // 2, rows - 1)
    }
    margin = max(len(label) for label in labels.values()) + 1
    columns = max(width, MIN_WIDTH) - margin - 1
    left, right = cost_bounds([trial.run_seconds for trial in scored])

    def x(trial: TrialRecord | Dot) -> int:
        cost = min(max(trial.run_seconds, left), right)  # a failure may lie outside
        return round((math.log(cost) - math.log(left)) / (math.log(right) - math.log(left)) * (columns - 1))

    def y(trial: TrialRecord | Dot) -> int:
        assert trial.score is not None
        return round((high - trial.score) / (high - low) * (rows - 1))

    grid = [[" "] * columns for _ in range(rows)]
    front = pareto.front(done)
    for step, record in enumerate(front):
        end = x(front[step + 1]) if step + 1 < len(front) else columns - 1
        for column in range(x(record), end + 1):
            grid[y(record)][column] = "─"
        if step + 1 < len(front):
            above = y(front[step + 1])
            for row in range(above + 1, y(record)):
                grid[row][end] = "│"
            if above != y(record):
                grid[y(record)][end] = "┘"
    for trial in _on_top(scored, (left, right, columns), (low, high, rows)):
        grid[y(trial)][x(trial)] = "○" if trial.state is TrialState.PRUNED else "·"
    for record in front:
        grid[y(record)][x(record)] = "●"
    stars = front[-1:] if best is None else [trial for trial in scored if trial.number == best]
    for record in stars:
        grid[y(record)][x(record)] = "★"
    axis = ["─"] * columns
    for trial in done:
        if trial.state is TrialState.FAILED and trial.end is not TrialEnd.INTERRUPTED:
            axis[x(trial)] = "×"
    lines = [f"{labels.get(i, ''):>{margin - 1}} ┤{''.join(row)}".rstrip() for i, row in enumerate(grid)]
    lines.append(" " * margin + "└" + "".join(axis))
    lines.append((" " * (margin + 1) + _cost_labels(left, right, columns)).rstrip())
    return lines


def _on_top(
    scored: Sequence[TrialRecord | Dot], costs: tuple[float, float, int], scores: tuple[float, float, int]
) -> list[TrialRecord | Dot]:
    """Returns of each character of the plot the last trial that is drawn there: few of many trials are seen.

    Args:
        scored: trials with a score.
        costs: the ends of the cost axis, and its number of columns.
        scores: the ends of the score axis, and its number of rows.
    """
    left, right, columns = costs
    low, high, rows = scores
    cost = np.clip(np.array([trial.run_seconds for trial in scored], dtype=np.float64), left, right)
    score = np.array([trial.score for trial in scored], dtype=np.float64)
    column = np.rint((np.log(cost) - np.log(left)) / (np.log(right) - np.log(left)) * (columns - 1))
    row = np.rint((high - score) / (high - low) * (rows - 1))
    _, last = np.unique((row * columns + column)[::-1], return_index=True)
    return [scored[i] for i in (len(scored) - 1 - np.sort(last)[::-1]).tolist()]


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
    step = 10.0 ** math.ceil(math.log10(high - low))
    for divisor in (1, 2, 5, 10, 20):  # a narrow axis: even steps
        if len(ticks) >= 3:
            break
        even = step / divisor
        ticks = [even * count for count in range(math.ceil(low / even), math.floor(high / even) + 1)]
    return ticks


def score_label(value: float, span: float) -> str:
    """Returns a score with as many decimals as an axis of this span resolves: a hundredth of it."""
    decimals = min(max(1 - math.floor(math.log10(span)), 0), 9)
    return f"{value:.{decimals}f}" if span < 1e6 else f"{value:.3g}"


def _cost_labels(left: float, right: float, columns: int) -> str:
    """Returns the labels below the axis, as many as fit, each centred on its place."""
    line = [" "] * columns
    for tick in cost_ticks(left, right):
        label = format_duration(tick)
        position = (math.log(tick) - math.log(left)) / (math.log(right) - math.log(left)) * (columns - 1)
        begin = min(max(round(position - len(label) / 2), 0), max(columns - len(label), 0))
        if all(char == " " for char in line[max(begin - 1, 0) : begin + len(label) + 1]):
            line[begin : begin + len(label)] = label
    return "".join(line)
