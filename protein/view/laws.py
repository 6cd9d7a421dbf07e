"""Laws of the best config over cost: a table, strips for a terminal, plain data, and a picture.

A strip is a parameter's range on its own scale, from its low end at the left to its high end at the right:

    ━  80 % interval of the best value    ●  its median
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from protein.columns import value_of
from protein.engine.pareto import MIN_COST_SECONDS
from protein.engine.results import Matters
from protein.space import Float, Integer, Parameter
from protein.types import Estimate, TrialRecord, TrialState
from protein.units import format_duration
from protein.view import tables, text
from protein.view.figures import style
from protein.view.figures.style import DOTS_PER_INCH, FRONT_COLOR, OTHER_COLOR, thinned, write
from protein.view.scatter import cost_ticks

if TYPE_CHECKING:
    from protein.engine.laws import BestValue, Law, Laws

LEGEND = "━ 80 % interval of the best value  ● its median; a strip is the parameter's range"
TEN_TIMES = 10.0  # the largest trial's cost, where laws are shown unless another cost is asked for
_NUM_POINTS = 25  # of cost, in the picture
_LEAST_TICKS, _MOST_TICKS = 3, 6  # of an axis that is not linear
_COLUMNS, _PANEL_INCHES = 3, (3.6, 2.5)
_ENDS = {"low": "at the low end of its range", "high": "at the high end of its range", "beyond": "beyond its range"}


def table(laws: "Laws", known: Matters, seconds: float, width: int) -> Table:
    """One line a parameter, in the order in which they matter: its share, its best value at two costs, its law.

    The costs are that of the largest trial and another.
    """
    here, there = laws.values(laws.largest_seconds), laws.values(seconds)
    shares = {one.name: one for one in known.parameters}
    by_name = {law.name: law for law in laws.laws}
    ranked = [by_name[name] for name in shares or by_name]

    def cells(values: "Mapping[str, BestValue]") -> list[str]:
        return [best_text(laws.space.parameter(law.name), values[law.name]) for law in ranked]

    said = [f"{shares[law.name].verdict} {shares[law.name].share.text()}" if shares else "" for law in ranked]
    return tables.fitted(
        width,
        tables.Column("best value of", [law.name for law in ranked], keep=9, least=16),
        tables.Column("share", said, keep=8),
        tables.Column(f"at {text.seconds(laws.largest_seconds)}", cells(here), keep=5),
        tables.Column(f"at {text.seconds(seconds)}", cells(there), keep=7),
        tables.Column("law", [formula(law) for law in ranked], keep=6),
        tables.Column("", [_verdict(law, there[law.name]) for law in ranked], keep=8, least=20),
    )


def strips(laws: "Laws", seconds: float, width: int) -> list[str]:
    """Returns two strips for each number that the data tell: at the largest trial's cost, and at another."""
    shown = [
        parameter
        for parameter, law in zip(laws.space.parameters, laws.laws, strict=True)
        if isinstance(parameter, Float | Integer) and law.known and law.name != laws.space.cost_parameter
    ]
    if not shown:
        return []
    costs = [laws.largest_seconds, seconds]
    values = [laws.values(cost) for cost in costs]
    when = [f"at {text.seconds(cost)}" for cost in costs]
    ends = [(_number(parameter, parameter.low), _number(parameter, parameter.high)) for parameter in shown]
    names = max(len(parameter.name) for parameter in shown)
    lows, highs = max(len(low) for low, _ in ends), max(len(high) for _, high in ends)
    columns = max(width - names - lows - highs - max(map(len, when)) - 8, 12)
    lines = []
    for parameter, (low, high) in zip(shown, ends, strict=True):
        for row, value in enumerate(values):
            estimate = value[parameter.name].estimate
            labels = (parameter.name, low, high) if row == 0 else ("", "", "")
            strip = " " * columns if estimate is None else _strip(parameter, estimate, columns)
            lines.append(f"{labels[0]:<{names}}  {labels[1]:>{lows}} ┤{strip}├ {labels[2]:<{highs}}  {when[row]}")
    return lines


def plain(laws: "Laws", known: Matters, costs: Sequence[float]) -> list[dict[str, Any]]:
    """Returns the laws as plain data with stable keys, with the best values at some costs in seconds, and shares."""
    shares = {one.name: one for one in known.parameters}
    values = [(cost, laws.values(cost)) for cost in costs]
    return [
        {
            "parameter": law.name,
            "kind": law.kind,
            "exponent": None if law.exponent is None else dataclasses.asdict(law.exponent),
            "effect": law.effect,
            "verdict": shares[law.name].verdict if law.name in shares else None,
            "share": dataclasses.asdict(shares[law.name].share) if law.name in shares else None,
            "known": law.known,
            "moves": law.moves,
            "followed": law.followed,
            "values": [{"seconds": cost, **plain_value(value[law.name])} for cost, value in values],
        }
        for law in laws.laws
    ]


def plain_value(value: "BestValue") -> dict[str, Any]:
    """Returns what is believed of a best value as plain data."""
    estimate = None if value.estimate is None else dataclasses.asdict(value.estimate)
    shares = [{"choice": value_of(choice), "share": share} for choice, share in value.shares.items()]
    said = {"known": value.known, "at_end": value.at_end, "active": value.active}
    return {"estimate": estimate, "shares": shares, **said}


def costs_between(laws: "Laws", seconds: float, num: int = _NUM_POINTS) -> list[float]:
    """Returns costs from where the laws begin to the larger of a cost and that of the largest trial."""
    last = max(seconds, laws.largest_seconds)
    return [float(cost) for cost in np.geomspace(laws.cheapest_seconds, last, num)]


def write_picture(laws: "Laws", trials: Sequence[TrialRecord], seconds: float, title: str, path: Path) -> None:
    """Writes a PNG with a panel for each number: the best value over cost with its interval, and the complete trials.

    They are drawn up to the cost of `seconds`. The file's folder is made.

    Raises:
        OSError: the file cannot be written.
    """
    # Imported here because it takes 0.7 s. Without pyplot there is no global state and no search for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    costs = costs_between(laws, seconds)
    values = [laws.values(cost) for cost in costs]
    shown = [
        (parameter, law)
        for parameter, law in zip(laws.space.parameters, laws.laws, strict=True)
        if isinstance(parameter, Float | Integer)
    ]
    columns = min(_COLUMNS, len(shown))
    rows = math.ceil(len(shown) / columns)
    size = (_PANEL_INCHES[0] * columns, _PANEL_INCHES[1] * rows + 0.5)
    figure = Figure(figsize=size, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(style.plain(title), x=0.01, ha="left", fontsize=11)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes in grid[len(shown) :]:
        axes.set_visible(False)
    complete = [trial for trial in trials if trial.state is TrialState.COMPLETE and not trial.excluded]
    for axes, (parameter, law) in zip(grid, shown, strict=False):
        _panel(axes, laws, law, parameter, complete, costs, [value[parameter.name] for value in values])
    write(figure, path)


def log_ticks(low: float, high: float) -> list[float]:
    """Returns numbers to write beside a log axis: powers of ten where there are enough of them."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return _few([digit * 10.0**e for e in exponents for digit in (1, 2, 5)], [10.0**e for e in exponents], low, high)


def logit_ticks(low: float, high: float) -> list[float]:
    """Returns numbers to write beside a logit axis, both ends in (0, 1): they or their distances to 1 are round."""
    decades = [10.0**-decade for decade in range(9, 0, -1)]
    fine = [digit * decade for decade in decades for digit in (1, 2, 5)]
    mirrored = [*fine, *(1.0 - tick for tick in reversed(fine[:-1]))]
    return _few(mirrored, [*decades, 0.5, *(1.0 - tick for tick in reversed(decades))], low, high)


def _few(fine: Sequence[float], coarse: Sequence[float], low: float, high: float) -> list[float]:
    """Returns 3 to 8 numbers from `low` to `high`: fine ones, coarse ones, or on a narrow axis evenly spaced ones."""
    small = 1e-9 * min(low, high - low)  # for rounding

    def inside(ticks: Sequence[float]) -> list[float]:
        return [tick for tick in ticks if low - small <= tick <= high + small]

    ticks = inside(fine)
    if len(ticks) > _MOST_TICKS:
        ticks = inside(coarse)
    while len(ticks) > _MOST_TICKS:
        ticks = ticks[::2]
    step = 10.0 ** math.ceil(math.log10(high - low))
    for divisor in (1, 2, 5, 10, 20, 50):
        if len(ticks) >= _LEAST_TICKS:
            break
        even = step / divisor
        ticks = inside([even * count for count in range(math.floor(low / even), math.ceil(high / even) + 1)])
    return ticks


def _panel(
    axes: Any,
    laws: "Laws",
    law: "Law",
    parameter: Float | Integer,
    complete: Sequence[TrialRecord],
    costs: Sequence[float],
    values: "Sequence[BestValue]",
) -> None:
    low, middle, high = (
        [math.nan if value.is_absent else getattr(value.estimate, name) for value in values]
        for name in ("low", "value", "high")
    )
    tried = [(max(t.run_seconds, MIN_COST_SECONDS), t.params[parameter.name]) for t in complete if law.name in t.params]
    left, right = min([cost for cost, _ in tried] + [costs[0]]), costs[-1]
    axes.set_xscale("log")
    axes.set_yscale({"linear": "linear", "logit": "logit"}.get(parameter.scale, "log"))
    axes.scatter([cost for cost, _ in tried], [float(v) for _, v in tried], color=OTHER_COLOR, s=9, alpha=0.6, lw=0)
    color = FRONT_COLOR if law.known else OTHER_COLOR
    axes.fill_between(costs, low, high, color=color, alpha=0.2, linewidth=0)
    axes.plot(costs, middle, color=color, linewidth=1.6, linestyle="-" if law.known else ":")
    axes.axvline(laws.largest_seconds, color="black", linewidth=0.8, alpha=0.4, linestyle="--")
    if parameter.name != laws.space.cost_parameter:
        axes.set_ylim(parameter.low, parameter.high)
    axes.set_xlim(left, right)
    ticks = thinned(cost_ticks(left, right), left, right)
    ticks = ticks[:: max(1, math.ceil(len(ticks) / 5))]
    axes.set_xticks(ticks, [format_duration(tick) for tick in ticks], fontsize=8)
    if parameter.scale != "linear":
        marks = (logit_ticks if parameter.scale == "logit" else log_ticks)(*map(float, axes.get_ylim()))
        axes.set_yticks(marks, [_number(parameter, mark) for mark in marks])
    axes.minorticks_off()
    axes.tick_params(axis="y", labelsize=8)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    said = "not active in the best config" if values[-1].is_absent else "the data do not tell"
    said = formula(law) if law.known else said
    axes.set_title(f"{parameter.name}\n{said}", loc="left", fontsize=8)


def best_text(parameter: Parameter, value: "BestValue") -> str:
    """Returns a best value with its interval, as in "0.0031 (0.001 to 0.009)"; of a categorical its best choices.

    It is empty for a parameter that the best config has not.
    """
    if value.is_absent:
        return ""
    if value.estimate is not None:
        low, middle, high = value.estimate.low, value.estimate.value, value.estimate.high
        return f"{_number(parameter, middle)} ({_number(parameter, low)} to {_number(parameter, high)})"
    ranked = sorted(value.shares.items(), key=lambda item: -item[1])[:2]
    return ", ".join(f"{text.param(choice)} {100 * share:.0f} %" for choice, share in ranked if share > 0)


def _number(parameter: Parameter, number: float) -> str:
    return text.short(round(number) if isinstance(parameter, Integer) else float(number))


def law_text(law: "Law") -> str:
    """Returns how a best value changes, as in "falls with cost: cost^-0.32 (-0.50 to -0.10)"; "" where none is seen."""
    if law.exponent is None or not law.moves:
        return ""
    return f"{'falls' if law.exponent.value < 0 else 'rises'} with cost: {formula(law)}"


def formula(law: "Law") -> str:
    if law.exponent is None or not law.known:
        return text.MISSING
    low, middle, high = law.exponent.low, law.exponent.value, law.exponent.high
    if law.kind == "line":
        return f"{middle:+.2g} ({low:+.2g} to {high:+.2g}) for each 10 x cost"
    of = "v / (1 - v) ~ " if law.kind == "odds" else ""
    return f"{of}cost^{middle:.2f} ({low:.2f} to {high:.2f})"


def _verdict(law: "Law", there: "BestValue") -> str:
    """Returns what the data say of a parameter; where it is not its best value, what a plan does with it."""
    if there.is_absent:
        return "not active in the best config"
    falls = law.exponent is not None and law.exponent.value < 0
    if not law.known:
        if not law.followed:
            return "the data do not tell: stays as recommended"
        return f"the data do not tell, seems to {'fall' if falls else 'rise'} with cost"
    said = [] if law.exponent is None else ["no trend seen"]
    if law.moves:
        said = ["falls with cost" if falls else "rises with cost"]
    return ", ".join([*said, *([_ENDS[there.at_end]] if there.at_end else [])])


def _strip(parameter: Float | Integer, estimate: Estimate, columns: int) -> str:
    numbers = np.array([estimate.low, estimate.value, estimate.high])
    low, middle, high = (min(int(x * columns), columns - 1) for x in parameter.encode(numbers).tolist())
    cells = ["━" if low <= column <= high else " " for column in range(columns)]
    cells[middle] = "●"
    return "".join(cells)
