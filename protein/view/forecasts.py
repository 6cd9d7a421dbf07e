"""How good the engine's predictions were: a table, plain data, and a picture of both models.

The predictions are shown as they were made: unlike elsewhere, scores outside the possible ones are not clipped.
"""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from protein.engine.forecasts import COVERAGE, NUM_PARTS, Forecast, ForecastQuality
from protein.engine.pareto import MIN_COST_SECONDS
from protein.units import format_duration
from protein.view import tables, text
from protein.view.figures import style
from protein.view.figures.style import DOTS_PER_INCH, FAILED_COLOR, FRONT_COLOR, thinned, write
from protein.view.scatter import cost_ticks

INCHES = (11.0, 5.5)
LEGEND = (
    "mean z: mean error in predicted standard deviations; PIT: trials per fifth of the predicted distribution; equal"
    " counts are ideal"
)
TITLES = {"score": "score", "cost": "cost: time of training"}


def table(found: Sequence[ForecastQuality], width: int) -> Table:
    """One line a model: where the measured values were, relative to the predicted intervals."""
    return tables.fitted(
        width,
        tables.Column("model", [one.quantity for one in found], keep=9),
        tables.Column("predicted", [str(len(one.forecasts)) for one in found], right=True, keep=8),
        tables.Column("below", [str(one.below) for one in found], right=True, keep=6),
        tables.Column("inside", [str(one.inside) for one in found], right=True, keep=7),
        tables.Column("above", [str(one.above) for one in found], right=True, keep=6),
        tables.Column(
            f"inside, {100 * COVERAGE:.0f} % promised", [_share(one.coverage) for one in found], right=True, keep=9
        ),
        tables.Column(
            f"over the sweep, in {NUM_PARTS} parts",
            [_shares(one.coverage_by_part) for one in found],
            right=True,
            keep=4,
        ),
        tables.Column("mean error", [_error(one) for one in found], right=True, keep=5),
        tables.Column(
            "mean z", [text.MISSING if one.mean_z is None else f"{one.mean_z:+.2f}" for one in found], keep=3
        ),
        tables.Column("PIT", [" ".join(map(str, one.pit)) or text.MISSING for one in found], keep=2),
    )


def plain(one: ForecastQuality) -> dict[str, Any]:
    """Returns a calibration as plain data with stable keys."""
    return dataclasses.asdict(one)


def write_picture(score: ForecastQuality, cost: ForecastQuality, title: str, path: Path) -> None:
    """Writes a PNG with a panel for each model: measured values against predicted ones with their intervals.

    Each has at least one forecast. The file's folder is made.

    Raises:
        OSError: the file cannot be written.
    """
    # Imported here because it takes 0.7 s. Without pyplot there is no global state and no search for a display.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(style.plain(title), x=0.01, ha="left", fontsize=11)
    for axes, one in zip(figure.subplots(1, 2), (score, cost), strict=True):
        _panel(axes, one)
    write(figure, path)


def _panel(axes: Any, one: ForecastQuality) -> None:
    log = one.quantity == "cost"
    inside = [forecast for forecast in one.forecasts if forecast.inside]
    outside = [forecast for forecast in one.forecasts if not forecast.inside]
    values = [_clamped(v, log=log) for f in one.forecasts for v in (f.measured, f.predicted.value)]
    low, high = min(values), max(values)
    if log:
        low, high = low / 1.3, high * 1.3
        axes.set_xscale("log")
        axes.set_yscale("log")
        ticks = thinned(cost_ticks(low, high), low, high)
        labels = [format_duration(tick) for tick in ticks]
        axes.set_xticks(ticks, labels)
        axes.set_yticks(ticks, labels)
        axes.minorticks_off()
    else:
        margin = 0.06 * (high - low) or 1.0
        low, high = low - margin, high + margin
    axes.set_xlim(low, high)
    axes.set_ylim(low, high)  # the axes show all points; an interval may reach beyond them
    axes.plot([low, high], [low, high], color="black", linewidth=0.8, alpha=0.5)
    axes.grid(alpha=0.25, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    for forecasts, color, name in ((inside, FRONT_COLOR, "inside"), (outside, FAILED_COLOR, "outside")):
        if forecasts:
            _bars(axes, forecasts, color, f"{name} ({len(forecasts)})", log=log)
    axes.set_xlabel("predicted, with its 80 % interval")
    axes.set_ylabel("measured")
    axes.set_title(f"{TITLES[one.quantity]}, {_share(one.coverage)} inside", loc="left", fontsize=10)
    axes.legend(loc="upper left", fontsize=9, frameon=False)


def _bars(axes: Any, forecasts: Sequence[Forecast], color: str, label: str, *, log: bool) -> None:
    low, middle, high, measured = (
        [_clamped(v, log=log) for v in column]
        for column in zip(
            *((f.predicted.low, f.predicted.value, f.predicted.high, f.measured) for f in forecasts), strict=True
        )
    )
    left = [m - v for m, v in zip(middle, low, strict=True)]
    right = [v - m for m, v in zip(middle, high, strict=True)]
    style = {"color": color, "alpha": 0.7, "markersize": 4.5, "elinewidth": 1.0, "markeredgewidth": 0}
    axes.errorbar(middle, measured, xerr=[left, right], fmt="o", label=label, **style)


def _clamped(value: float, *, log: bool) -> float:
    return max(value, MIN_COST_SECONDS) if log else value


def _share(value: float | None) -> str:
    return text.MISSING if value is None else f"{100 * value:.0f} %"


def _shares(values: Sequence[float]) -> str:
    return ", ".join(_share(value) for value in values) or text.MISSING


def _error(one: ForecastQuality) -> str:
    if one.error is None:
        return text.MISSING
    return text.score(one.error) if one.quantity == "score" else f"{100 * math.expm1(min(one.error, 20.0)):.0f} %"
