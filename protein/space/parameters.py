"""The parameters of a search space: what each accepts, and how its raw values map to one unit coordinate.

linear, log, logit (floats): 0 is `low`, 1 is `high`, and between them v, ln v or ln(v / (1 - v)) rises evenly. A value
that comes from the unit interval is rounded to about six significant digits (of the value for log, of the distance to
the nearer of 0 and 1 for logit, of the range's width for linear). So it is short to read, and `decode(encode(v)) == v`
holds exactly for every v that `decode` can return. A log or logit range that is narrower than 0.1 % is treated as a
linear one: it is as good as straight, and six digits of the value would leave few values in it.

Integers, pow2 and ranges with a `step`: each value owns a bin; `encode` gives a point of the bin (its middle, but for
log), `decode` maps any point of the bin to the value. Bins are equally wide on the scale (linear: one value each; pow2:
one exponent each). On a log scale a value v owns what would be rounded to it, from ln(v - step / 2) to
ln(v + step / 2). An integer without a step has one of 1. The values of a range with a step are low, low + step, ... up
to `high`, which is lowered to the last of them. They are the float64 nearest to the decimal numbers, as in 0.1, 0.2,
0.3. Categoricals: one equal bin per choice; their numeric value is the index of the choice.

`when` says under which condition on other parameters a parameter exists, as in `when="model == 'svc'"`. See
`protein.space.space`.

A belief about a number is a centre and a spread, one standard deviation. On a linear scale the spread is a distance. On
a log and a pow2 scale it is a factor: (3e-4, 3) means from 1e-4 to 9e-4. On a logit scale it is a distance of
ln(v / (1 - v)): with a spread of 0.7 the odds v / (1 - v) are twice or half as high. A belief about a choice is the
favourite and its probability; the other choices share the rest evenly.
"""

import contextlib
import copy
import dataclasses
import functools
import json
import math
import re
import sys
from collections.abc import Container, Iterable, Sequence
from decimal import Decimal
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from protein.errors import SpaceError
from protein.spelling import counted, nearest
from protein.types import ParamValue
from protein.validate import is_json, plain

Scale = Literal["linear", "log", "logit", "pow2"]
Array = NDArray[np.float64]

SCALES: tuple[Scale, ...] = ("linear", "log", "logit", "pow2")
JSON_VALUE = "value of JSON: None, a bool, a finite number, a text, or a list or table of these"
_SIGNIFICANT = 6  # decimal digits kept of a float that comes from the unit interval
_MAX_DECIMALS = 15  # a float64 near 1 resolves no more
_MAX_EXACT_POWER = 22  # 10**22 is the last power of ten that float64 holds exactly
_MAX_WHOLE = 2.0**53  # from here on float64 has no fractions, so that there is nothing to round
_MAX_LOG = math.log(sys.float_info.max)
_NARROW = 1e-3  # width of a range, as a share of the values in it
_ROUNDING = 1e-9  # of a step, by which a value may miss its grid
_MAX_LISTED = 10_000  # values of a float's grid that are counted one by one
_MAX_INTEGER = 10**12  # far below 2**53, so that the bins of a log scale stay exact in float64


@dataclasses.dataclass(frozen=True, slots=True)
class Float:
    """A real parameter in [low, high]: with a `step` only low, low + step, ... up to high.

    `scale` "pow2" keeps to powers of two, as in 0.25, 0.5, 1.0.
    """

    name: str
    low: float
    high: float
    scale: Scale = "linear"
    default: float | None = None
    when: str | None = dataclasses.field(default=None, kw_only=True)
    step: float | None = dataclasses.field(default=None, kw_only=True)
    belief: tuple[float, float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_range(self)
        _check_when(self)
        if self.default is not None:
            self.check(self.default, "value ")
        _check_belief(self)

    def check(self, value: Any, what: str = "") -> None:
        """Raises `SpaceError` unless `value` is a number (not a bool) of the range: a power of two, or on its grid."""
        _check_value(self, value, what, (int, float), "a number")

    def numbers(self, values: Sequence[ParamValue]) -> Array:
        """Returns the numbers of n raw values, `n`. Raises `SpaceError` for the first that `check` refuses."""
        return _numbers(self, values, {int, float})

    def clip(self, value: Any) -> Any:
        """Returns a number moved into the range (pow2, step: to the nearest value); anything else unchanged."""
        return _clip(self, value)

    def values(self) -> Sequence[float] | None:
        """Returns the numbers of all its values in rising order; None: they are not counted, or too many."""
        if self.scale == "pow2":
            return _powers(self)
        if self.step is None or (count := _num_values(self)) > _MAX_LISTED:
            return None
        values: list[float] = _on_grid(self, np.arange(count, dtype=np.float64)).tolist()
        return values

    def numeric(self, value: ParamValue) -> float:
        """Returns the number that stands for a raw value."""
        return float(value if self.step is None else _on_grid(self, _place(self, value)))

    def raw(self, number: float) -> ParamValue:
        """Returns the raw value that a number stands for."""
        return float(number)

    def encode(self, numbers: Array) -> Array:
        """Returns unit coordinates, `n`, of in-range numbers, `n`."""
        if self.scale == "pow2":
            return _encode_pow2(self, numbers)
        if self.step is not None:
            return _encode_step(self, numbers)
        scale = _curve(self)
        low, high = _to_scale(self.low, scale), _to_scale(self.high, scale)
        return np.asarray((_to_scale(numbers, scale) - low) / (high - low))

    def decode(self, x: Array) -> Array:
        """Returns numbers, `n`, at unit coordinates, `n`."""
        if self.scale == "pow2":
            return _decode_pow2(self, x)
        if self.step is not None:
            return _decode_step(self, x)
        scale = _curve(self)
        low, high = _to_scale(self.low, scale), _to_scale(self.high, scale)
        t = low + x * (high - low)
        if scale == "linear":
            decimals = np.full(x.shape, _SIGNIFICANT - math.floor(math.log10(self.high - self.low)), dtype=np.float64)
            value = np.asarray(t)
        elif scale == "log":
            value = np.exp(np.minimum(t, _MAX_LOG))
            decimals = _SIGNIFICANT - 1 - np.floor(np.log10(value))
        else:
            value = 1.0 / (1.0 + np.exp(-t))
            margin = np.minimum(value, 1.0 - value)  # distance to the nearer of 0 and 1: its digits are what matters
            decimals = np.full(x.shape, float(_MAX_DECIMALS))
            resolved = margin > 10.0 ** (_SIGNIFICANT - 1 - _MAX_DECIMALS)
            decimals[resolved] = _SIGNIFICANT - 1 - np.floor(np.log10(margin[resolved]))
        value = np.clip(_round_decimals(value, decimals), self.low, self.high)
        # A value whose coordinate is that of an end becomes the end, so that decoded values round-trip exactly.
        scaled = _to_scale(value, scale)
        value = np.where(scaled <= low, self.low, np.where(scaled >= high, self.high, value))
        return np.where(x <= 0.0, self.low, np.where(x >= 1.0, self.high, value))


@dataclasses.dataclass(frozen=True, slots=True)
class Integer:
    """A whole-number parameter in [low, high], both ends included. Scales: linear, log, pow2.

    With a `step` only low, low + step, ... up to high.
    """

    name: str
    low: int
    high: int
    scale: Scale = "linear"
    default: int | None = None
    when: str | None = dataclasses.field(default=None, kw_only=True)
    step: int | None = dataclasses.field(default=None, kw_only=True)
    belief: tuple[int, float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.scale == "logit":
            raise SpaceError(f"parameter '{self.name}': an integer has no logit scale; use linear, log or pow2")
        _check_range(self)
        _check_when(self)
        if self.default is not None:
            self.check(self.default, "value ")
        _check_belief(self)

    def check(self, value: Any, what: str = "") -> None:
        """Raises `SpaceError` unless `value` is an int (not a bool) of the range: a power of two, or on its grid."""
        _check_value(self, value, what, (int,), "a whole number")

    def numbers(self, values: Sequence[ParamValue]) -> Array:
        """Returns the numbers of n raw values, `n`. Raises `SpaceError` for the first that `check` refuses."""
        return _numbers(self, values, {int})

    def clip(self, value: Any) -> Any:
        """Returns a number moved into the range (pow2, step: to the nearest value); anything else unchanged."""
        return _clip(self, value)

    def values(self) -> Sequence[float] | None:
        """Returns the numbers of all its values in rising order."""
        return _powers(self) if self.scale == "pow2" else range(self.low, self.high + 1, self.step or 1)

    def numeric(self, value: ParamValue) -> float:
        """Returns the number that stands for a raw value."""
        return float(value)

    def raw(self, number: float) -> ParamValue:
        """Returns the raw value that a number stands for."""
        return int(number)

    def encode(self, numbers: Array) -> Array:
        """Returns unit coordinates, `n`, of in-range numbers, `n`: a point in the bin of each."""
        if self.scale == "pow2":
            return _encode_pow2(self, numbers)
        if self.step is not None:
            return _encode_step(self, numbers)
        if self.scale == "linear":
            return np.asarray((numbers - self.low + 0.5) / (self.high - self.low + 1))
        low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
        return np.asarray((np.log(numbers) - low) / (high - low))

    def decode(self, x: Array) -> Array:
        """Returns whole numbers, `n`, at unit coordinates, `n`."""
        if self.scale == "pow2":
            return _decode_pow2(self, x)
        if self.step is not None:
            return _decode_step(self, x)
        if self.scale == "linear":
            value = self.low + np.floor(x * (self.high - self.low + 1))
        else:
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            value = np.round(np.exp(low + x * (high - low)))
        return np.asarray(np.clip(value, self.low, self.high))


@dataclasses.dataclass(frozen=True, slots=True)
class Categorical:
    """A parameter with a list of choices and no order among them. True, 1 and 1.0 are three different choices.

    Any value of JSON is a choice: None, booleans, numbers, texts, lists and tables (a tuple is a list). A default of
    None is no default.
    """

    name: str
    choices: Sequence[ParamValue]  # kept as a tuple
    default: ParamValue | None = None
    when: str | None = dataclasses.field(default=None, kw_only=True)
    belief: tuple[ParamValue, float] | None = dataclasses.field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        _check_name(self.name)
        _check_when(self)
        if isinstance(self.choices, str) or not isinstance(self.choices, Iterable):
            raise SpaceError(f"parameter '{self.name}': choices must be a list, got {self.choices!r}")
        if isinstance(self.choices, set | frozenset):  # its order is another one in the next process
            raise SpaceError(f"parameter '{self.name}': choices must be a list, got a set; a sweep needs their order")
        object.__setattr__(self, "choices", tuple(plain(choice) for choice in self.choices))
        object.__setattr__(self, "default", plain(self.default))
        if len(self.choices) < 2:
            raise SpaceError(
                f"parameter '{self.name}' has {counted(len(self.choices), 'choice')}; give two or more, or fix"
                " its value"
            )
        for choice in self.choices:
            if not is_json(choice):
                raise SpaceError(f"parameter '{self.name}': choice {choice!r:.80} is no {JSON_VALUE}")
        if len({identity(choice) for choice in self.choices}) < len(self.choices):
            raise SpaceError(
                f"parameter '{self.name}' lists a choice twice in {list(self.choices)}; keep each choice once"
            )
        if self.default is not None:
            self.check(self.default, "value ")
        _check_belief(self)

    def check(self, value: Any, what: str = "") -> None:
        """Raises `SpaceError` unless `value` is one of the choices."""
        if not is_json(value) or identity(value) not in map(identity, self.choices):
            listed = ", ".join(repr(choice) for choice in self.choices)
            raise SpaceError(f"parameter '{self.name}': {what}{value!r:.80} is not one of its choices {listed}")

    def numbers(self, values: Sequence[ParamValue]) -> Array:
        """Returns the indices of n choices, `n`. Raises `SpaceError` for the first that `check` refuses."""
        index = {identity(choice): float(i) for i, choice in enumerate(self.choices)}
        try:
            return np.array([index[identity(value)] for value in values], dtype=np.float64)
        except (KeyError, TypeError):  # no choice, or nothing that could be one
            for value in values:
                self.check(value)
            raise

    def clip(self, value: Any) -> Any:
        """Returns the value unchanged: choices have no order, so there is no nearest one."""
        return value

    def values(self) -> Sequence[float] | None:
        """Returns the indices of all choices."""
        return range(len(self.choices))

    def numeric(self, value: ParamValue) -> float:
        """Returns the index of a choice."""
        return float([identity(choice) for choice in self.choices].index(identity(value)))

    def raw(self, number: float) -> ParamValue:
        """Returns the choice with an index; a list or a table is a copy, which may be changed."""
        return copy.deepcopy(self.choices[int(number)])

    def encode(self, numbers: Array) -> Array:
        """Returns unit coordinates, `n`, of choice indices, `n`: the middles of their bins."""
        return np.asarray((numbers + 0.5) / len(self.choices))

    def decode(self, x: Array) -> Array:
        """Returns choice indices, `n`, at unit coordinates, `n`."""
        return np.clip(np.floor(x * len(self.choices)), 0, len(self.choices) - 1)


Parameter = Float | Integer | Categorical


def unit_belief(parameter: Float | Integer, belief: tuple[float, float]) -> tuple[float, float]:
    """Returns a belief's centre and standard deviation in unit coordinates."""
    center, spread = belief
    numbers = np.array([center, parameter.low, parameter.high], dtype=np.float64)
    by_factor = parameter.scale in ("log", "pow2")
    _, low, high = _to_scale(numbers, "log" if by_factor else parameter.scale).tolist()
    x, x_low, x_high = parameter.encode(numbers).tolist()
    return x, (math.log(spread) if by_factor else spread) * (x_high - x_low) / (high - low)


def parameter_name(name: str) -> str:
    """Returns the name that a space can have: "opt/lr-rate 1" becomes "opt.lr_rate_1"."""
    parts = ["".join(c if f"_{c}".isidentifier() else "_" for c in part) for part in re.split(r"[./]", name)]
    return ".".join(part if part.isidentifier() else f"_{part}" for part in parts)


def free_name(name: str, taken: Container[str]) -> str:
    """Returns a name that is not taken: two names of another tool may become the same here."""
    free, count = name, 2
    while free in taken:
        free, count = f"{name}_{count}", count + 1
    return free


def _check_name(name: Any) -> None:
    parts = name.split(".") if isinstance(name, str) else [""]
    if not all(part.isidentifier() for part in parts):
        remedy = ""
        if all(part.replace("-", "_").isidentifier() for part in parts):
            written = name.replace("-", "_")
            remedy = f"; call it '{written}', and use --params dashes or {{{written}}} for a flag with dashes"
        raise SpaceError(
            f"parameter name {name!r} is not a dotted name such as 'train.learning_rate': use letters, digits and"
            f" underscores, with dots between the parts and no digit first{remedy}"
        )


def _check_when(parameter: Parameter) -> None:
    when: Any = parameter.when
    if when is not None and (not isinstance(when, str) or not when.strip()):
        raise SpaceError(
            f"parameter '{parameter.name}': when = {when!r:.80} is no condition; write a text such as"
            " \"model == 'svc'\", or leave it out"
        )


def _check_range(parameter: Float | Integer) -> None:
    for field in ("low", "high", "default", "step"):
        object.__setattr__(parameter, field, plain(getattr(parameter, field)))
    name, low, high, scale = parameter.name, parameter.low, parameter.high, parameter.scale
    _check_name(name)
    if scale not in SCALES:
        raise SpaceError(f"parameter '{name}': unknown scale '{scale}'{nearest(str(scale), SCALES)}")
    whole = isinstance(parameter, Integer)
    for bound in (low, high):
        if isinstance(bound, bool) or not isinstance(bound, int if whole else int | float):
            kind = "a whole number" if whole else "a number"
            raise SpaceError(f"parameter '{name}': bound {bound!r} is not {kind}; {_remedy(bound, whole)}")
        if not math.isfinite(bound):
            raise SpaceError(f"parameter '{name}': bound {bound} is not finite; give the range two finite ends")
        if whole and abs(bound) > _MAX_INTEGER:
            raise SpaceError(f"parameter '{name}': bound {bound} is beyond +-{_MAX_INTEGER}; count in larger units")
    if not low < high:
        remedy = "swap them" if low > high else "widen the range or fix the value"
        raise SpaceError(f"parameter '{name}': its lowest value {low} is not below its highest {high}; {remedy}")
    if scale == "log" and low <= 0:
        raise SpaceError(
            f"parameter '{name}': the lowest value {low} of a log range must be above 0; raise it or use linear"
        )
    if scale == "logit" and not 0.0 < low < high < 1.0:
        raise SpaceError(f"parameter '{name}': a logit range must lie inside (0, 1), got [{low}, {high}]; shrink it")
    if scale == "pow2":
        for bound in (low, high):
            if not _is_power_of_two(bound):
                raise SpaceError(f"parameter '{name}': bound {bound} of a pow2 range is not a power of two")
    if scale == "linear" and not whole and not math.isfinite(float(high) - float(low)):
        raise SpaceError(f"parameter '{name}': the range [{low}, {high}] is too wide; use a log scale")
    _check_step(parameter)


def _check_step(parameter: Float | Integer) -> None:
    """Raises `SpaceError` for a step that cannot be; lowers `high` to the last value that is on the grid."""
    name, low, high, step = parameter.name, parameter.low, parameter.high, parameter.step
    whole = isinstance(parameter, Integer)
    if step is None:
        return
    if isinstance(step, bool) or not isinstance(step, int if whole else int | float):
        raise SpaceError(f"parameter '{name}': step {step!r:.80} is not a {'whole ' if whole else ''}number")
    if not 0 < step < math.inf:
        raise SpaceError(f"parameter '{name}': step {step} must be above 0 and finite; leave it out for none")
    if parameter.scale in ("pow2", "logit"):
        raise SpaceError(f"parameter '{name}': a {parameter.scale} scale has no step; use linear or log, or drop it")
    # By their decimal digits: 0.3 holds three steps of 0.1. Eleven of 1 / 11, as a float, are a little more than 1.
    steps = (Decimal(repr(high)) - Decimal(repr(low))) / Decimal(repr(step))
    if steps > _MAX_INTEGER or step < 8 * math.ulp(max(abs(low), abs(high))):
        raise SpaceError(f"parameter '{name}': step {step} is too small for [{low}, {high}]; raise it or drop it")
    count = math.floor(steps + Decimal(_ROUNDING))
    if count < 1:
        raise SpaceError(
            f"parameter '{name}': step {step} is larger than its range [{low}, {high}], which leaves one value; lower"
            " it or fix the value"
        )
    if whole and step == 1:  # that of every integer
        object.__setattr__(parameter, "step", None)
        return
    last = low + count * step if whole else float(min(_on_grid(parameter, np.asarray(float(count))), high))
    object.__setattr__(parameter, "high", last)


def _check_belief(parameter: "Parameter") -> None:
    """Raises `SpaceError` unless the belief is a pair whose first part is a value and whose second part is a spread.

    For a choice the second part is its probability.
    """
    given: Any = parameter.belief
    if given is None:
        return
    name, choice = parameter.name, isinstance(parameter, Categorical)
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        meant = "a choice and its probability" if choice else "a centre and a spread, as in (3e-4, 3)"
        raise SpaceError(f"parameter '{name}': a belief is {meant}, got {given!r:.80}")
    center, spread = plain(given[0]), plain(given[1])
    parameter.check(center, "the centre of the belief, " if not choice else "the belief, ")
    if isinstance(spread, bool) or not isinstance(spread, int | float) or not math.isfinite(spread):
        raise SpaceError(f"parameter '{name}': {spread!r:.80} in its belief is not a finite number")
    if isinstance(parameter, Categorical):
        even = 1 / len(parameter.choices)
        if not even < spread < 1:
            raise SpaceError(
                f"parameter '{name}': the probability {spread} of its belief must lie between {even:.3g}, as likely as"
                " any other, and 1"
            )
    elif parameter.scale in ("log", "pow2"):
        if not spread > 1:
            raise SpaceError(
                f"parameter '{name}': the spread {spread} of its belief must be above 1; on a {parameter.scale} scale"
                " it is a factor, as 3 for three times more or less"
            )
    elif not spread > 0:
        raise SpaceError(f"parameter '{name}': the spread {spread} of its belief must be above 0")
    object.__setattr__(parameter, "belief", (center, spread))


def _remedy(bound: Any, whole: bool) -> str:
    """Returns what to write instead of a bound of another type."""
    if isinstance(bound, str):
        return "for names, list them as choices"
    return f"give {'a whole number' if whole else 'a number'}"


def _check_value(parameter: Float | Integer, value: Any, what: str, kinds: tuple[type, ...], kind: str) -> None:
    if isinstance(value, bool) or not isinstance(value, kinds):
        if isinstance(value, float) and value.is_integer():
            raise SpaceError(f"parameter '{parameter.name}': {what}{value!r} is a float, not {kind}; give {int(value)}")
        raise SpaceError(f"parameter '{parameter.name}': {what}{value!r} is not {kind}")
    number: Any = value
    if not parameter.low <= number <= parameter.high:  # also true for NaN
        raise SpaceError(
            f"parameter '{parameter.name}': {what}{value} is outside its range [{parameter.low}, {parameter.high}]"
        )
    if parameter.scale == "pow2" and not _is_power_of_two(number):
        raise SpaceError(f"parameter '{parameter.name}': {what}{value} is not a power of two")
    if parameter.step is not None and not _is_on_grid(parameter, np.asarray(number, dtype=np.float64)):
        first = parameter.raw(float(_on_grid(parameter, np.asarray(1.0))))
        raise SpaceError(
            f"parameter '{parameter.name}': {what}{value} is not one of {parameter.low}, {first}, ... {parameter.high},"
            f" in steps of {parameter.step}; the nearest is {parameter.clip(number)}"
        )


def _numbers(parameter: Float | Integer, values: Sequence[ParamValue], types: set[type]) -> Array:
    """See `numbers`. All values are looked at together, because a long history has hundreds of thousands."""
    with contextlib.suppress(OverflowError):  # of an integer that is too large for float64, and so out of range
        if set(map(type, values)) <= types:
            numbers = np.array(values, dtype=np.float64)
            fit = (numbers >= parameter.low) & (numbers <= parameter.high)
            if parameter.scale == "pow2":
                fit &= np.frexp(numbers)[0] == 0.5
            elif parameter.step is not None:
                fit &= _is_on_grid(parameter, numbers)
            if bool(fit.all()):
                return numbers if parameter.step is None else _on_grid(parameter, _place(parameter, numbers))
    for value in values:
        parameter.check(value)
    return np.array([parameter.numeric(value) for value in values], dtype=np.float64)


def _clip(parameter: Float | Integer, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value):
        return value
    value = min(max(value, parameter.low), parameter.high)
    if parameter.scale == "pow2" and not _is_power_of_two(value):
        return parameter.raw(2.0 ** round(math.log2(value)))
    if parameter.step is not None:
        return parameter.raw(float(_on_grid(parameter, _place(parameter, value))))
    return value


def _num_values(parameter: Float | Integer) -> int:
    assert parameter.step is not None
    return round((parameter.high - parameter.low) / parameter.step) + 1


def _place(parameter: Float | Integer, numbers: Any) -> Array:
    """Returns the places, from 0, of the values on the grid that are nearest to numbers."""
    assert parameter.step is not None
    places = np.round((np.asarray(numbers, dtype=np.float64) - parameter.low) / parameter.step)
    return np.asarray(np.clip(places, 0, _num_values(parameter) - 1))


def _on_grid(parameter: Float | Integer, places: Array) -> Array:
    """Returns the values at places of the grid, counted from 0."""
    assert parameter.step is not None
    value = np.asarray(parameter.low + places * parameter.step, dtype=np.float64)
    decimals = float(_decimals(parameter.low, parameter.step))
    return _round_decimals(value.ravel(), np.full(value.size, decimals)).reshape(value.shape)


@functools.lru_cache(maxsize=256)
def _decimals(*numbers: float) -> int:
    """Returns how many decimals people write of numbers: of 0.05 two."""
    return max(0, *(-int(Decimal(repr(number)).as_tuple().exponent) for number in numbers))


def _is_on_grid(parameter: Float | Integer, numbers: Array) -> NDArray[np.bool_]:
    """Whether each number is on the grid, but for errors of a sum such as 0.1 + 0.2 (as Optuna has it)."""
    assert parameter.step is not None
    off = np.abs(numbers - _on_grid(parameter, _place(parameter, numbers)))
    return np.asarray(off <= _ROUNDING * parameter.step + 4 * np.spacing(np.abs(numbers)))


def value_ends(parameter: Float | Integer) -> tuple[float, float]:
    """Returns the numbers at which the bins of an integer, or of a range with a step, begin and end."""
    half = (parameter.step or (1 if isinstance(parameter, Integer) else 0)) / 2
    below = min(half, parameter.low / 2) if parameter.scale == "log" and half else half
    return parameter.low - below, parameter.high + half


def _decode_step(parameter: Float | Integer, x: Array) -> Array:
    if parameter.scale == "linear":
        count = _num_values(parameter)
        return _on_grid(parameter, np.clip(np.floor(x * count), 0, count - 1))
    low, high = map(math.log, value_ends(parameter))
    return _on_grid(parameter, _place(parameter, np.exp(low + x * (high - low))))


def _encode_step(parameter: Float | Integer, numbers: Array) -> Array:
    if parameter.scale == "linear":
        assert parameter.step is not None
        return np.asarray(((numbers - parameter.low) / parameter.step + 0.5) / _num_values(parameter))
    low, high = map(math.log, value_ends(parameter))
    return np.asarray((np.log(numbers) - low) / (high - low))


def _is_power_of_two(value: float) -> bool:
    return value > 0 and math.frexp(value)[0] == 0.5


def _exponents(parameter: Float | Integer) -> tuple[int, int]:
    return math.frexp(parameter.low)[1] - 1, math.frexp(parameter.high)[1] - 1


def _powers(parameter: Float | Integer) -> list[float]:
    low, high = _exponents(parameter)
    return [2.0**exponent for exponent in range(low, high + 1)]


def _decode_pow2(parameter: Float | Integer, x: Array) -> Array:
    low, high = _exponents(parameter)
    return np.asarray(np.exp2(np.clip(low + np.floor(x * (high - low + 1)), low, high)))


def _encode_pow2(parameter: Float | Integer, value: Array) -> Array:
    low, high = _exponents(parameter)
    return np.asarray((np.log2(value) - low + 0.5) / (high - low + 1))


def _curve(parameter: Float) -> Scale:
    """Returns the scale by which a real parameter is mapped: linear where its range is so narrow that all are alike."""
    low, high, scale = parameter.low, parameter.high, parameter.scale
    room = {"log": low, "logit": min(low, 1.0 - high)}.get(scale, 0.0)
    return "linear" if high - low < _NARROW * room else scale


def _to_scale(value: Array | float, scale: Scale) -> Array:
    value = np.asarray(value, dtype=np.float64)
    if scale == "log":
        return np.asarray(np.log(value))
    return np.asarray(np.log(value / (1.0 - value))) if scale == "logit" else value


def _round_decimals(value: Array, decimals: Array) -> Array:
    """Rounds to a number of decimals each (negative: tens, hundreds).

    Division by an exact power of ten gives the float64 nearest to the decimal, the same that reading its digits gives.
    Where the power is not exact, numbers are rounded by their digits.
    """
    scale = 10.0 ** np.minimum(np.abs(decimals), _MAX_EXACT_POWER)
    exact = (np.abs(decimals) <= _MAX_EXACT_POWER) & ((decimals < 0) | (np.abs(value) < _MAX_WHOLE / scale))
    rounded = np.empty_like(value)
    some, scale = value[exact], scale[exact]
    rounded[exact] = np.where(decimals[exact] >= 0, np.round(some * scale) / scale, np.round(some / scale) * scale)
    others = zip(value[~exact].tolist(), decimals[~exact].tolist(), strict=True)
    rounded[~exact] = [_rounded(number, int(digits)) for number, digits in others]
    return rounded


def _rounded(number: float, digits: int) -> float:
    try:
        return round(number, digits)
    except OverflowError:  # beyond the largest float64
        return number


def identity(value: Any) -> tuple[type, Any]:
    """Returns what equal choices have in common, and others have not: True, 1 and 1.0 differ, also inside of lists.

    Raises:
        TypeError, ValueError: the value is none of JSON's.
    """
    if isinstance(value, list | dict):
        return type(value), json.dumps(value, sort_keys=True)
    return type(value), value
