"""Converts `protein.types` to columns and back: checks what goes in, and makes records of what comes out.

In: no NaN, no infinity, no integer beyond 64 bits, no text that UTF-8 or PostgreSQL cannot hold (a NUL, half a
surrogate pair). A value that cannot be stored is a `StoreError` that names it. It is never replaced by another value,
except in free text and in the names of metrics (`readable`), which may be the output of a broken process: there such
characters are replaced.

Both directions match by name: a field of a dataclass in `protein.types` is the column of the same name. The field's
type selects its converter (`_CONVERTERS`). An `Estimate` is three columns, a `Provenance` one for each of its fields.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar, get_args, get_type_hints

from protein.errors import StoreError
from protein.types import Direction, Estimate, Outcome, Params, Provenance, SuggestionKind, TrialEnd, TrialState

from .tables import Base

MAX_INTEGER = 2**63 - 1  # of both databases
MAX_TRIAL_NUMBER = 2**31 - 1  # of PostgreSQL's INTEGER
MAX_LEASE_SECONDS = 366 * 86_400.0

_FREE_TEXT = ("ended", "machine", "origin", "reason")  # for people
_COUNTS = ("steps",)  # 0 or more

T = TypeVar("T")


def columns(value: Any) -> dict[str, Any]:
    """Returns a dataclass's fields as columns by name.

    Raises:
        StoreError: a value that cannot be stored, with its name.
    """
    fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return columns_of(type(value), **fields)


def columns_of(kind: type, /, **fields: Any) -> dict[str, Any]:
    """Returns some of the fields of a dataclass of this kind as columns by name. Raises as `columns` does."""
    types = _types(kind)
    found: dict[str, Any] = {}
    for name, value in fields.items():
        if types[name] is Provenance:
            found |= columns(value)
        elif types[name] == Estimate | None:
            found |= _estimate_columns(name, value)
        else:
            found[name] = _CONVERTERS[types[name]](name, value)
    return found


def from_row(kind: Callable[..., T], row: Base, /, **fields: Any) -> T:
    """Returns a dataclass of this kind whose fields, but for those given, are the row's columns of the same name."""
    for name, type_ in _types(kind).items():
        if name in fields:
            continue
        if type_ is Provenance:
            fields[name] = from_row(Provenance, row)
        elif type_ == Estimate | None:
            fields[name] = _estimate(*(getattr(row, name + end) for end in _ESTIMATE))
        else:
            value, (enum, *_) = getattr(row, name), get_args(type_) or (type_,)
            fields[name] = enum(value) if value is not None and _is_enum(enum) else value
    return kind(**fields)


@functools.cache
def _types(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _is_enum(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, StrEnum)


def text(what: str, value: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise StoreError(f"{what} {value!r} is not valid Unicode and cannot be stored; give another") from None
    if "\0" in value:
        raise StoreError(f"{what} {value!r} has a NUL character and cannot be stored; give another")
    return value


def readable(value: str) -> str:
    """Returns free text with what cannot be stored replaced by U+FFFD."""
    return value.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def integer(what: str, value: int, low: int = -MAX_INTEGER - 1) -> int:
    if not low <= value <= MAX_INTEGER:
        raise StoreError(f"{what} {_shown(value)} cannot be stored: an integer from {low} to 2**63 - 1 is needed")
    return int(value)


def trial_numbers(numbers: Collection[int]) -> list[int]:
    """Returns, in order and each once, the numbers that a trial can have; a driver refuses integers beyond 64 bits."""
    return sorted({number for number in numbers if 0 <= number <= MAX_TRIAL_NUMBER})


def check_trial_number(number: int) -> None:
    """Raises `ValueError` where a stored number is none that a trial can have: a damaged file holds anything."""
    if not 0 <= number <= MAX_TRIAL_NUMBER:
        raise ValueError(f"the number of a trial is {number!r:.60}")


def number(what: str, value: float) -> float:
    """Returns a finite float."""
    if isinstance(value, int | float):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    raise StoreError(f"{what} {_shown(value)} cannot be stored: a finite number is needed")


def optional_number(what: str, value: float | None) -> float | None:
    return None if value is None else number(what, value)


def seconds(what: str, value: float) -> float:
    if (value := number(what, value)) < 0:
        raise StoreError(f"{what} {value:g} cannot be stored: seconds must be 0 or more")
    return value


def budget(value: float | None) -> float | None:
    return None if value is None else seconds("budget", value)


def lease(value: float) -> timedelta:
    if not 0 < number("lease_seconds", value) <= MAX_LEASE_SECONDS:
        raise StoreError(f"lease_seconds {value:g} must be above 0 and at most {MAX_LEASE_SECONDS:g}")
    return timedelta(seconds=value)


def numbers(what: str, values: Mapping[str, float]) -> dict[str, float]:
    """Returns named finite numbers as they are, an integer stays one; their names are made `readable`."""
    for name, value in values.items():
        number(f"{what} {name!r}", value)
    return {readable(str(name)): value for name, value in values.items()}


def params(values: Params) -> dict[str, Any]:
    for name, value in values.items():
        if not isinstance(value, bool | int | float | str):
            raise StoreError(
                f"parameter {name!r}: a {type(value).__name__} cannot be stored, only bool, int, float, str"
            )
        text("the name of parameter", name)
        if isinstance(value, float):
            number(f"parameter {name!r}", value)
        elif isinstance(value, str):
            text(f"parameter {name!r}: the value", value)
    return dict(values)


def json_object(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy made of plain JSON values (tuples become lists)."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False, default=_plain))
    except (TypeError, ValueError) as error:
        raise StoreError(f"{what} cannot be stored: {error}; it must be plain JSON without NaN and infinity") from error
    _check_texts(what, copy)
    return copy


def _check_texts(what: str, value: Any) -> None:
    if isinstance(value, str):
        text(f"{what}: the text", value)
    elif isinstance(value, dict | list):
        for one in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_texts(what, one)


def _shown(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 64:
        return f"of {value.bit_length()} bits"
    return f"{value!r:.80}"


def _plain(value: object) -> dict[Any, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{value!r:.80} of type {type(value).__name__} is not JSON")


def check_outcome(outcome: Outcome) -> None:
    """Raises `StoreError` where end, score and reason contradict each other."""
    state, score = outcome.state, outcome.score
    if state is TrialState.COMPLETE and score is None:
        raise StoreError("a complete trial needs a score; without one it is failed, with a reason")
    if state is TrialState.FAILED and (score is not None or not outcome.reason):
        raise StoreError(f"a failed trial has no score and a reason, got score {score}, reason {outcome.reason!r:.80}")


_ESTIMATE = ("", "_low", "_high")  # what the names of an estimate's columns end with


def _estimate_columns(name: str, estimate: Estimate | None) -> dict[str, float | None]:
    values = (None, None, None) if estimate is None else (estimate.value, estimate.low, estimate.high)
    return {name + end: optional_number(name + end, value) for end, value in zip(_ESTIMATE, values, strict=True)}


def _estimate(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    if value is None or low is None or high is None:
        return None
    return Estimate(value=value, low=low, high=high)


def _text(name: str, value: str) -> str:
    return readable(value) if name in _FREE_TEXT else text(name, value)


def _integer(name: str, value: int) -> int:
    return integer(name, value, low=0) if name in _COUNTS else integer(name, value)


def _float(name: str, value: float) -> float:
    return seconds(name, value) if name.endswith("_seconds") else number(name, value)


# What a field of a type becomes, given its name for messages and its value.
_CONVERTERS: dict[Any, Callable[[str, Any], Any]] = {
    str: _text,
    bool: lambda _, value: bool(value),
    int: _integer,
    int | None: lambda name, value: None if value is None else _integer(name, value),
    float: _float,
    float | None: optional_number,
    Params: lambda _, value: params(value),
    Mapping[str, float]: lambda name, value: numbers(name.removesuffix("s"), value),
    Mapping[str, Any]: json_object,
    datetime: lambda _, value: value,
    **{kind: lambda _, value: value.value for kind in (Direction, SuggestionKind, TrialEnd, TrialState)},
}
