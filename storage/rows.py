"""Rows as plain values, by the names of their columns: which values a column can hold, and whole rows that are read.

The rules are those of the tables and of `protein.storage.values`, for values that did not come through the store's own
methods: of a file that is imported, or of a database that may be damaged.
"""

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, Double, Integer, String, Table

from protein.types import Artifact, Machine, SweepRecord, SweepSpec, TrialRecord, TrialState

from . import values
from .tables import Base, MachineRow, SweepRow, Utc

SWEEP_KEYS = {"id"}
TRIAL_KEYS = {"id", "sweep_id"}
MACHINE_KEYS = {"id"}
ANNOTATION_KEYS = {"trial_id", "sweep_id"}

# What a column holds in rows that were written before there was such a column.
_EARLIER: Mapping[str, Any] = {"lost_seconds": 0.0, "cancel_requested": False, "ended": ""}
_SMALL, _LARGE = 2**31, 2**63  # integers of the columns are below
_COUNTS, _LARGE_COUNT = "revision", 2**30  # it goes on counting, so it begins far below what cursors can hold
_FIRST_YEAR, _LAST_YEAR = 1900, 9000  # beyond these, the moment in a local time zone may not exist
_REAL = (int, float)
_KINDS = ((Utc, "time"), (Boolean, "flag"), (Integer, "integer"), (Double, "number"), (JSON, "json"), (String, "text"))
_LISTS = ("tags",)  # JSON that is a list of texts
_NUMBERS = ("timings", "metrics")  # JSON objects of numbers
_PARAMS = "params"


def columns(kind: type[Base], without: set[str]) -> dict[str, Column[Any]]:
    """Returns a table's columns by the names of the fields that they hold, without the database's own keys."""
    table = kind.__table__
    assert isinstance(table, Table)
    return {key: column for key, column in table.c.items() if key not in without}


def kinds(kind: type[Base], without: set[str]) -> dict[str, str]:
    """Returns what each column of a table holds: "integer", "number", "flag", "time", "json" or "text"."""
    return {name: _kind(column) for name, column in columns(kind, without).items()}


def _kind(column: Column[Any]) -> str:
    for of, name in _KINDS:
        if isinstance(column.type, of):
            return name
    raise AssertionError(f"no kind is known for the column {column}")


def completed(kind: type[Base], without: set[str], row: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Returns a row with every column of a table, each value checked; `what` it is begins the messages.

    Raises:
        ValueError: a column is missing or unknown, or a value cannot be in its column.
    """
    known = columns(kind, without)
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
        limit = _LARGE_COUNT if name == _COUNTS else _LARGE if isinstance(kind, BigInteger) else _SMALL
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
        if name in _NUMBERS and not number:
            return f"in which {key!r:.40} is not a finite number"
        if name == _PARAMS and not (number or isinstance(one, bool | str)):
            return f"in which {key!r:.40} is no value of a parameter"
    return "" if name in _NUMBERS or _plain(value) else "which holds NaN, infinity, or a text that cannot be stored"


def _plain(value: Any) -> bool:
    """Whether a JSON value holds neither a NaN nor infinity, nor a text that no database can hold."""
    if isinstance(value, dict):
        return all(_storable(key) and _plain(one) for key, one in value.items())
    if isinstance(value, list):
        return all(map(_plain, value))
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
    return values.from_row(SweepRecord, source, spec=values.from_row(SweepSpec, source))


def stored_sweep(row: SweepRow) -> SweepRecord:
    """Returns the sweep of a row that the database gave. Raises as `sweep_record` does, and for damaged values."""
    return sweep_record(row.id, _values(row, SWEEP_KEYS, "a sweep"))


def stored_machine(row: MachineRow) -> Machine:
    """Returns the machine of a row that the database gave. Raises `ValueError` where a value is damaged."""
    source: Any = SimpleNamespace(**_values(row, MACHINE_KEYS, "a machine"))
    return values.from_row(Machine, source)


def _values(row: Base, without: set[str], what: str) -> dict[str, Any]:
    return completed(type(row), without, {name: getattr(row, name) for name in columns(type(row), without)}, what)


def trial_record(key: int, row: Mapping[str, Any]) -> TrialRecord:
    """Returns the trial of a whole row, without curve, artifacts and annotation. Raises as `sweep_record` does.

    It checks what the database's own rules would refuse, too, so that the message can name the trial.
    """
    source: Any = SimpleNamespace(id=key, sweep_id=0, **row)
    fields: dict[str, Any] = {"tags": (), "note": "", "excluded": False, "curve": (), "artifacts": ()}
    record = values.from_row(TrialRecord, source, **fields)
    values.check_trial_number(record.number)
    for name in ("steps", "cost_seconds", "continued_seconds", "suggest_seconds"):
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


def moment(text: str) -> datetime:
    """Returns the moment of a text such as 2026-03-04T18:00:00.000001+00:00. Raises `ValueError`."""
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"the time {text!r} has no time zone")
    return found.astimezone(UTC)
