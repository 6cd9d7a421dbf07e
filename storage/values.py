"""Converts `protein.types` to columns and back: checks what goes in, and makes records of what comes out.

In: no NaN, no infinity, no integer beyond 64 bits, no text that UTF-8 or PostgreSQL cannot hold (a NUL, half a
surrogate pair). A value that cannot be stored is a `StoreError` that names it. It is never replaced by another value,
except in free text and in the names of metrics (`readable`), which may be the output of a broken process: there such
characters are replaced, and what steers a terminal is left out.

Both directions match by name: a field of a dataclass in `protein.types` is the column of the same name. The field's
type selects its converter (`_CONVERTERS`). An `Estimate` is three columns, a `Provenance` one for each of its fields.
"""

import dataclasses
import functools
import json
import math
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from types import SimpleNamespace
from typing import Any, TypeVar, get_args, get_type_hints

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Integer, String, Table

from protein.errors import StoreError
from protein.types import (
    MAX_NOTE_LENGTH,
    MAX_TAG_LENGTH,
    AgentCall,
    Artifact,
    Direction,
    Estimate,
    Machine,
    Outcome,
    Params,
    Provenance,
    SuggestionKind,
    SweepRecord,
    SweepSpec,
    TrialEnd,
    TrialRecord,
    TrialState,
)

from .tables import AgentCallRow, AnnotationRow, Base, MachineRow, SweepRow, TrialRow, Utc

MAX_INTEGER = 2**63 - 1  # of both databases
MAX_TRIAL_NUMBER = 2**31 - 1  # of PostgreSQL's INTEGER
MAX_LEASE_SECONDS = 366 * 86_400.0

# The database's own keys of a row, which mean nothing outside of it.
KEYS: Mapping[type[Base], set[str]] = {
    SweepRow: {"id"},
    TrialRow: {"id", "sweep_id"},
    MachineRow: {"id"},
    AnnotationRow: {"trial_id", "sweep_id"},
    AgentCallRow: set(),
}
# What a column holds in rows that were written before there was such a column.
_EARLIER: Mapping[str, Any] = {
    field.name: field.default
    for kind in (TrialRecord, SweepRecord)
    for field in dataclasses.fields(kind)
    if "later" in field.metadata
}
_SMALL, _LARGE = 2**31, 2**63  # integers of the columns are below
_REVISION, _LARGE_REVISION = "revision", 2**30  # it goes on counting, so it begins far below what cursors can hold
_FIRST_YEAR, _LAST_YEAR = 1900, 9000  # beyond these, the moment in a local time zone may not exist
_REAL = (int, float)
_KINDS = ((Utc, "time"), (Boolean, "flag"), (Integer, "integer"), (Double, "number"), (JSON, "json"), (String, "text"))
_LISTS = ("tags",)  # JSON that is a list of texts
_NUMBER_OBJECTS = ("timings", "metrics")  # JSON objects of numbers
_PARAMS = "params"
_NO_NUMBERS = (bool, str, list, dict, type(None))  # that are values of parameters, too
_STEERING = ("Cc", "Cf", "Zl", "Zp")  # categories of characters: control, format, separators of lines and paragraphs
_HARMLESS = "\n\t\u200c\u200d"  # of these; the last two join letters
_ESCAPE_SEQUENCE = re.compile(  # CSI, a string such as a window's title, other ones
    r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d\x9e\x9f])[^\x07\x1b\x9c\n]*(?:\x07|\x1b\\|\x9c)?"
    r"|\x1b[ -/]*[0-~]"
)
_FREE_TEXT = ("client", "ended", "machine", "origin", "outcome", "reason")  # for people
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
    """Returns free text with what cannot be stored replaced by U+FFFD, and without what steers a terminal or page.

    That are escape sequences (ECMA-48), and characters of control, of format (U+202E turns the line around) and of
    line ends other than a line feed.
    """
    value = value.replace("\0", "\ufffd").encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    shown = _ESCAPE_SEQUENCE.sub("", value.replace("\r\n", "\n").replace("\r", "\n"))
    shown = "".join(c for c in shown if c in _HARMLESS or unicodedata.category(c) not in _STEERING)
    return shown if shown or not value else "\ufffd"  # a failed trial needs a reason


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
    if isinstance(value, int | float) and _finite(value):
        return float(value)
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
    """Returns params as they are stored: any JSON values. A parameter that is not active has no name in them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        text("the name of parameter", name)
        if isinstance(value, float):
            number(f"parameter {name!r}", value)
        elif isinstance(value, str):
            text(f"parameter {name!r}: the value", value)
        elif not isinstance(value, int | None):
            value = json_object(f"parameter {name!r}", {name: value})[name]
        found[name] = value
    return found


def tags(given: Sequence[str]) -> list[str]:
    """Returns tags without spaces around them, each once. Raises `StoreError` for one that cannot be a tag."""
    found = [" ".join(text("tag", tag).split()) for tag in given]
    for tag in found:
        if not 1 <= len(tag) <= MAX_TAG_LENGTH or not tag.isprintable():
            raise StoreError(
                f"tag {tag!r:.80} cannot be stored: a tag has 1 to {MAX_TAG_LENGTH} printable characters; give another"
            )
    return list(dict.fromkeys(found))


def note(given: str) -> str:
    """Returns a note that can be stored. Raises `StoreError` where it is too long, or could steer a terminal."""
    if len(text("note", given)) > MAX_NOTE_LENGTH:
        raise StoreError(f"a note has at most {MAX_NOTE_LENGTH} characters, got {len(given)}; shorten it")
    for character in given:
        if unicodedata.category(character) == "Cc" and character not in "\n\t":
            raise StoreError(f"a note cannot hold the control character {character!r}; leave it out")
    return given


def json_object(what: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy made of plain JSON values (tuples become lists)."""
    try:
        copy: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
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
    Mapping[str, float]: lambda name, value: numbers(name.removesuffix("s"), value),
    # Params are of this type, too: any value of JSON may be one of theirs.
    Mapping[str, Any]: lambda name, value: params(value) if name == _PARAMS else json_object(name, value),
    datetime: lambda _, value: value,
    **{kind: lambda _, value: value.value for kind in (Direction, SuggestionKind, TrialEnd, TrialState)},
}


# Rows as plain values, by the names of their columns: of a file that is imported, or of a database that may be damaged.
# Such values did not come through the functions above. The rules for them are the same, and those of the tables.


def table_columns(kind: type[Base], without: set[str] | None = None) -> dict[str, Column[Any]]:
    """Returns a table's columns by the names of the fields that they hold, without some (None: its `KEYS`)."""
    table = kind.__table__
    assert isinstance(table, Table)
    left_out = KEYS[kind] if without is None else without
    return {key: column for key, column in table.c.items() if key not in left_out}


NOT_NEGATIVE = (
    "steps",
    *(n for n, column in table_columns(TrialRow).items() if n.endswith("_seconds") and not column.nullable),
)


def kinds(kind: type[Base], without: set[str] | None = None) -> dict[str, str]:
    """Returns what each column of a table holds: "integer", "number", "flag", "time", "json" or "text"."""
    return {name: _kind(column) for name, column in table_columns(kind, without).items()}


def _kind(column: Column[Any]) -> str:
    for of, name in _KINDS:
        if isinstance(column.type, of):
            return name
    raise AssertionError(f"no kind is known for the column {column}")


def completed(kind: type[Base], row: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Returns a row with every column of a table but its `KEYS`, each value checked; `what` it is begins the messages.

    Raises:
        ValueError: a column is missing or unknown, or a value cannot be in its column.
    """
    known = table_columns(kind)
    for name in row:
        if name not in known:
            raise ValueError(f"{what} has the unknown value {name!r:.40}")
    found = {}
    for name, column in known.items():
        if name not in row and name not in _EARLIER:
            raise ValueError(f"{what} lacks {name}")
        found[name] = checked(name, column, row.get(name, _EARLIER.get(name)), what)
    return found


def checked(name: str, column: Column[Any], value: Any, what: str) -> Any:
    """Returns a value that a column can hold, a number as the column has it. Raises `ValueError`."""
    if value is None and column.nullable:
        return None
    reason = _why_not(name, column, value)
    if reason:
        raise ValueError(f"{what}: {name} is {value!r:.60}, {reason}")
    return float(value) if isinstance(column.type, Double) else value


def _why_not(name: str, column: Column[Any], value: Any) -> str:
    """Returns why a column cannot hold a value; "" if it can."""
    kind = column.type
    if isinstance(kind, Utc):
        if not isinstance(value, datetime) or value.tzinfo is None:
            return "and not a moment in UTC"
        return "" if _FIRST_YEAR <= value.year <= _LAST_YEAR else "and no time at which a sweep ran"
    if isinstance(kind, Boolean):
        return "" if isinstance(value, bool) else "and neither true nor false"
    if isinstance(kind, Integer):
        if not isinstance(value, int) or isinstance(value, bool):
            return "and not an integer"
        limit = _LARGE_REVISION if name == _REVISION else _LARGE if isinstance(kind, BigInteger) else _SMALL
        return "" if -limit <= value < limit else "which is too large"
    if isinstance(kind, Double):
        good = isinstance(value, int | float) and not isinstance(value, bool) and _finite(value)
        return "" if good else "and not a finite number"
    if isinstance(kind, JSON):
        return _why_not_json(name, value)
    assert isinstance(kind, String), kind
    if not isinstance(value, str):
        return "and not a text"
    if kind.length is not None and len(value) > kind.length:
        return f"which is longer than {kind.length} characters"
    return "" if _storable(value) else "which no database can hold"


def _why_not_json(name: str, value: Any) -> str:
    if name in _LISTS:
        good = isinstance(value, list) and all(isinstance(one, str) and _storable(one) for one in value)
        return "" if good else "and not a list of texts"
    if not isinstance(value, dict):
        return "and not a JSON object"
    for key, one in value.items():
        number = isinstance(one, int | float) and not isinstance(one, bool) and _finite(one)
        if name in _NUMBER_OBJECTS and not number:
            return f"in which {key!r:.40} is not a finite number"
        if name == _PARAMS and not (number or isinstance(one, _NO_NUMBERS)):
            return f"in which {key!r:.40} is no value of a parameter"
    if name in _NUMBER_OBJECTS or _is_plain(value):
        return ""
    return "which holds NaN, infinity, or a text that cannot be stored"


def _is_plain(value: Any) -> bool:
    """Whether a JSON value holds neither a NaN nor infinity, nor a text that no database can hold."""
    if isinstance(value, dict):
        return all(_storable(key) and _is_plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_is_plain, value))
    if isinstance(value, str):
        return _storable(value)
    return not isinstance(value, float) or math.isfinite(value)


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _storable(value: str) -> bool:
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def sweep_record(key: int, row: Mapping[str, Any]) -> SweepRecord:
    """Returns the sweep of a whole row. Raises `ValueError` where its values contradict each other."""
    source: Any = SimpleNamespace(id=key, **row)
    return from_row(SweepRecord, source, spec=from_row(SweepSpec, source))


def stored_sweep(row: SweepRow) -> SweepRecord:
    """Returns the sweep of a row that the database gave. Raises as `sweep_record` does, and for damaged values."""
    return sweep_record(row.id, _values(row, "a sweep"))


def stored_machine(row: MachineRow) -> Machine:
    """Returns the machine of a row that the database gave. Raises `ValueError` where a value is damaged."""
    source: Any = SimpleNamespace(**_values(row, "a machine"))
    return from_row(Machine, source)


def stored_agent_call(row: AgentCallRow) -> AgentCall:
    """Returns the call of a row that the database gave. Raises `ValueError` where a value is damaged."""
    source: Any = SimpleNamespace(**_values(row, "a call of an agent"))
    return from_row(AgentCall, source)


def _values(row: Base, what: str) -> dict[str, Any]:
    return completed(type(row), {name: getattr(row, name) for name in table_columns(type(row))}, what)


def trial_record(key: int, row: Mapping[str, Any]) -> TrialRecord:
    """Returns the trial of a whole row, without curve, artifacts and annotation. Raises as `sweep_record` does.

    It checks what the database's own rules would refuse, too, so that the message can name the trial.
    """
    source: Any = SimpleNamespace(id=key, sweep_id=0, **row)
    fields: dict[str, Any] = {"tags": (), "note": "", "excluded": False, "curve": (), "artifacts": ()}
    record = from_row(TrialRecord, source, **fields)
    check_trial_number(record.number)
    for name in NOT_NEGATIVE:
        if row[name] < 0:
            raise ValueError(f"{name} is {row[name]}, below 0")
    if record.state.finished != (record.finished_at is not None):
        raise ValueError(f"it is {record.state} and {'has no' if record.state.finished else 'has a'} time of its end")
    if record.state is TrialState.COMPLETE and record.score is None:
        raise ValueError("it is complete and has no score")
    if record.score is not None and record.state not in (TrialState.COMPLETE, TrialState.PRUNED):
        raise ValueError(f"it is {record.state} and has a score")
    if record.state is TrialState.FAILED and not record.reason:
        raise ValueError("it has failed without a reason")
    if record.continues is not None and not 0 <= record.continues < record.number:
        raise ValueError(f"it continues trial {record.continues}, which is not an earlier one")
    return record


def check_curve(
    steps: Sequence[Any], elapsed_seconds: Sequence[Any], score: Sequence[Any], metrics: Sequence[Any], what: str
) -> None:
    """Raises `ValueError` unless these lists of equal length are the points of a learning curve."""
    if not len(steps) == len(elapsed_seconds) == len(score) == len(metrics):
        raise ValueError(f"{what}: the columns of its curve differ in length")
    for i, value in enumerate(steps):
        if type(value) is not int or not 0 <= value < _LARGE:
            raise ValueError(f"{what}: steps of point {i} of its curve are {value!r:.60}")
    for i, value in enumerate(elapsed_seconds):
        if type(value) not in _REAL or not 0 <= value < math.inf:
            raise ValueError(f"{what}: seconds of point {i} of its curve are {value!r:.60}")
    for i, value in enumerate(score):
        if value is not None and (type(value) not in _REAL or not -math.inf < value < math.inf):
            raise ValueError(f"{what}: the score of point {i} of its curve is {value!r:.60}")
    for i, value in enumerate(metrics):
        if type(value) is not dict:
            raise ValueError(f"{what}: metrics of point {i} of its curve are {value!r:.60}, and not a JSON object")
        for name, one in value.items():
            if type(one) not in _REAL or not -math.inf < one < math.inf:
                raise ValueError(f"{what}: metric {name!r:.40} of point {i} of its curve is {one!r:.60}")


def check_artifact(kind: Any, path: Any, what: str) -> Artifact:
    """Raises `ValueError` unless these are an artifact's kind and path."""
    for name, value in (("kind", kind), ("path", path)):
        if not isinstance(value, str) or not _storable(value):
            raise ValueError(f"{what}: {name} of an artifact is {value!r:.60}, and not a text")
    return Artifact(kind=kind, path=path)
