"""Parameters: parallel coordinates of all trials, and which of them matter.

Parallel coordinates are a vertical axis for each parameter, then cost and score, and a line for each trial.

Better trials are darker and lie on top. The axis of the score has a place below its worst end for failed trials, which
have no score. Their lines are red and thin.

Importance has a panel for each method, each named, because they answer different questions. Bars are shares of the
method's total, so they add up to 100 % in each panel. A method that has no answer says why.
"""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from protein.analysis.importance import Importance
from protein.columns import cell
from protein.direction import shown_score
from protein.errors import UsageError
from protein.spelling import nearest
from protein.types import Direction, TrialRecord, TrialState
from protein.view import text
from protein.view.figures import style
from protein.view.figures.curves import thin
from protein.view.figures.front import NO_SCORE, failures
from protein.view.figures.style import FAILED_COLOR, INK, MUTED, Scale, Subject, coordinates, known_params
from protein.view.scatter import cost_bounds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_PARAMS = 10  # unless they were asked for
MAX_LINES = 2000
_BELOW = -0.09  # on an axis: of the score for failed trials, of a parameter for those in which it is not active
_INCHES_A_AXIS, _LEAST_INCHES, _HEIGHT = 1.25, 6.0, 5.2
_SPREAD = 0.03  # trials with the same choice are drawn this far apart at most
_PANEL_INCHES, _INCHES_A_BAR = 3.9, 0.27
_MAX_BARS = 25
_LETTERS_A_LINE = 46
_LETTERS_A_HEAD, _HEAD_LINES = 18, 3  # of the name above an axis


def parallel(sweeps: Sequence[Subject], *, params: Sequence[str] | None = None) -> "Figure":
    """Returns the picture.

    Args:
        sweeps: at least one, all of one environment and direction; of several, a first axis tells them apart.
        params: the axes, in this order; None: the parameters in which trials differ, at most `MAX_PARAMS`: those whose
            order goes most with that of the scores.

    Raises:
        UsageError: no trial has a score, or there is no such parameter.
    """
    direction = style.one_direction(sweeps)
    if len(envs := style.by_env(sweeps)) > 1:
        raise UsageError(f"the sweeps are of {', '.join(envs)}, whose scores share no axis; plot them apart")
    known = known_params(sweeps)
    if params is not None and (missing := [name for name in params if name not in known]):
        raise UsageError(f"no trial has a parameter '{missing[0]}'{nearest(missing[0], known)}")
    pairs = [(position, trial) for position, (_, trials) in enumerate(sweeps) for trial in trials]
    scored = [(i, t) for i, t in pairs if t.state.finished and t.score is not None]
    failed = [(i, t) for i, t in pairs if failures([t])]
    if not scored:
        raise UsageError(NO_SCORE)
    names = list(params) if params is not None else _telling(sweeps, [t for _, t in scored], known)
    scales = [coordinates(sweeps, name) for name in names]
    axes_of = [
        *([_of_sweeps(sweeps)] if len(sweeps) > 1 else []),
        *scales,
        _of_cost([style.cost(t) for _, t in scored]),
        _of_score([float(t.score or 0.0) for _, t in scored], direction),
    ]

    def places(position: int, trial: TrialRecord) -> list[float]:
        return [
            *([axes_of[0].place(position)] if len(sweeps) > 1 else []),
            *(_param_place(scale, trial, _BELOW) for scale in scales),
            axes_of[-2].place(style.cost(trial)),
            _BELOW if trial.score is None else axes_of[-1].place(trial.score),
        ]

    with style.look():
        figure = style.new_figure(max(_LEAST_INCHES, _INCHES_A_AXIS * len(axes_of) + 1.0), _HEIGHT)
        axes = figure.add_subplot()
        scored.sort(key=lambda pair: float(pair[1].score or 0.0))
        # By rank, so that one outlier does not give all others one color.
        ranks = np.linspace(0.0, 1.0, len(scored)) if len(scored) > 1 else np.ones(1)
        drawn = thin(list(zip(scored, ranks.tolist(), strict=True)), MAX_LINES)
        lines = [places(*pair) for pair, _ in drawn]
        bad = [places(*pair) for pair in thin(failed, MAX_LINES // 4)]
        below = {i: "no value" for i in range(len(axes_of) - 1) if any(line[i] == _BELOW for line in (*lines, *bad))}
        below |= {len(axes_of) - 1: "failed"} if bad else {}
        _jitter([*lines, *bad], axes_of)
        _lines(axes, bad, [FAILED_COLOR] * len(bad), [0.35] * len(bad), 0.8)
        shares = [share for _, share in drawn]
        _lines(axes, lines, style.ordered_colors(shares), [0.15 + 0.75 * share**3 for share in shares], 1.1)
        _axes(axes, axes_of, below, pruned=any(t.state is TrialState.PRUNED for _, t in scored))
        highest = max(_head(scale.name).count("\n") for scale in axes_of)
        axes.set_title(style.title(sweeps), pad=26 + 12 * highest)
    return figure


def importance(found: Sequence[Importance], title: str) -> "Figure":
    """Returns the picture.

    Raises:
        UsageError: no method has an answer.
    """
    answered = [one for one in found if one.shares]
    if not answered:
        problem = found[0].problem if found else "no method was asked"
        raise UsageError(f"the importance of parameters is not known: {problem}")
    names = _ordered(answered)
    with style.look():
        height = _INCHES_A_BAR * min(len(names), _MAX_BARS) + 2.4
        figure = style.new_figure(_PANEL_INCHES * len(found) + 1.4, height)
        grid = figure.subplots(1, len(found), squeeze=False, sharey=True)[0]
        for position, (axes, one) in enumerate(zip(grid, found, strict=True)):
            _panel(axes, one, names, style.ink(position).color)
        grid[0].set_yticks(range(len(names)), [style.plain(text.shorten(name, 34)) for name in names])
        grid[0].set_ylim(len(names) - 0.4, -0.6)
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
    return figure


def _lines(axes: Any, lines: Sequence[Sequence[float]], colors: Sequence[Any], alphas: Any, width: float) -> None:
    from matplotlib.collections import LineCollection

    if not lines:
        return
    paths = [list(enumerate(line)) for line in lines]
    axes.add_collection(LineCollection(paths, colors=list(colors), alpha=alphas, linewidths=width, zorder=2))


def _axes(axes: Any, scales: Sequence[Scale], below: Mapping[int, str], *, pruned: bool) -> None:
    """Draws the axes; `below` has what trials have in common that are below one, by its position."""
    axes.set_xlim(-0.25, len(scales) - 0.6)
    axes.set_ylim(_BELOW - 0.05 if below else -0.05, 1.05)
    axes.grid(False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_yticks([])
    axes.set_xticks([])
    label = {"fontsize": 8, "color": MUTED, "zorder": 5, "va": "center"}
    box = {"facecolor": "white", "alpha": 0.75, "edgecolor": "none", "pad": 0.8}
    for position, scale in enumerate(scales):
        axes.plot([position, position], [0, 1], color=MUTED, linewidth=1.0, zorder=4)
        for place, name in scale.ticks():
            axes.plot([position - 0.02, position], [place, place], color=MUTED, linewidth=1.0, zorder=4)
            words = style.plain(text.shorten(name, 14))
            axes.text(position + 0.04, place, words, bbox=box, **label)
        axes.text(position, 1.07, style.plain(_head(scale.name)), ha="center", va="bottom", fontsize=8.5, color=INK)
    for position, words in below.items():
        color = FAILED_COLOR if position == len(scales) - 1 else MUTED
        axes.plot([position], [_BELOW], "x", color=color, markersize=6, zorder=5)
        axes.text(position + 0.06, _BELOW, words, bbox=box, **{**label, "color": color})
    note = "dark: the best scores, by rank" + ("; trials that were cut short are among them" if pruned else "")
    axes.text(0.0, -0.02, note, transform=axes.transAxes, va="top", fontsize=8, color=MUTED)


def _head(name: str) -> str:
    """Returns a parameter's name in lines that are no wider than the room of an axis."""
    section, dot, short = name.rpartition(".")
    words = short.replace("_", "_ ")  # where a line may end
    lines = textwrap.wrap(words, _LETTERS_A_HEAD, max_lines=_HEAD_LINES, placeholder="…")
    return "\n".join(
        [text.shorten(section + dot, _LETTERS_A_HEAD), *(line.replace("_ ", "_") for line in lines)]
    ).strip()


def _param_place(scale: Scale, trial: TrialRecord, absent: float = math.nan) -> float:
    return scale.place(trial.params[scale.name]) if scale.name in trial.params else absent


def _jitter(lines: Sequence[list[float]], scales: Sequence[Scale]) -> None:
    """Moves lines apart that go through one choice, evenly and always the same way."""
    for axis, scale in enumerate(scales):
        if scale.choices:
            room = _SPREAD / max(len(scale.choices) - 1, 1) if len(scale.choices) > 8 else _SPREAD
            for order, line in enumerate(lines):
                line[axis] += room * ((order * 0.618034) % 1.0 - 0.5) * 2  # the golden ratio fills any interval evenly


def _of_sweeps(sweeps: Sequence[Subject]) -> Scale:
    last = len(sweeps) - 1
    names = tuple(record.spec.name for record, _ in sweeps)
    return Scale("sweep", lambda v: float(v) / last, lambda where: names[round(where * last)], names)


def _of_cost(costs: Sequence[float]) -> Scale:
    low, high = (math.log(cost) for cost in cost_bounds(costs))
    return Scale(
        "cost",
        lambda v: min(max((math.log(float(v)) - low) / (high - low), 0.0), 1.0),
        lambda where: text.seconds(math.exp(low + where * (high - low))),
    )


def _of_score(scores: Sequence[float], direction: Direction) -> Scale:
    low, high = style.score_bounds(scores)
    return Scale(
        "score",
        lambda v: max((float(v) - low) / (high - low), 0.0),
        lambda where: text.score(shown_score(low + where * (high - low), direction)),
    )


def _telling(sweeps: Sequence[Subject], scored: Sequence[TrialRecord], known: Sequence[str]) -> list[str]:
    """Returns the parameters in which trials differ, at most `MAX_PARAMS`, in the order of the config."""
    values = {name: {repr(cell(t.params[name])) if name in t.params else "" for t in scored} for name in known}
    varied = [name for name in known if len(values[name]) > 1]
    if len(varied) <= MAX_PARAMS:
        return varied or list(known[:MAX_PARAMS])
    scores = np.array([float(t.score or 0.0) for t in scored])
    strength = {name: _association(coordinates(sweeps, name), scored, scores) for name in varied}
    kept = sorted(varied, key=lambda name: -strength[name])[:MAX_PARAMS]
    return [name for name in varied if name in kept]


def _association(scale: Scale, trials: Sequence[TrialRecord], scores: Any) -> float:
    """Returns the share of the scores' ranks that the parameter's fifths (or choices) account for: from 0 to 1."""
    from scipy.stats import rankdata

    ranks = rankdata(scores)
    places = np.array([_param_place(scale, trial) for trial in trials])
    groups = np.where(np.isnan(places), -1, np.floor(places * 4.999)) if not scale.choices else places
    total = float(((ranks - ranks.mean()) ** 2).sum())
    if total == 0.0:
        return 0.0
    between = 0.0
    for group in np.unique(groups[~np.isnan(groups)]):
        of_group = ranks[groups == group]
        between += len(of_group) * float((of_group.mean() - ranks.mean()) ** 2)
    return between / total


def _ordered(answered: Sequence[Importance]) -> list[str]:
    """Returns the parameters by the mean of the shares, at most `_MAX_BARS`, the most important first."""
    names = list(answered[0].shares)
    mean = {name: float(np.mean([one.shares.get(name, 0.0) for one in answered])) for name in names}
    return sorted(names, key=lambda name: -mean[name])[:_MAX_BARS]


def _panel(axes: Any, one: Importance, names: Sequence[str], color: str) -> None:
    axes.set_title("\n".join(textwrap.wrap(one.title[:1].upper() + one.title[1:], _LETTERS_A_LINE)), fontsize=9.5)
    axes.grid(axis="y", visible=False)
    axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    said = one.problem or ". ".join(filter(None, (one.meaning, one.warning)))
    words = "\n".join(textwrap.wrap(style.plain(said), _LETTERS_A_LINE))
    axes.set_xlabel(words, fontsize=8, color=style.MUTED if not one.warning else style.FAILED_COLOR)
    if not one.shares:
        axes.set_xlim(0, 1)
        axes.set_xticks([])
        axes.text(0.5, 0.5, "no answer", transform=axes.transAxes, ha="center", color=style.MUTED)
        return
    shares = [one.shares.get(name, 0.0) for name in names]
    axes.barh(range(len(names)), shares, height=0.62, color=color, zorder=2)
    top = max(shares) or 1.0
    for place, share in enumerate(shares):
        axes.text(share + 0.015 * top, place, f"{100 * share:.0f} %", va="center", fontsize=7.5, color=style.MUTED)
    axes.set_xlim(0, 1.14 * top)
