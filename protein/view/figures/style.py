"""How pictures look: colors, axes of cost, score and a parameter, and how a figure is made and saved.

The colors of categories are those of Okabe and Ito, which color-blind people can tell apart. Sweeps also differ in
their marks and lines, so that a picture can be read in gray. What has an order is drawn in viridis, whose lightness
rises evenly; its lightest end is left out, because it cannot be seen on white.

Source: Okabe and Ito, "Color Universal Design" (2008).
"""

import contextlib
import dataclasses
import io
import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from protein import files
from protein.columns import in_order
from protein.direction import shown_score
from protein.engine import pareto
from protein.engine.pareto import MIN_COST_SECONDS
from protein.errors import UsageError
from protein.spelling import counted
from protein.types import Direction, SweepRecord, TrialRecord
from protein.units import format_duration
from protein.view import data, text
from protein.view.scatter import bounds, cost_bounds, cost_ticks
from protein.view.text import cleaned

if TYPE_CHECKING:
    from matplotlib.figure import Figure
import math
from collections.abc import Callable

from protein.errors import SpaceError
from protein.space import Categorical, Parameter, Space
from protein.types import ParamValue

Subject = tuple[SweepRecord, Sequence[TrialRecord]]  # a sweep with its trials, as they are stored

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "p")
LINES = ("-", "--", "-.", ":")
MEASURED_COLOR, EXPECTED_COLOR, FRONT_COLOR = "#d9631e", "#2f5fd0", "#1f5fa8"  # the first two as on the page
OTHER_COLOR, PRUNED_COLOR, FAILED_COLOR = "#8d99a6", "#c98a1b", "#b3382c"
INK, MUTED, GRID = "#24292f", "#57606a", "#d8dee4"
DOTS_PER_INCH = 120
FORMATS = ("png", "svg", "pdf")
MAX_PANEL_COLUMNS = 3
_FAR_BELOW, _FEW = 8.0, 0.1  # see `score_bounds`
_WIDE = 100.0  # values of an unknown parameter that span more are drawn on a log scale
_TICKS = (0.0, 0.5, 1.0)
_MOST_POWERS = 6  # ticks of powers of two on one axis
_TITLE_LETTERS = 44  # of a sweep's name above a picture
_CLOCK = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
_LOOK: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "font.size": 9.5,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "svg.hashsalt": "protein",  # the same figure gives the same file
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}


@contextlib.contextmanager
def look() -> Iterator[None]:
    """Draws what is drawn meanwhile in the style of this module."""
    import matplotlib  # takes 0.3 s, and few commands draw

    with matplotlib.rc_context(_LOOK):
        yield


def new_figure(width: float, height: float) -> "Figure":
    """Returns an empty figure of a size in inches. Without pyplot there is no global state and no display is looked
    for."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), dpi=DOTS_PER_INCH, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def file_format(path: Path) -> str:
    """Returns the format that a file's ending asks for. Raises `UsageError` where it is none of `FORMATS`."""
    ending = path.suffix.removeprefix(".").lower()
    if ending not in FORMATS:
        given = f"ends in '.{ending}', which is no kind of picture" if ending else "has no ending"
        raise UsageError(f"{path} {given}; end it in {', '.join('.' + one for one in FORMATS)}")
    return ending


def save(figure: "Figure", path: Path, kind: str | None = None) -> None:
    """Writes a figure; makes the folder. The same figure gives the same bytes.

    `kind` is one of `FORMATS`; None: what the file's ending says.

    Raises:
        UsageError: the ending is none of `FORMATS`.
        OSError: the file cannot be written.
    """
    import matplotlib

    kind = file_format(path) if kind is None else kind
    dates = {"svg": "Date", "pdf": "CreationDate"}
    with matplotlib.rc_context(_LOOK):
        write(figure, path, kind, metadata={dates[kind]: None} if kind in dates else None)


def write(figure: "Figure", path: Path, kind: str = "png", **settings: Any) -> None:
    """Writes a figure in matplotlib's own look, whole or not at all; makes the folder. Raises `OSError`.

    It is drawn in memory: Pillow, which writes PNG into files itself, does not say what a full disk has said.
    """
    drawn = io.BytesIO()
    figure.savefig(drawn, format=kind, **settings)
    files.replace_file(path, drawn.getvalue())


def save_to(figure: "Figure", file: IO[bytes], *, dots_per_inch: int = 90) -> None:
    """Writes a figure as PNG into an open file."""
    import matplotlib

    with matplotlib.rc_context(_LOOK):
        figure.savefig(file, format="png", dpi=dots_per_inch)


@dataclasses.dataclass(frozen=True, slots=True)
class Ink:
    """What tells one sweep from another."""

    color: str
    mark: str
    line: str


def ink(position: int) -> Ink:
    """Returns the ink of the sweep at a position of the command line."""
    return Ink(
        COLORS[position % len(COLORS)], MARKS[position % len(MARKS)], LINES[position // len(COLORS) % len(LINES)]
    )


def ordered_colors(shares: Sequence[float]) -> list[Any]:
    """Returns a color for each number from 0 (light) to 1 (dark)."""
    from matplotlib import colormaps

    return [colormaps["viridis_r"](0.12 + 0.88 * share) for share in shares]


def one_direction(sweeps: Sequence[Subject]) -> Direction:
    """Returns the direction of all sweeps. Raises `UsageError` where they differ, or where there is no sweep."""
    if not sweeps:
        raise UsageError("there is nothing to plot: no sweep was given; name one")
    first = sweeps[0][0].spec
    for record, _ in sweeps[1:]:
        if record.spec.direction is not first.direction:
            raise UsageError(
                f"sweep '{first.name}' is to {first.direction} and sweep '{record.spec.name}' to"
                f" {record.spec.direction}, so they share no axis; plot them apart"
            )
    return first.direction


def by_env(sweeps: Sequence[Subject]) -> dict[str, list[tuple[int, Subject]]]:
    """Returns the sweeps with their positions, by environment: scores of different ones share no axis."""
    found: dict[str, list[tuple[int, Subject]]] = {}
    for position, sweep in enumerate(sweeps):
        found.setdefault(sweep[0].spec.env, []).append((position, sweep))
    return found


def title(sweeps: Sequence[Subject]) -> str:
    """Returns the line above a picture: which sweeps, how many trials, and what they cost."""
    if len(sweeps) == 1:
        record, trials = sweeps[0]
        far = data.progress(trials)
        line = f"{counted(far.counts.finished, 'trial')}, {text.seconds(far.spent_seconds)} of training"
        return f"{plain(text.shorten(record.spec.name, _TITLE_LETTERS))}: {line}{far.confirmed()}"
    return text.shorten(", ".join(plain(record.spec.name) for record, _ in sweeps), 100)


def plain(words: str) -> str:
    """Returns text as matplotlib prints it unchanged: it reads text between dollar signs as a formula.

    Characters that steer a terminal are left out: no font has them, and matplotlib's warning of that would print them.
    """
    return cleaned(words).replace("$", r"\$")


def front_of(trials: Sequence[TrialRecord]) -> list[TrialRecord]:
    """Returns the measured front, cheapest first. An excluded trial has no place on it."""
    return pareto.front([trial for trial in trials if not trial.excluded])


def cost(trial: TrialRecord) -> float:
    """Returns where a trial stands on a logarithmic axis of cost: the seconds of its whole run."""
    return max(trial.run_seconds, MIN_COST_SECONDS)


def cost_axis(axes: Any, costs: Sequence[float], label: str = "cost: time of training (log scale)") -> None:
    """Makes x a logarithmic axis of seconds that holds all costs, with round durations at its ticks."""
    left, right = cost_bounds(costs)
    stretch = (right / left) ** 0.04
    axes.set_xscale("log")
    axes.set_xlim(left / stretch, right * stretch)
    ticks = thinned(cost_ticks(left / stretch, right * stretch), left, right)
    named: dict[str, float] = {}  # a very narrow axis names one duration twice
    for tick in ticks:
        named.setdefault(format_duration(tick), tick)
    axes.set_xticks(list(named.values()), list(named))
    axes.minorticks_off()
    axes.set_xlabel(label)


def clock_axis(axes: Any, most: float) -> None:
    """Makes x a linear axis of durations from 0 to `most` seconds, with round durations at its ticks."""
    decade = 10.0 ** math.floor(math.log10(most / 6)) if 0 < most < 6 else 0.0
    days = 86400.0 * math.ceil(most / 86400.0 / 6)
    step = next((one for one in (decade, 2 * decade, 5 * decade, *_CLOCK) if one > 0 and most / one <= 6), days)
    axes.set_xlim(0, most)
    axes.set_xticks([step * i for i in range(int(most / step) + 1)])
    axes.xaxis.set_major_formatter(lambda value, _: format_duration(value) if value else "0")


def thinned(ticks: Sequence[float], left: float, right: float) -> list[float]:
    """Returns the ticks of a log axis that stand far enough apart to be read."""
    kept: list[float] = []
    for tick in ticks:
        if not kept or tick / kept[-1] >= (right / left) ** 0.045:
            kept.append(tick)
    return kept


def score_bounds(scores: Sequence[float]) -> tuple[float, float]:
    """Returns the ends of an axis of scores, apart even when all are equal.

    A few scores that lie far below all others would leave no room for these: the worst tenth, if the rest takes less
    than an eighth of the axis. Then the axis ends above them.
    """
    low, high = bounds(scores)
    least = float(np.quantile(scores, _FEW, method="higher"))
    return (least - (high - least) if high - low > _FAR_BELOW * (high - least) > 0 else low), high


def score_axis(axes: Any, scores: Sequence[float], direction: Direction) -> None:
    """Makes y an axis of scores as they are shown, the better ones at the top. `split` says which lie below it."""
    low, high = score_bounds(scores)
    margin = (high - low) * 0.08
    worst, best = (shown_score(value, direction) for value in (low - margin, high + 1.6 * margin))
    axes.set_ylim(worst, best)  # the worse end below also where lower is better
    axes.set_ylabel("score" if direction is Direction.MAXIMIZE else "score (lower is better)")


def split(axes: Any, points: Sequence[tuple[float, float]]) -> tuple[list[tuple[float, float]], list[float]]:
    """Returns the points within an axis of scores, and the x of those below it."""
    worst, best = axes.get_ylim()
    inside = [(x, y) for x, y in points if (y >= worst) == (best >= worst)]
    return inside, [x for x, y in points if (y >= worst) != (best >= worst)]


def grid_of(number: int) -> tuple[int, int]:
    """Returns rows and columns for a number of panels."""
    columns = min(number, MAX_PANEL_COLUMNS)
    return -(-number // columns), columns


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """A parameter's axis. `choices` are the labels of a parameter whose values have no order, else empty."""

    name: str
    place: Callable[[ParamValue], float]  # from 0 to 1; what lies outside the range stands at its end
    value: Callable[[float], ParamValue]  # at a place from 0 to 1
    choices: tuple[str, ...] = ()
    powers: tuple[float, ...] = ()  # ticks of an axis of powers of two

    def ticks(self) -> list[tuple[float, str]]:
        """Returns places with the values there: of choices all, powers of two, else both ends and the middle."""
        if self.powers:
            return [(self.place(value), power(value)) for value in self.powers]
        if self.choices:
            last = max(len(self.choices) - 1, 1)
            return [(position / last, choice) for position, choice in enumerate(self.choices)]
        return [(place, _short_value(self.value(place))) for place in _TICKS]


def powers_of_two(low: float, high: float) -> list[float]:
    """Returns the ticks of an axis of powers of two: at even distances, from the lowest power on."""
    first, last = math.ceil(math.log2(low) - 1e-9), math.floor(math.log2(high) + 1e-9)
    step = max(1, -(-(last - first) // (_MOST_POWERS - 1)))
    return [2.0**exponent for exponent in range(first, last + 1, step)]


def power(value: float) -> str:
    """Returns a tick of an axis of powers of two: 512, 16384, 2²⁰."""
    if value < 2**20:
        return f"{value:.10g}"
    return "2" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(round(math.log2(value))))


def known_params(sweeps: Sequence[Subject]) -> list[str]:
    """Returns the names of all parameters of any trial, in the order of the first sweep's space that has them."""
    found = [in_order((name for one in trials for name in one.params), sweep.spec.space) for sweep, trials in sweeps]
    return list(dict.fromkeys(itertools.chain.from_iterable(found)))


def coordinates(sweeps: Sequence[Subject], name: str) -> Scale:
    """Returns the axis of a parameter: the range that all sweeps search it in, or else the range of its values."""
    values = [trial.params[name] for _, trials in sweeps for trial in trials if name in trial.params]
    declared = [_declared(sweep, name) for sweep in sweeps]
    first = declared[0]
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values) and not isinstance(first, Categorical):
        if first is not None and all(one == first for one in declared):
            return _of_range(first)
        return _of_numbers(name, numbers, whole=all(isinstance(v, int) for v in values))
    known = [*(first.choices if isinstance(first, Categorical) else ()), *values]
    return _of_choices(name, list(dict.fromkeys(text.param(value) for value in known)))


def _declared(sweep: Subject, name: str) -> Parameter | None:
    try:
        parameters = Space.from_dict(sweep[0].spec.space).parameters
    except SpaceError:  # a stored space that this version cannot read
        return None
    return next((parameter for parameter in parameters if parameter.name == name), None)


def _of_range(parameter: Parameter) -> Scale:
    assert not isinstance(parameter, Categorical)

    def place(value: ParamValue) -> float:
        number = min(max(float(value), float(parameter.low)), float(parameter.high))
        return float(parameter.encode(np.array([number]))[0])

    powers = powers_of_two(float(parameter.low), float(parameter.high)) if parameter.scale == "pow2" else ()
    return Scale(
        name=parameter.name,
        place=place,
        value=lambda where: parameter.raw(float(parameter.decode(np.array([where]))[0])),
        powers=tuple(powers),
    )


def _of_numbers(name: str, numbers: Sequence[float], *, whole: bool) -> Scale:
    finite = [number for number in numbers if math.isfinite(number)] or [0.0]
    low, high = min(finite), max(finite)
    if low == high:
        low, high = low - 0.5, high + 0.5
    log = low > 0 and high > _WIDE * low
    to, back = (math.log, math.exp) if log else (float, float)

    def place(value: ParamValue) -> float:
        number = float(value)
        if math.isnan(number):
            return 0.0
        return (to(min(max(number, low), high)) - to(low)) / (to(high) - to(low))

    def value(where: float) -> ParamValue:
        number = back(to(low) + where * (to(high) - to(low)))
        return round(number) if whole and high - low >= 2 else number

    return Scale(name=name, place=place, value=value)


def _of_choices(name: str, labels: Sequence[str]) -> Scale:
    last = max(len(labels) - 1, 1)
    return Scale(
        name=name,
        place=lambda value: labels.index(text.param(value)) / last,
        value=lambda where: labels[round(where * last)],
        choices=tuple(labels),
    )


def _short_value(value: ParamValue) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if abs(value) >= 10_000:
        return text.count(round(value))
    if isinstance(value, int):
        return str(value)
    if 0.9 < value < 1:  # the digits of the distance to 1 matter
        return f"{1.0 - float(f'{1.0 - value:.2g}'):.6g}"
    return f"{value:.2g}"
