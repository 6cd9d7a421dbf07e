"""A comparison of sweeps as plain data, the same for the page and for `--json`, and as tables for the terminal."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
from rich.table import Table

from protein.analysis.comparison import FIGURES, Band, Comparison, Difference, Environment, SideResult
from protein.direction import shown_score
from protein.engine.gp import Array
from protein.types import Direction, Estimate
from protein.view import tables, text

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
    return "" if one.probability is None else f", better with probability {100 * one.probability:.0f} %"


def _band(band: Band, direction: Direction) -> dict[str, Any]:
    value, low, high = shown_band(band, direction)
    return {"x": band.x, "value": value, "low": low, "high": high}


def _difference(one: Difference) -> dict[str, Any]:
    return {"figure": one.figure, "value": dataclasses.asdict(one.value), "probability": one.probability}
