"""Every trial of one or several sweeps as a point: score against cost with the Pareto fronts as staircases, or against
the trial's number with the best measured score so far. Better scores are up.

Costs are on one clock: what trials would have cost if no other program had had their cores. A faint tail reaches to
the measured cost, where it differs. A panel for each environment. Trials without a score are drawn below the axis: a
failure is a result, too.
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from protein.direction import shown_score
from protein.engine import pareto
from protein.engine.history import whole_run_shares
from protein.errors import UsageError
from protein.spelling import counted
from protein.types import Direction, TrialEnd, TrialRecord, TrialState
from protein.view import text
from protein.view.figures import style
from protein.view.figures.style import EXPECTED_COLOR, FAILED_COLOR, MEASURED_COLOR, OTHER_COLOR, PRUNED_COLOR, Subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from protein.engine.results import Contender

At = Callable[[TrialRecord], float]  # where a trial stands along x
_Panel = Sequence[tuple[int, Subject]]  # the sweeps of one environment, with their positions among all
NO_SCORE = "there is nothing to plot: no trial has a score yet; let the sweep run on"
_INCHES = (9.0, 5.5)
_PANEL_INCHES = (5.2, 4.2)
_MANY = 3000  # points: more are drawn as pixels in an SVG, which would be too large
_LETTER = 0.016  # width of a letter of a mark's name, as a share of the cost axis
_TAIL = 1.02  # a measured cost that is higher by this factor is drawn as a tail
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

    def draw(axes: Any, panel: _Panel) -> None:
        at = _clock(axes, [trials for _, (_, trials) in panel])
        best = {position: _front(trials, at) for position, (_, trials) in panel}
        if len(sweeps) > 1:
            _several(axes, panel, direction, at, best)
        else:
            _one(axes, sweeps[0][1], direction, at, expected, marks)

    return _figure(sweeps, draw)


def history(sweeps: Sequence[Subject]) -> "Figure":
    """Returns the picture of scores against the numbers of the trials, with the best measured score so far.

    Raises:
        UsageError: no trial has ended, or the directions differ.
    """
    direction = style.one_direction(sweeps)
    if not any(trial.state.finished for _, trials in sweeps for trial in trials):
        raise UsageError("there is nothing to plot: no trial has ended yet; let the sweep run on")

    def draw(axes: Any, panel: _Panel) -> None:
        best = {position: _best_so_far(sweep) for position, sweep in panel}
        _numbers(axes, max(t.number for _, (_, trials) in panel for t in trials if t.state.finished))
        if len(sweeps) > 1:
            _several(axes, panel, direction, _number, best)
            return
        _dots(axes, sweeps[0][1], direction, _number)
        if found := best[0]:
            look = {"color": MEASURED_COLOR, "linewidth": 1.6, "label": "best measured so far", "zorder": 3}
            _staircase(axes, found, direction, _number, **look)

    return _figure(sweeps, draw)


def _figure(sweeps: Sequence[Subject], draw: Callable[[Any, _Panel], None]) -> "Figure":
    """Returns a figure with a panel for each environment, which `draw` fills."""
    with style.look():
        panels = style.by_env(sweeps)
        rows, columns = style.grid_of(len(panels))
        size = _INCHES if len(panels) == 1 else (_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.4)
        figure = style.new_figure(*size)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, (env, panel) in zip(grid, panels.items(), strict=False):
            draw(axes, panel)
            axes.set_title(style.title(sweeps) if len(sweeps) == 1 else style.plain(env))
        for axes in grid[len(panels) :]:
            axes.set_visible(False)
        if len(sweeps) == 1:
            # Outside the axes, so that it covers no point.
            figure.legend(loc="outside lower center", ncols=3)
    return figure


def _one(
    axes: Any,
    trials: Sequence[TrialRecord],
    direction: Direction,
    at: At,
    expected: "Sequence[Contender]",
    marks: "Mapping[str, tuple[int, Contender]]",
) -> None:
    done = _dots(axes, trials, direction, at)
    _expected(axes, expected)
    if found := _front(done, at):
        _staircase(axes, found, direction, at, color=MEASURED_COLOR, linewidth=1.1, linestyle="--")
        solid = {"color": MEASURED_COLOR, "s": 30, "zorder": 3, "edgecolors": "white", "linewidths": 0.8}
        _points(axes, found, direction, at, _label("measured front", found), **solid)
    for position, (name, (number, one)) in enumerate(marks.items()):
        marker, size = ("D", 70) if position else ("*", 190)
        _mark(axes, one, name, number, marker=marker, size=size)


def _dots(axes: Any, trials: Sequence[TrialRecord], direction: Direction, at: At) -> list[TrialRecord]:
    """Draws the trials of one sweep that have ended, and returns them."""
    done = [trial for trial in trials if trial.state.finished]
    scored = [trial for trial in done if trial.score is not None]
    _scores(axes, scored, direction)
    left_out = [trial for trial in scored if trial.excluded]
    complete = [trial for trial in scored if trial.state is TrialState.COMPLETE and not trial.excluded]
    pruned = [trial for trial in scored if trial.state is TrialState.PRUNED and not trial.excluded]
    if at is not _number:
        _tails(axes, [*complete, *pruned], direction, at)
    gray = {"color": OTHER_COLOR, "alpha": 0.75}
    _points(axes, left_out, direction, at, _label("excluded", left_out), **gray, marker="1", s=40)
    _points(axes, complete, direction, at, _label("complete", complete), **gray, s=26, linewidths=0)
    hollow = {"facecolors": "none", "edgecolors": PRUNED_COLOR, "s": 34, "linewidths": 1.3}
    _points(axes, pruned, direction, at, _label("cut short", pruned), **hollow)
    _failures(axes, done, at, FAILED_COLOR, _label("failed", failures(done)))
    return done


def _scores(axes: Any, scored: Sequence[TrialRecord], direction: Direction) -> None:
    style.score_axis(axes, [trial.score for trial in scored if trial.score is not None] or [0.0], direction)
    if not scored:
        axes.set_yticks([])


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


def _several(
    axes: Any, sweeps: _Panel, direction: Direction, at: At, best: Mapping[int, Sequence[TrialRecord]]
) -> None:
    """Draws sweeps of one environment over each other, each in its own color and mark; `best` by its position."""
    finished = [[trial for trial in trials if trial.state.finished] for _, (_, trials) in sweeps]
    everything = [trial for trials in finished for trial in trials if trial.score is not None]
    _scores(
        axes, [trial for trial in everything if not trial.excluded] or everything, direction
    )  # others are not drawn
    for (position, (record, _)), done in zip(sweeps, finished, strict=True):
        ink = style.ink(position)
        complete = [t for t in done if t.state is TrialState.COMPLETE and not t.excluded]
        pruned = [t for t in done if t.state is TrialState.PRUNED and t.score is not None and not t.excluded]
        look = {"marker": ink.mark, "s": 16, "alpha": 0.35}
        _points(axes, complete, direction, at, "", color=ink.color, linewidths=0, **look)
        _points(axes, pruned, direction, at, "", facecolors="none", edgecolors=ink.color, linewidths=0.9, **look)
        _failures(axes, done, at, ink.color, "")
        found = best[position]
        name = style.plain(text.shorten(record.spec.name, 40))
        label = f"{name} ({counted(len(done), 'trial')}" + (
            f", {len(failures(done))} failed)" if failures(done) else ")"
        )
        if found:
            _staircase(axes, found, direction, at, color=ink.color, linestyle=ink.line, linewidth=1.6)
        drawn = {"marker": ink.mark, "color": ink.color, "s": 40, "edgecolors": "white", "linewidths": 0.8, "zorder": 3}
        axes.scatter(
            [at(trial) for trial in found],
            [shown_score(trial.score, direction) for trial in found],
            label=label,
            **drawn,
        )
    axes.legend(loc="best", frameon=True, framealpha=0.85, edgecolor="none")


def _clock(axes: Any, sweeps: Sequence[Sequence[TrialRecord]]) -> At:
    """Makes x the axis of cost, and returns where a trial stands on it: at the seconds of its whole run without those
    in which other programs had its cores. That is what the expected front counts, too."""
    pairs = [pair for trials in sweeps for pair in zip(trials, whole_run_shares(trials), strict=True)]
    busy = {id(trial): share for trial, share in pairs if share is not None}

    def at(trial: TrialRecord) -> float:
        return max(trial.run_seconds * (1.0 - busy.get(id(trial), 0.0)), pareto.MIN_COST_SECONDS)

    everything = [t for trials in sweeps for t in trials if t.state.finished and t.score is not None]
    # Where there are several sweeps, their excluded trials are not drawn.
    scored = [t for t in everything if len(sweeps) == 1 or not t.excluded] or everything
    waited = any(style.cost(trial) > _TAIL * at(trial) for trial in scored)
    label = "cost: time of training without other programs" + ("; tails: as measured" if len(sweeps) == 1 else "")
    ends = [*map(at, scored), *(map(style.cost, scored) if len(sweeps) == 1 else ())]
    style.cost_axis(axes, ends, *([f"{label} (log scale)"] if waited else []))
    return at


def _tails(axes: Any, trials: Sequence[TrialRecord], direction: Direction, at: At) -> None:
    from matplotlib.collections import LineCollection

    lines = [
        [(cost, shown_score(trial.score or 0.0, direction)) for cost in (at(trial), style.cost(trial))]
        for trial in trials
        if style.cost(trial) > _TAIL * at(trial)
    ]
    if lines:
        look: Any = {"colors": OTHER_COLOR, "alpha": 0.3, "linewidths": 0.8, "zorder": 0.9}
        axes.add_collection(LineCollection(lines, label="_tails", **look), autolim=False)


def _number(trial: TrialRecord) -> float:
    return float(trial.number)


def _numbers(axes: Any, last: int) -> None:
    """Makes x the axis of trials, from 0 to the last number."""
    from matplotlib.ticker import MaxNLocator

    axes.set_xlim(-0.5 - 0.02 * last, last + 0.5 + 0.02 * last)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.set_xlabel("trial")


def _able(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    return [t for t in trials if t.state is TrialState.COMPLETE and t.score is not None and not t.excluded]


def _front(trials: Sequence[TrialRecord], at: At) -> list[TrialRecord]:
    """Returns the best measured trials for every cost on the axis, cheapest first."""
    able = _able(trials)
    return [able[i] for i in pareto.front_indices([t.score or 0.0 for t in able], [at(t) for t in able])]


def _best_so_far(sweep: Subject) -> list[TrialRecord]:
    """Returns the trials that were better than all before them, by number; those that break a limit do not count."""
    record, trials = sweep
    found: list[TrialRecord] = []
    for trial in sorted(_able(trials), key=_number):
        kept = all(
            limit.holds(trial.metrics[limit.name]) for limit in record.spec.limits if limit.name in trial.metrics
        )
        if kept and (not found or (trial.score or 0.0) > (found[-1].score or 0.0)):
            found.append(trial)
    return found


def failures(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Returns the trials that failed by themselves, and were not interrupted."""
    return [trial for trial in trials if trial.state is TrialState.FAILED and trial.end is not TrialEnd.INTERRUPTED]


def _failures(axes: Any, done: Sequence[TrialRecord], at: At, color: str, label: str) -> None:
    if not (failed := failures(done)):
        return
    left, right = axes.get_xlim()
    costs = [min(max(at(trial), left), right) for trial in failed]
    place = axes.get_xaxis_transform()  # x in seconds, y in shares of the axis' height
    height = [_FAILED] * len(costs)
    named = {"label": label} if label else {}
    axes.scatter(costs, height, marker="x", color=color, s=30, linewidths=1.4, transform=place, **named)


def _label(name: str, trials: Sequence[TrialRecord]) -> str:
    return f"{name} ({len(trials)})"


def _points(axes: Any, trials: Sequence[TrialRecord], direction: Direction, at: At, label: str, **look: Any) -> None:
    """Draws trials with a score; those below the axis stand as triangles on its lower edge."""
    points = [(at(trial), shown_score(trial.score or 0.0, direction)) for trial in trials]
    inside, below = style.split(axes, points)
    look = {**look, "rasterized": len(points) > _MANY}
    if inside:
        axes.scatter(*zip(*inside, strict=True), **({"label": label} if label else {}), **look)
    if below:
        height = [_EDGE] * len(below)
        axes.scatter(below, height, transform=axes.get_xaxis_transform(), **{**look, "marker": "v"})


def _staircase(axes: Any, found: Sequence[TrialRecord], direction: Direction, at: At, **look: Any) -> None:
    costs = [at(trial) for trial in found]
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
