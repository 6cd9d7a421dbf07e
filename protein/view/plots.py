"""The Pareto plot as a picture: score against training seconds, for a report or a README."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from protein.direction import shown_score, stored_score
from protein.engine import pareto
from protein.errors import UsageError
from protein.types import Direction, TrialEnd, TrialRecord, TrialState
from protein.units import format_duration
from protein.view import text
from protein.view.scatter import bounds, cost_bounds, cost_ticks

if TYPE_CHECKING:
    from protein.engine.recommend import Contender  # which loads the models

INCHES = (9.0, 5.5)
DOTS_PER_INCH = 120
LETTER = 0.016  # width of a letter of a mark's name, as a share of the cost axis
FRONT_COLOR, EXPECTED_COLOR = "#d9631e", "#2f5fd0"  # as on the page
OTHER_COLOR, PRUNED_COLOR, FAILED_COLOR = "#8d99a6", "#c98a1b", "#b3382c"


def write_pareto(
    trials: Sequence[TrialRecord],
    title: str,
    path: Path,
    *,
    expected: "Sequence[Contender]" = (),
    marks: "Mapping[str, tuple[int, Contender]]" = MappingProxyType({}),
    direction: Direction = Direction.MAXIMIZE,
) -> None:
    """Writes a PNG of every finished trial, both fronts as staircases, the best expected config and the knee.

    Args:
        trials: of one sweep, as they are stored; running ones are left out.
        title: stands above the plot.
        path: the file; its folder is made.
        expected: the expected front, cheapest first, as it is shown.
        marks: configs to point out by name, at their expected score and cost, as shown, each with a trial's number. The
            first gets a star.
        direction: of the scores as they are written (see `protein.direction`); the best is at the top in any case.

    Raises:
        UsageError: no trial has a score.
        OSError: the file cannot be written.
    """
    done = [trial for trial in trials if trial.state.finished]
    scored = [trial for trial in done if trial.score is not None]
    if not scored:
        raise UsageError("there is nothing to plot: no trial has a score yet; let the sweep run on")
    # Imported here because it takes 0.7 s. Without pyplot there is no global state and no search for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    left, right = cost_bounds([trial.run_seconds for trial in scored])
    low, high = bounds([trial.score for trial in scored if trial.score is not None])
    margin, stretch = (high - low) * 0.08, (right / left) ** 0.04
    axes.set_xscale("log")
    axes.set_xlim(left / stretch, right * stretch)
    axes.set_ylim(low - margin, high + margin * 1.6)
    ticks = thinned(cost_ticks(left / stretch, right * stretch), left, right)
    axes.set_xticks(ticks, [format_duration(tick) for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlabel("cost: time of training (log scale)")
    axes.set_ylabel("score" if direction is Direction.MAXIMIZE else "score (lower is better)")
    if direction is Direction.MINIMIZE:
        axes.yaxis.set_major_formatter(lambda value, _: f"{shown_score(value, direction):g}")
    axes.set_title(title, loc="left", fontsize=11)
    _draw_trials(axes, done, left, right, low - margin * 0.7)
    _draw_expected(axes, expected, right * stretch, direction)
    _draw_front(axes, done, right * stretch)
    for position, (name, (number, one)) in enumerate(marks.items()):
        marker, size = ("D", 70) if position else ("*", 190)
        _mark(axes, one, f"{name} (trial {number})", name, direction, marker=marker, size=size)
    # Outside the axes, so that it covers no point.
    figure.legend(loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="png")


def _draw_trials(axes: Any, done: Sequence[TrialRecord], left: float, right: float, bottom: float) -> None:
    complete = [trial for trial in done if trial.state is TrialState.COMPLETE]
    pruned = [trial for trial in done if trial.state is TrialState.PRUNED and trial.score is not None]
    failed = [trial for trial in done if trial.state is TrialState.FAILED and trial.end is not TrialEnd.INTERRUPTED]
    _points(axes, complete, "complete", color=OTHER_COLOR, s=26, alpha=0.75, linewidths=0)
    _points(axes, pruned, "cut short", facecolors="none", edgecolors=PRUNED_COLOR, s=34, linewidths=1.3)
    if failed:  # they have no score, so they are drawn along the axis, at their cost
        costs = [min(max(trial.run_seconds, left), right) for trial in failed]
        label = f"failed ({len(failed)})"
        axes.scatter(costs, [bottom] * len(costs), marker="x", color=FAILED_COLOR, s=30, linewidths=1.4, label=label)


def _points(axes: Any, trials: Sequence[TrialRecord], label: str, **style: Any) -> None:
    if trials:
        costs = [max(trial.run_seconds, pareto.MIN_COST_SECONDS) for trial in trials]
        axes.scatter(costs, [trial.score for trial in trials], label=f"{label} ({len(trials)})", **style)


def _draw_expected(axes: Any, expected: "Sequence[Contender]", right: float, direction: Direction) -> None:
    """Draws the expected front with the 80 % interval of each config; scores turn back to where the best is on top."""
    if not expected:
        return
    costs = [*(max(one.expected_cost_seconds, pareto.MIN_COST_SECONDS) for one in expected), right]
    ends = [(one.score.value, *sorted((one.score.low, one.score.high))) for one in expected]
    middle, low, high = (
        [stored_score(value, direction) for value in (*column, column[-1])] for column in zip(*ends, strict=True)
    )
    axes.fill_between(costs, low, high, step="post", color=EXPECTED_COLOR, alpha=0.15, linewidth=0)
    label = f"expected front, 80 % interval ({len(expected)})"
    axes.step(costs, middle, where="post", color=EXPECTED_COLOR, linewidth=1.8, zorder=2.5, label=label)


def _draw_front(axes: Any, done: Sequence[TrialRecord], right: float) -> None:
    front = pareto.front(done)
    if not front:
        return
    costs = [max(trial.run_seconds, pareto.MIN_COST_SECONDS) for trial in front]
    scores = [trial.score for trial in front]
    axes.step([*costs, right], [*scores, scores[-1]], where="post", color=FRONT_COLOR, linewidth=1.1, linestyle="--")
    label = f"measured front ({len(front)})"
    axes.scatter(costs, scores, color=FRONT_COLOR, s=30, zorder=3, label=label, edgecolors="white", linewidths=0.8)


def _mark(
    axes: Any, one: "Contender", title: str, name: str, direction: Direction, *, marker: str, size: float
) -> None:
    cost = max(one.expected_cost_seconds, pareto.MIN_COST_SECONDS)
    score = stored_score(one.score.value, direction)
    label = f"{title}: {text.score(one.score.value)} in {text.seconds(one.expected_cost_seconds)}"
    style = {"color": EXPECTED_COLOR, "edgecolors": "white", "linewidths": 0.8, "zorder": 4}
    axes.scatter([cost], [score], marker=marker, s=size, label=label, **style)
    # The area above and to the left of the front is empty, but the axis is close to the front's cheapest point.
    left, right = axes.get_xlim()
    room = LETTER * (len(name) + 2)
    place, side = ((4, 9), "left") if cost < left * (right / left) ** room else ((-9, 7), "right")
    style = {"fontsize": 10, "fontweight": "bold", "color": EXPECTED_COLOR, "zorder": 5}
    axes.annotate(name, (cost, score), xytext=place, textcoords="offset points", ha=side, **style)


def thinned(ticks: Sequence[float], left: float, right: float) -> list[float]:
    """Returns the ticks of a log axis that stand far enough apart to be read."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick / kept[-1] >= (right / left) ** 0.045:
            kept.append(tick)
    return kept
