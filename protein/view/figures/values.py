"""Where a parameter's values stand on an axis from 0 to 1, on the parameter's own scale."""

import dataclasses
import math
from collections.abc import Callable, Sequence

import numpy as np

from protein.errors import SpaceError
from protein.space import Categorical, Parameter, Space
from protein.types import ParamValue
from protein.view import text
from protein.view.figures.style import Subject

_WIDE = 100.0  # values of an unknown parameter that span more are drawn on a log scale
_TICKS = (0.0, 0.5, 1.0)


@dataclasses.dataclass(frozen=True, slots=True)
class Scale:
    """A parameter's axis. `choices` are the labels of a parameter whose values have no order, else empty."""

    name: str
    place: Callable[[ParamValue], float]  # from 0 to 1; what lies outside the range stands at its end
    value: Callable[[float], ParamValue]  # at a place from 0 to 1
    choices: tuple[str, ...] = ()

    def ticks(self) -> list[tuple[float, str]]:
        """Returns places with the values there: of choices all, else both ends and the middle."""
        if self.choices:
            last = max(len(self.choices) - 1, 1)
            return [(position / last, choice) for position, choice in enumerate(self.choices)]
        return [(place, _short(self.value(place))) for place in _TICKS]


def known_params(sweeps: Sequence[Subject]) -> list[str]:
    """Returns the names of all parameters of any trial, in the order in which they first appear."""
    return list(dict.fromkeys(name for _, trials in sweeps for trial in trials for name in trial.params))


def coordinates(sweeps: Sequence[Subject], name: str) -> Scale:
    """Returns the axis of a parameter: the range that all sweeps search it in, or else the range of its values.

    Args:
        sweeps: their trials have the parameter at least once.
        name: the parameter's.
    """
    values = [trial.params[name] for _, trials in sweeps for trial in trials if name in trial.params]
    declared = [_declared(sweep, name) for sweep in sweeps]
    first = declared[0]
    if first is not None and not isinstance(first, Categorical) and all(one == first for one in declared):
        return _of_range(first)
    numbers = [float(v) for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values) and not isinstance(first, Categorical):
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

    return Scale(
        name=parameter.name,
        place=place,
        value=lambda where: parameter.raw(float(parameter.decode(np.array([where]))[0])),
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


def _short(value: ParamValue) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if abs(value) >= 10_000:
        return text.count(round(value))
    if isinstance(value, int):
        return str(value)
    if 0.9 < value < 1:  # the digits of the distance to 1 matter
        return f"{1.0 - float(f'{1.0 - value:.2g}'):.6g}"
    return f"{value:.2g}"
