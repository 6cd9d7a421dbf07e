"""Sweeps over each other: the best score so far against the spent budget, fronts, and the comparison's figures.

Lines are means over a side's seeds, bands their 80 % intervals. Where one seed is all there is, there is no band.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from protein.analysis.comparison import FIGURES, Band, Comparison, Environment
from protein.types import Direction
from protein.view import text
from protein.view.comparison import TITLES, shown_band
from protein.view.figures import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PANEL_INCHES = (5.2, 3.5)
_SIDE_GAP = 0.14  # between the sides' marks of one figure, in figures


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
    axes.set_xlim(0, last)
    if env.common_seconds < 0.98 * last:
        axes.axvline(env.common_seconds, color=style.MUTED, linewidth=0.9, linestyle=":")
    axes.xaxis.set_major_formatter(lambda value, _: text.seconds(value) if value else "0s")
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
    return words if env.direction is Direction.MAXIMIZE else f"{words} (lower is better)"
