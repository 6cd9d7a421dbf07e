"""Score against cost: every trial of one or several sweeps, and their Pareto fronts as staircases.

A panel for each environment. Trials without a score are drawn below the axis at their cost: a failure is a result, too.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from protein.direction import shown_score
from protein.engine import pareto
from protein.errors import UsageError
from protein.spelling import counted
from protein.types import Direction, TrialEnd, TrialRecord, TrialState
from protein.view import text
from protein.view.figures import style
from protein.view.figures.style import EXPECTED_COLOR, FAILED_COLOR, MEASURED_COLOR, OTHER_COLOR, PRUNED_COLOR, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from protein.engine.results import Contender

NO_SCORE = "there is nothing to plot: no trial has a score yet; let the sweep run on"
_INCHES = (9.0, 5.5)
_PANEL_INCHES = (5.2, 4.2)
_MANY = 3000  # points: more are drawn as pixels in an SVG, which would be too large
_LETTER = 0.016  # width of a letter of a mark's name, as a share of the cost axis
_FAILED, _EDGE = 0.035, 0.012  # of the axis' height: where failures are drawn, and scores that lie below the axis


def front(
    sweeps: Sequence[Subject],
    *,
    expected: "Sequence[Contender]" = (),
    marks: "Mapping[str, tuple[int, Contender]]" = MappingProxyType({}),
) -> "Figure":
    """Returns the picture. What is expected is drawn for one sweep alone.

    Args:
        sweeps: at least one, all of one direction.
        expected: the expected front, cheapest first, as it is shown (`protein.engine.recommend`).
        marks: configs to point out by name, at their expected score and cost, as shown, each with a trial's number. The
            first gets a star.

    Raises:
        UsageError: no trial of a sweep has a score, or the directions differ.
    """
    direction = style.one_direction(sweeps)
    for record, trials in sweeps:
        if not any(trial.state.finished and trial.score is not None for trial in trials):
            which = "" if len(sweeps) == 1 else f" of sweep '{record.spec.name}'"
            raise UsageError(NO_SCORE.replace("no trial", f"no trial{which}"))
    with style.look():
        panels = style.by_env(sweeps)
        rows, columns = style.grid_of(len(panels))
        size = _INCHES if len(panels) == 1 else (_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.4)
        figure = style.new_figure(*size)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (env, of_env) in zip(grid, panels.items(), strict=False):
            if len(sweeps) == 1:
                _one(axes, sweeps[0][1], direction, expected, marks)
            else:
                _several(axes, of_env, direction)
                axes.set_title(style.plain(env))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if len(sweeps) == 1:
            grid[0].set_title(style.title(sweeps))
            # Outside the axes, so that it covers no point.
            figure.legend(loc="outside lower center", ncols=3)
    return figure


def _one(
    axes: Any,
    trials: Sequence[TrialRecord],
    direction: Direction,
    expected: "Sequence[Contender]",
    marks: "Mapping[str, tuple[int, Contender]]",
) -> None:
    done = [trial for trial in trials if trial.state.finished]
    scored = [trial for trial in done if trial.score is not None]
    style.cost_axis(axes, [style.cost(trial) for trial in scored])
    style.score_axis(axes, [trial.score for trial in scored if trial.score is not None], direction)
    left_out = [trial for trial in scored if trial.excluded]
    complete = [trial for trial in scored if trial.state is TrialState.COMPLETE and not trial.excluded]
    pruned = [trial for trial in scored if trial.state is TrialState.PRUNED and not trial.excluded]
    _points(axes, left_out, direction, _label("excluded", left_out), color=OTHER_COLOR, marker="1", s=40, alpha=0.75)
    _points(axes, complete, direction, _label("complete", complete), color=OTHER_COLOR, s=26, alpha=0.75, linewidths=0)
    hollow = {"facecolors": "none", "edgecolors": PRUNED_COLOR, "s": 34, "linewidths": 1.3}
    _points(axes, pruned, direction, _label("cut short", pruned), **hollow)
    _failures(axes, done, FAILED_COLOR, _label("failed", failures(done)))
    _expected(axes, expected)
    if found := style.front_of(done):
        _staircase(axes, found, direction, color=MEASURED_COLOR, linewidth=1.1, linestyle="--")
        solid = {"color": MEASURED_COLOR, "s": 30, "zorder": 3, "edgecolors": "white", "linewidths": 0.8}
        _points(axes, found, direction, _label("measured front", found), **solid)
    for position, (name, (number, one)) in enumerate(marks.items()):
        marker, size = ("D", 70) if position else ("*", 190)
        _mark(axes, one, name, number, marker=marker, size=size)


def _expected(axes: Any, expected: "Sequence[Contender]") -> None:
    """Draws the expected front with the 80 % interval of each config."""
    if not expected:
        return
    costs = [max(one.expected_cost_seconds, pareto.MIN_COST_SECONDS) for one in expected]
    middle, low, high = ([getattr(one.score, end) for one in expected] for end in ("value", "low", "high"))
    costs = [*costs, axes.get_xlim()[1]]
    ends = ([*low, low[-1]], [*high, high[-1]])
    axes.fill_between(costs, *ends, step="post", color=EXPECTED_COLOR, alpha=0.15, linewidth=0)
    label = f"expected front, 80 % interval ({len(expected)})"
    look = {"color": EXPECTED_COLOR, "linewidth": 1.8, "zorder": 2.5}
    axes.step(costs, [*middle, middle[-1]], where="post", label=label, **look)


def _several(axes: Any, sweeps: Sequence[tuple[int, Subject]], direction: Direction) -> None:
    """Draws sweeps of one environment over each other, each in its own color and mark."""
    finished = [[trial for trial in trials if trial.state.finished] for _, (_, trials) in sweeps]
    everything = [trial for trials in finished for trial in trials if trial.score is not None]
    scored = [trial for trial in everything if not trial.excluded] or everything  # excluded ones are not drawn
    style.cost_axis(axes, [style.cost(trial) for trial in scored])
    style.score_axis(axes, [trial.score for trial in scored if trial.score is not None], direction)
    for (position, (record, _)), done in zip(sweeps, finished, strict=True):
        ink = style.ink(position)
        complete = [t for t in done if t.state is TrialState.COMPLETE and not t.excluded]
        pruned = [t for t in done if t.state is TrialState.PRUNED and t.score is not None and not t.excluded]
        look = {"marker": ink.mark, "s": 16, "alpha": 0.35}
        _points(axes, complete, direction, "", color=ink.color, linewidths=0, **look)
        _points(axes, pruned, direction, "", facecolors="none", edgecolors=ink.color, linewidths=0.9, **look)
        _failures(axes, done, ink.color, "")
        found = style.front_of(done)
        name = style.plain(text.shorten(record.spec.name, 40))
        label = f"{name} ({counted(len(done), 'trial')}" + (
            f", {len(failures(done))} failed)" if failures(done) else ")"
        )
        if found:
            _staircase(axes, found, direction, color=ink.color, linestyle=ink.line, linewidth=1.6)
        drawn = {"marker": ink.mark, "color": ink.color, "s": 40, "edgecolors": "white", "linewidths": 0.8, "zorder": 3}
        costs = [style.cost(trial) for trial in found]
        axes.scatter(costs, [shown_score(trial.score, direction) for trial in found], label=label, **drawn)
    axes.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none")


def failures(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Returns the trials that failed by themselves, and were not interrupted."""
    return [trial for trial in trials if trial.state is TrialState.FAILED and trial.end is not TrialEnd.INTERRUPTED]


def _failures(axes: Any, done: Sequence[TrialRecord], color: str, label: str) -> None:
    if not (failed := failures(done)):
        return
    left, right = axes.get_xlim()
    costs = [min(max(style.cost(trial), left), right) for trial in failed]
    place = axes.get_xaxis_transform()  # x in seconds, y in shares of the axis' height
    height = [_FAILED] * len(costs)
    named = {"label": label} if label else {}
    axes.scatter(costs, height, marker="x", color=color, s=30, linewidths=1.4, transform=place, **named)


def _label(name: str, trials: Sequence[TrialRecord]) -> str:
    return f"{name} ({len(trials)})"


def _points(axes: Any, trials: Sequence[TrialRecord], direction: Direction, label: str, **look: Any) -> None:
    """Draws trials with a score; those below the axis stand as triangles on its lower edge."""
    points = [(style.cost(trial), shown_score(trial.score or 0.0, direction)) for trial in trials]
    inside, below = style.split(axes, points)
    look = {**look, "rasterized": len(points) > _MANY}
    if inside:
        axes.scatter(*zip(*inside, strict=True), **({"label": label} if label else {}), **look)
    if below:
        height = [_EDGE] * len(below)
        axes.scatter(below, height, transform=axes.get_xaxis_transform(), **{**look, "marker": "v"})


def _staircase(axes: Any, found: Sequence[TrialRecord], direction: Direction, **look: Any) -> None:
    costs = [style.cost(trial) for trial in found]
    scores = [shown_score(trial.score, direction) for trial in found]
    axes.step([*costs, axes.get_xlim()[1]], [*scores, scores[-1]], where="post", **look)


def _mark(axes: Any, one: "Contender", name: str, number: int, *, marker: str, size: float) -> None:
    cost = max(one.expected_cost_seconds, pareto.MIN_COST_SECONDS)
    label = f"{name} (trial {number}): {text.score(one.score.value)} in {text.seconds(one.expected_cost_seconds)}"
    drawn = {"color": EXPECTED_COLOR, "edgecolors": "white", "linewidths": 0.8, "zorder": 4}
    axes.scatter([cost], [one.score.value], marker=marker, s=size, label=label, **drawn)
    # The area above and to the left of the front is empty, but the axis is close to the front's cheapest point.
    left, right = axes.get_xlim()
    room = _LETTER * (len(name) + 2)
    place, side = ((4, 9), "left") if cost < left * (right / left) ** room else ((-9, 7), "right")
    words = {"fontsize": 10, "fontweight": "bold", "color": EXPECTED_COLOR, "zorder": 5}
    axes.annotate(name, (cost, one.score.value), xytext=place, textcoords="offset points", ha=side, **words)
