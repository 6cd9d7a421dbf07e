"""Learning curves of a sweep's trials: score against seconds, steps, or the fraction of the run.

One sweep: the trials of its front (or those asked for) in colors that darken with cost, over all others in gray.
Several sweeps: the trials of each front in the sweep's color. Or all curves in the color of a parameter's value. Or
the mean of each group (sweep, choice) with a band of one standard deviation, over all curves in gray.

The last mark of a curve says how the trial ended: a dot is its final score, a ring a trial that was cut short, a cross
one that failed.
"""

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from protein.direction import shown_score
from protein.errors import UsageError
from protein.spelling import counted, nearest
from protein.trainer.kinds import LANGUAGE, kind_of
from protein.types import Direction, ParamValue, TrialRecord, TrialState
from protein.view import text
from protein.view.figures import style
from protein.view.figures.style import OTHER_COLOR, Scale, Subject, coordinates, known_params

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Axis = Literal["seconds", "steps", "fraction"]
AXES: tuple[Axis, ...] = get_args(Axis)
MAX_CURVES = 12  # in colors, unless they were asked for
MAX_BEHIND = 300  # in gray behind them, or in the colors of a parameter
_PARTS = 4  # groups of curves by a parameter with many values
_MOST_ASKED = 500  # trials that are asked for by number
MAX_POINTS = 600  # of one curve: about as many as the picture has columns
_LABELS = {
    "seconds": "seconds of training",
    "steps": "steps",
    "fraction": "fraction of the trial's run",
}
_DECISIONS = "steps (decisions of one agent)"  # what they are where our trainer trains agents
_INCHES = (9.0, 5.5)


@dataclasses.dataclass(frozen=True, slots=True)
class _Line:
    trial: TrialRecord
    x: Sequence[float]
    y: Sequence[float]  # as shown
    final: float | None


def curves(
    sweeps: Sequence[Subject],
    *,
    x: Axis = "seconds",
    trials: Sequence[int] | None = None,
    by: str | None = None,
    log_x: bool = False,
    smooth: float = 0.0,
    mean: bool = False,
) -> "Figure":
    """Returns the picture.

    Args:
        sweeps: at least one, all of one environment and direction.
        x: what the curves run over.
        trials: numbers of the trials to draw in color, of each sweep; None: the front's, at most `MAX_CURVES`.
        by: a parameter whose value gives the color; None: see the head of this file.
        log_x: whether x is logarithmic.
        smooth: weight of the past in an exponential mean, from 0 (none) to below 1.
        mean: whether to draw the mean of each sweep, or with `by` of each value or quarter of values, with its band.

    Raises:
        UsageError: there is no curve with a score, a trial or a parameter that is not there, a value out of its range,
            or sweeps that share no axis.
    """
    direction = style.one_direction(sweeps)
    if x not in AXES:
        raise UsageError(f"x '{x}' is not known{nearest(x, AXES)}")
    if not 0.0 <= smooth < 1.0:
        raise UsageError(f"smooth {smooth} must be from 0 to below 1; 0 smooths nothing")
    if len(envs := style.by_env(sweeps)) > 1:
        raise UsageError(f"the sweeps are of {', '.join(envs)}, whose scores share no axis; plot them apart")
    lines = [
        [_line(trial, direction, x, smooth) for trial in records if any(p.score is not None for p in trial.curve)]
        for _, records in sweeps
    ]
    if not any(lines):
        raise UsageError("there is nothing to plot: no trial has reported a score while it trained")
    with style.look():
        figure = style.new_figure(*_INCHES)
        axes = figure.add_subplot()
        drawn = list(itertools.chain.from_iterable(lines))
        style.score_axis(axes, [_stored(y, direction) for line in drawn for y in _all_y(line)], direction)
        if mean:
            if trials is not None:
                chosen = [_chosen(record.spec.name, records, trials) for record, records in sweeps]
                lines = [[one for one in own if one.trial.number in of] for own, of in zip(lines, chosen, strict=True)]
            _means(axes, sweeps, lines, by)
        elif by is not None:
            _by_value(figure, axes, sweeps, drawn, by)
        elif len(sweeps) == 1:
            _one(axes, sweeps[0], lines[0], trials, direction)
        else:
            _several(axes, sweeps, lines, trials, direction)
        _x_axis(axes, x, log_x=log_x)
        label = _steps(sweeps[0][0].spec.config) if x == "steps" else _LABELS[x]
        axes.set_xlabel(label + (" (log scale)" if log_x else ""))
        axes.set_ylabel(axes.get_ylabel() + (f", smoothed by {smooth:g}" if smooth else ""))
        axes.set_title(style.title(sweeps))
        if axes.get_legend_handles_labels()[0]:
            figure.legend(loc="outside right upper")
    return figure


def _steps(config: Mapping[str, Any]) -> str:
    """Returns what a step of a sweep is; of a function or a program of the user's nobody knows it."""
    if "train" not in config:
        return _LABELS["steps"]
    kind = kind_of(config)
    return kind.unit if kind is LANGUAGE else _DECISIONS


def _x_axis(axes: Any, x: Axis, *, log_x: bool) -> None:
    if log_x:
        from matplotlib.ticker import LogLocator

        axes.set_xscale("log")
        axes.minorticks_off()
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    else:
        axes.set_xlim(left=0)
    if x == "steps":
        axes.xaxis.set_major_formatter(lambda value, _: text.count(round(value)))


def _one(axes: Any, sweep: Subject, lines: Sequence[_Line], trials: Sequence[int] | None, direction: Direction) -> None:
    record, records = sweep
    chosen = _chosen(record.spec.name, records, trials)
    behind = [line for line in lines if line.trial.number not in chosen]
    for line in thin(behind, MAX_BEHIND):
        mark = "." if len(line.x) == 1 else ""  # a point alone has no line
        axes.plot(line.x, line.y, marker=mark, color=OTHER_COLOR, linewidth=0.7, alpha=0.35)
    front = sorted((line for line in lines if line.trial.number in chosen), key=lambda line: style.cost(line.trial))
    shares = np.linspace(0.0, 1.0, len(front)) if len(front) > 1 else [0.6] * len(front)
    for line, color in zip(front, style.ordered_colors(list(shares)), strict=True):
        score = text.score(shown_score(line.trial.score, direction))
        ended = score if line.trial.score is not None else str(line.trial.state)
        label = f"{line.trial.number}: {ended} in {text.seconds(line.trial.run_seconds)}"
        _draw(axes, line, color, label=label)


def _several(
    axes: Any,
    sweeps: Sequence[Subject],
    lines: Sequence[Sequence[_Line]],
    trials: Sequence[int] | None,
    direction: Direction,
) -> None:
    for position, ((record, records), of_sweep) in enumerate(zip(sweeps, lines, strict=True)):
        ink = style.ink(position)
        chosen = _chosen(record.spec.name, records, trials)
        label = style.plain(text.shorten(record.spec.name, 40))
        for line in of_sweep:
            if line.trial.number in chosen:
                _draw(axes, line, ink.color, label=label, mark=ink.mark, dashes=ink.line)
                label = "_"  # one entry a sweep


def _by_value(figure: Any, axes: Any, sweeps: Sequence[Subject], lines: Sequence[_Line], by: str) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import ListedColormap

    known = known_params(sweeps)
    if by not in known:
        raise UsageError(f"no trial has a parameter '{by}'{nearest(by, known)}")
    scale = coordinates(sweeps, by)
    shown = [line for line in thin(lines, MAX_BEHIND) if by in line.trial.params]
    places = [scale.place(line.trial.params[by]) for line in shown]
    if scale.choices:
        for line, place in zip(shown, places, strict=True):
            ink = style.ink(round(place * (len(scale.choices) - 1)))
            _draw(axes, line, ink.color, dashes=ink.line, width=1.0)
        for position, choice in enumerate(scale.choices):
            ink = style.ink(position)
            axes.plot([], [], color=ink.color, linestyle=ink.line, label=f"{style.plain(by)} = {style.plain(choice)}")
        return
    for line, place, color in zip(shown, places, style.ordered_colors(places), strict=True):
        _draw(axes, line, color, width=1.0, order=2.0 + 0.5 * place)
    ramp = ScalarMappable(cmap=ListedColormap(style.ordered_colors(np.linspace(0, 1, 128).tolist())))
    bar = figure.colorbar(ramp, ax=axes, pad=0.01, fraction=0.03)
    bar.set_ticks([place for place, _ in scale.ticks()], labels=[label for _, label in scale.ticks()])
    bar.set_label(style.plain(by))
    bar.outline.set_visible(False)


def _means(axes: Any, sweeps: Sequence[Subject], lines: Sequence[Sequence[_Line]], by: str | None) -> None:
    groups: dict[str, list[_Line]] = {}
    if by is None:
        for (record, _), of_sweep in zip(sweeps, lines, strict=True):
            groups[text.shorten(record.spec.name, 40)] = list(of_sweep)
    else:
        groups = _groups(sweeps, [line for of_sweep in lines for line in of_sweep], by)
    for position, (name, of_group) in enumerate(groups.items()):
        if not of_group:
            continue
        ink = style.ink(position)
        for line in thin(of_group, MAX_BEHIND // len(groups) + 1):
            axes.plot(line.x, line.y, color=ink.color, linewidth=0.6, alpha=0.2)
        x, value, spread = mean_of([(line.x, line.y) for line in of_group])
        axes.fill_between(x, value - spread, value + spread, color=ink.color, alpha=0.18, linewidth=0)
        label = f"{style.plain(name)} ({counted(len(of_group), 'curve')})"
        axes.plot(x, value, ink.line, marker="." if len(x) == 1 else "", color=ink.color, linewidth=2.0, label=label)


def _groups(sweeps: Sequence[Subject], lines: Sequence[_Line], by: str) -> dict[str, list[_Line]]:
    """Returns the curves by the value of a parameter: of numbers with many values, `_PARTS` groups of about as many."""
    known = known_params(sweeps)
    if by not in known:
        raise UsageError(f"no trial has a parameter '{by}'{nearest(by, known)}")
    having = [line for line in lines if by in line.trial.params]
    scale = coordinates(sweeps, by)
    # Not by their places alone: values outside the range all stand at its ends.
    having.sort(key=lambda line: _order(line.trial.params[by], scale))
    values = [text.param(line.trial.params[by]) for line in having]
    if scale.choices or len(set(values)) <= _PARTS:
        return {
            f"{by} = {value}": [one for one, v in zip(having, values, strict=True) if v == value] for value in values
        }
    groups: dict[int, list[int]] = {}
    for place, value in enumerate(values):  # equal values stay together
        groups.setdefault(_PARTS * values.index(value) // len(values), []).append(place)
    return {
        f"{by} = {values[own[0]]}" + (f" to {values[own[-1]]}" if values[own[0]] != values[own[-1]] else ""): [
            having[place] for place in own
        ]
        for own in groups.values()
    }


def _order(value: ParamValue, scale: Scale) -> tuple[float, float]:
    number = isinstance(value, int | float) and not scale.choices
    return scale.place(value), float(value) if number else 0.0


def mean_of(curves: Sequence[tuple[Sequence[float], Sequence[float]]], most: int = 300) -> tuple[Any, Any, Any]:
    """Returns the mean of n curves: x, value and one standard deviation, `num_points` each.

    Between two points a curve is the line through them; beyond its ends it is not counted. The mean ends where fewer
    than half of the curves go on. The page Curves has the same.
    """
    places = np.unique(np.concatenate([np.asarray(x, dtype=np.float64) for x, _ in curves]))
    if len(places) > most:
        places = np.linspace(places[0], places[-1], most)
    rows = np.array([np.interp(places, x, y, left=np.nan, right=np.nan) for x, y in curves])
    count = (~np.isnan(rows)).sum(axis=0)
    kept = (count > 0) & (2 * count >= len(curves))
    places, rows, count = places[kept], rows[:, kept], count[kept]
    value = np.nansum(rows, axis=0) / count
    spread = np.sqrt(np.nansum((rows - value) ** 2, axis=0) / np.maximum(count - 1, 1))
    return places, value, spread


def _draw(
    axes: Any,
    line: _Line,
    color: Any,
    *,
    label: str = "_",
    mark: str = "o",
    dashes: str = "-",
    width: float = 1.5,
    order: float = 3.0,
) -> None:
    axes.plot(line.x, line.y, dashes, label=label, color=color, linewidth=width, zorder=order)
    last = line.y[-1] if line.final is None else line.final
    state = line.trial.state
    if state is TrialState.FAILED:
        axes.plot(line.x[-1], last, "x", color=color, markersize=6, zorder=order)
    elif state.finished:
        face = {"markerfacecolor": "white"} if state is TrialState.PRUNED else {"markeredgecolor": "white"}
        axes.plot(line.x[-1], last, mark, color=color, markersize=5, zorder=order, **face)
    elif len(line.x) == 1:  # it runs, and a point alone has no line
        axes.plot(line.x, line.y, ".", color=color, zorder=order)


def _chosen(name: str, records: Sequence[TrialRecord], trials: Sequence[int] | None) -> set[int]:
    if trials is None:
        return {trial.number for trial in thin(style.front_of(records), MAX_CURVES)}
    known = {trial.number for trial in records}
    if missing := [number for number in trials if number not in known]:
        raise UsageError(
            f"sweep '{name}' has no trial {missing[0]}; it has {len(known)}, from 0 to {max(known, default=0)}"
        )
    return set(trials)


def needed(records: Sequence[TrialRecord], trials: Sequence[int] | None) -> set[int]:
    """Returns the numbers of the trials of a sweep whose curves may be drawn: `curves` leaves out all others."""
    front = {trial.number for trial in thin(style.front_of(records), MAX_CURVES)}
    asked = set(trials or ()) & {trial.number for trial in records}
    behind = {trial.number for trial in thin([t for t in records if t.number not in front], MAX_BEHIND)}
    return set(sorted(asked)[:_MOST_ASKED]) | front | behind


def thin(items: Sequence[Any], most: int) -> list[Any]:
    """Returns at most `most` of the items, spread evenly, the first and the last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _line(trial: TrialRecord, direction: Direction, x: Axis, smooth: float) -> _Line:
    points = [point for point in trial.curve if point.score is not None]
    # A trial that continues another counts its seconds from where that one ended, and its steps from the first one.
    seconds = np.array([trial.continued_seconds + point.elapsed_seconds for point in points])
    steps = np.array([float(point.steps) for point in points])
    scores = [float(shown_score(point.score or 0.0, direction)) for point in points]
    along = steps if x == "steps" else seconds
    if x == "fraction":
        along = seconds / max(trial.run_seconds, float(seconds[-1]), 1e-9)
    smoothed = list(_smoothed(scores, smooth))
    kept = extremes(smoothed, MAX_POINTS)
    final = shown_score(trial.score, direction) if trial.state is TrialState.COMPLETE else None
    return _Line(trial, [float(along[i]) for i in kept], [smoothed[i] for i in kept], final)


def _smoothed(values: Sequence[float], weight: float) -> Iterator[float]:
    """Yields the exponential mean, without a pull towards a start of 0."""
    mean, mass = 0.0, 0.0
    for value in values:
        mean, mass = weight * mean + (1 - weight) * value, weight * mass + (1 - weight)
        yield mean / mass


def extremes(values: Sequence[float], most: int) -> list[int]:
    """Returns at most `most` indices of values: the first, the last, the least and the greatest of each part."""
    if len(values) <= most:
        return list(range(len(values)))
    array = np.asarray(values, dtype=np.float64)
    kept = {0, len(array) - 1}
    edges = np.linspace(0, len(array), max((most - 2) // 2, 1) + 1).astype(int)
    for begin, end in itertools.pairwise(edges.tolist()):
        kept |= {begin + int(array[begin:end].argmin()), begin + int(array[begin:end].argmax())}
    return sorted(kept)


def _all_y(line: _Line) -> list[float]:
    return [*line.y, *([] if line.final is None else [line.final])]


def _stored(score: float, direction: Direction) -> float:
    return float(shown_score(score, direction))  # the same flip in both directions
