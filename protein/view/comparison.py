"""A comparison of sweeps: plain data, the same for the page and for `--json`, tables for the terminal, and a picture.

The picture has the best score so far against the spent budget, fronts, and the comparison's figures. Lines are means
over a side's seeds, bands their 80 % intervals. Where one seed is all there is, there is no band.
"""

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from protein.analysis.comparison import FIGURES, Band, Comparison, Difference, Environment, SideResult
from protein.direction import shown_score
from protein.engine.gp import Array
from protein.types import Direction, Estimate
from protein.units import format_probability
from protein.view import tables, text
from protein.view.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLES = {
    "best": "best config",
    "hypervolume": "hypervolume",
    "area": "mean of the best so far",
}
MEANING = (
    "0 is the median score of all complete trials, 1 the best one; a higher figure is better, and intervals hold 80 %"
)
_SHARES = (0.1, 0.25, 0.5, 1.0)  # of the common budget
_NUM_COSTS = 4
_PANEL_INCHES = (5.2, 3.5)
_SIDE_GAP = 0.14  # between the sides' marks of one figure, in figures


def plain(found: Comparison) -> dict[str, Any]:
    """Returns a comparison as plain data with stable keys. Scores are as the user knows them, gaps are NaN."""
    direction = {env.name: env.direction for env in found.environments}
    return {
        "figures": list(FIGURES),
        "environments": [
            {
                "name": env.name,
                "direction": str(env.direction),
                "low": shown_score(env.low, env.direction),
                "high": shown_score(env.high, env.direction),
                "common_seconds": env.common_seconds,
                "cost_range": list(env.cost_range),
            }
            for env in found.environments
        ],
        "sides": [
            {
                "label": side.label,
                "num_seeds": dict(side.num_seeds),
                "figures": {name: dataclasses.asdict(one) for name, one in side.figures.items()},
                "by_environment": {
                    env: {name: dataclasses.asdict(one) for name, one in own.items()}
                    for env, own in side.by_environment.items()
                },
                "best": {env: _band(band, direction[env]) for env, band in side.best.items()},
                "front": {env: _band(band, direction[env]) for env, band in side.front.items()},
                "overall": _band(side.overall, Direction.MAXIMIZE),
            }
            for side in found.sides
        ],
        "differences": {label: [_difference(one) for one in own] for label, own in found.differences.items()},
        "notes": list(found.notes),
    }


def shown_band(band: Band, direction: Direction) -> tuple[Array, Array, Array]:
    """Returns value, low and high of a band, `m` each, as the user knows the scores."""
    if direction is Direction.MAXIMIZE:
        return band.value, band.low, band.high
    return 0.0 - band.value, 0.0 - band.high, 0.0 - band.low


def figures_table(found: Comparison, width: int) -> Table:
    """One line a side: its figures over all environments, with their intervals where there are several seeds."""
    sides = found.sides
    seeds = [_counted(side) for side in sides]
    figures = [
        tables.Column(TITLES[name], [_figure(side.figures[name]) for side in sides], right=True, keep=9 - place)
        for place, name in enumerate(FIGURES)
    ]
    return tables.fitted(
        width,
        tables.Column("side", [side.label for side in sides], keep=10, least=12),
        tables.Column("sweeps", seeds, right=True, keep=3),
        *figures,
    )


def differences(found: Comparison) -> Iterator[str]:
    """Yields a line for each other side: by how much it is better than the reference."""
    reference = found.sides[0].label
    for label, own in found.differences.items():
        said = [f"{TITLES[one.figure]} {_signed(one.value)}{_chance(one)}" for one in own]
        yield f"{label} against {reference}: {'; '.join(said)}"


def environment_table(found: Comparison, env: Environment, width: int) -> Table:
    """One line a side in one environment: its best score when parts of the budget were spent, and its front."""
    sides, common = found.sides, env.common_seconds
    spent = [
        (f"at {text.seconds(share * common)}", [_at(side.best[env.name], share * common, env) for side in sides])
        for share in _SHARES
    ]
    low, high = env.cost_range
    costs = np.geomspace(low, high, _NUM_COSTS + 1)[1:].tolist() if high > low * 1.01 else [high]
    fronts = [(f"in {text.seconds(cost)}", [_at(side.front[env.name], cost, env) for side in sides]) for cost in costs]
    return tables.fitted(
        width,
        tables.Column(env.name, [side.label for side in sides], keep=10, least=12),
        tables.Column("sweeps", [str(side.num_seeds[env.name]) for side in sides], right=True, keep=1),
        tables.Column(
            "hypervolume", [_figure(side.by_environment[env.name]["hypervolume"]) for side in sides], right=True, keep=9
        ),
        *(tables.Column(title, cells, right=True, keep=5) for title, cells in spent[:-1]),
        *(tables.Column(title, cells, right=True, keep=8) for title, cells in spent[-1:]),
        *(tables.Column(title, cells, right=True, keep=6) for title, cells in fronts),
    )


ENVIRONMENT_LEGEND = "at: best score when that much was spent; in: best score of a trial that costs at most that much"


def compare(found: Comparison) -> "Figure":
    """Returns the picture: a row for each environment, and one for all of them together where there are several."""
    environments = found.environments
    together = len(environments) > 1
    with style.look():
        rows, columns = (len(environments) + 1, 2) if together else (1, 3)
        width = _PANEL_INCHES[0] * columns * (1.0 if together else 0.85)
        figure = style.new_figure(width, _PANEL_INCHES[1] * rows + 0.5)
        grid = figure.subplots(rows, columns, squeeze=False)
        if together:
            _overall(grid[0][0], found)
            _figures(grid[0][1], found)
        else:
            _figures(grid[0][2], found)
        for row, env in zip(grid[1:] if together else grid, environments, strict=True):
            _best(row[0], found, env)
            _fronts(row[1], found, env)
            row[0].set_title(style.plain(env.name))
        handles, labels = grid[0][0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 4))
    return figure


def _at(band: Band, x: float, env: Environment) -> str:
    """Returns a band's value at x: it is a staircase, so that of the last point up to there."""
    value, low, high = shown_band(band, env.direction)
    place = int(np.searchsorted(band.x, x * (1 + 1e-9), side="right")) - 1
    if place < 0 or np.isnan(value[place]):
        return text.MISSING
    if low[place] == high[place]:
        return text.score(float(value[place]))
    return f"{text.score(float(value[place]))} ({text.score(float(low[place]))} to {text.score(float(high[place]))})"


def _counted(side: SideResult) -> str:
    return str(sum(side.num_seeds.values()))


def _figure(value: Estimate) -> str:
    if value.low == value.high:
        return f"{value.value:.3f}"
    return f"{value.value:.3f} ({value.low:.3f} to {value.high:.3f})"


def _signed(value: Estimate) -> str:
    if value.low == value.high:
        return f"{value.value:+.3f}"
    return f"{value.value:+.3f} ({value.low:+.3f} to {value.high:+.3f})"


def _chance(one: Difference) -> str:
    return "" if one.probability is None else f", better with probability {format_probability(one.probability)}"


def _band(band: Band, direction: Direction) -> dict[str, Any]:
    value, low, high = shown_band(band, direction)
    return {"x": band.x, "value": value, "low": low, "high": high}


def _difference(one: Difference) -> dict[str, Any]:
    return {"figure": one.figure, "value": dataclasses.asdict(one.value), "probability": one.probability}


def _overall(axes: Any, found: Comparison) -> None:
    for position, side in enumerate(found.sides):
        band = side.overall
        _draw(axes, position, side.label, 100 * band.x, band.value, band.low, band.high)
    axes.set_xlabel("percent of the budget that all have spent")
    axes.set_ylabel("best score so far (0: median, 1: best)")
    axes.set_title(f"mean over {', '.join(style.plain(env.name) for env in found.environments)}")
    axes.set_xlim(0, 100)


def _best(axes: Any, found: Comparison, env: Environment) -> None:
    for position, side in enumerate(found.sides):
        band = side.best[env.name]
        _draw(axes, position, side.label, band.x, *shown_band(band, env.direction))
    last = max(float(side.best[env.name].x[-1]) for side in found.sides)
    style.clock_axis(axes, last)
    if env.common_seconds < 0.98 * last:
        axes.axvline(env.common_seconds, color=style.MUTED, linewidth=0.9, linestyle=":")
    axes.set_xlabel("spent: seconds of training of all trials")
    axes.set_ylabel(_score_label("best score so far", env))
    _limits(axes, [side.best[env.name] for side in found.sides], env)


def _fronts(axes: Any, found: Comparison, env: Environment) -> None:
    style.cost_axis(axes, env.cost_range)
    for position, side in enumerate(found.sides):
        band = side.front[env.name]
        _draw(axes, position, side.label, band.x, *shown_band(band, env.direction))
    axes.set_ylabel(_score_label("best score at this cost", env))
    _limits(axes, [side.front[env.name] for side in found.sides], env)


def _draw(axes: Any, position: int, label: str, x: Any, value: Any, low: Any, high: Any) -> None:
    ink = style.ink(position)
    if np.nanmax(high - low, initial=0.0) > 0:
        axes.fill_between(x, low, high, step="post", color=ink.color, alpha=0.18, linewidth=0)
    name = style.plain(text.shorten(label, 40))
    axes.step(x, value, ink.line, where="post", color=ink.color, linewidth=1.7, label=name)
    known = np.flatnonzero(~np.isnan(value))
    marked = known[:: max(len(known) // 6, 1)]  # so that sides can be told apart in gray
    axes.plot(x[marked], value[marked], ink.mark, color=ink.color, markersize=4.5, markeredgecolor="white")


def _limits(axes: Any, bands: list[Band], env: Environment) -> None:
    """Ends the axis so that a few bad scores at the start leave room for what differs."""
    stored = np.concatenate([np.concatenate([band.value, band.low, band.high]) for band in bands])
    stored = stored[np.isfinite(stored)]
    label = axes.get_ylabel()
    if len(stored):
        style.score_axis(axes, stored.tolist(), env.direction)
    axes.set_ylabel(label)


def _figures(axes: Any, found: Comparison) -> None:
    """Draws the figures of each side as a mark with its interval."""
    for position, side in enumerate(found.sides):
        ink = style.ink(position)
        shift = (position - (len(found.sides) - 1) / 2) * min(_SIDE_GAP, 0.8 / len(found.sides))
        for place, name in enumerate(FIGURES):
            one = side.figures[name]
            axes.plot([one.low, one.high], [place + shift] * 2, color=ink.color, linewidth=2.2, alpha=0.45)
            axes.plot(one.value, place + shift, ink.mark, color=ink.color, markersize=7, markeredgecolor="white")
    axes.set_yticks(range(len(FIGURES)), [TITLES[name] for name in FIGURES])
    axes.set_ylim(len(FIGURES) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    axes.set_xlim(right=max(1.0, axes.get_xlim()[1]))
    axes.set_xlabel("0: median of all complete trials, 1: the best one")
    axes.set_title("figures, with 80 % intervals over seeds" if _has_seeds(found) else "figures, of one seed each")


def _has_seeds(found: Comparison) -> bool:
    return any(number > 1 for side in found.sides for number in side.num_seeds.values())


def _score_label(words: str, env: Environment) -> str:
    return words if env.direction is Direction.MAXIMIZE else f"{words}\n(lower is better)"
