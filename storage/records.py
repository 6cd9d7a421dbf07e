"""Reads trials as records, many at once: rows as the driver gives them, each column converted and checked as a whole.

SQLAlchemy's objects of rows, and a conversion of one value after the other, took four times as long. A column is
checked by the set of its values' types, since SQLite gives back whatever a damaged file holds.
"""

import dataclasses
import itertools
import json
import math
import operator
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NoReturn

from sqlalchemy import ColumnElement, Text, cast, func, select, type_coerce
from sqlalchemy.orm import Session

from protein.columns import FIELDS
from protein.types import Annotation, Artifact, Estimate, Measurement, Provenance, TrialRecord, fields_of

from . import reading, values
from .tables import AnnotationRow, ArtifactRow, MeasurementRow, TrialRow
from .values import check_trial_number

_KINDS = values.kinds(TrialRow, {"lease_until"})
_PROVENANCE = tuple(field.name for field in dataclasses.fields(Provenance))
_ESTIMATES = tuple(name for name in _KINDS if f"{name}_low" in _KINDS)
_SIDES = {name + side for name in _ESTIMATES for side in ("", "_low", "_high")}
_OWN = tuple(name for name in _KINDS if name not in _SIDES.union(_PROVENANCE))  # a field of one column each
_WORDS = {name: kind for name, kind in FIELDS.items() if issubclass(kind, StrEnum)}
_NULLABLE = {name for name, column in values.table_columns(TrialRow, set()).items() if column.nullable}
_NOT_NEGATIVE = ("number", *values.NOT_NEGATIVE)
_TYPES: Mapping[str, set[type]] = {
    "integer": {int},
    "number": {float, int},
    "text": {str},
    "json": {str},
    "time": {str, datetime},
    "flag": {bool, int},
}
_PARAM_TYPES = {bool, int, float, str, list, dict, type(None)}
_NUMBER_TYPES = {int, float}
_NESTED = {list, dict}
_NO_ANNOTATION = fields_of(Annotation())


def read(
    session: Session, sweep_id: int, which: ColumnElement[bool], *, curves: bool, last_points: bool = False
) -> list[TrialRecord]:
    """Returns some of a sweep's trials by number; see `protein.ports.Store.trials`.

    Raises:
        ValueError, TypeError, KeyError: a stored value is damaged.
    """
    with reading.no_collection():
        return _read(session, (TrialRow.sweep_id == sweep_id, which), curves, last_points)


def _read(
    session: Session, wanted: Sequence[ColumnElement[bool]], curves: bool, last_points: bool
) -> list[TrialRecord]:
    lines: Mapping[int, tuple[Measurement, ...]] = {}
    if curves:
        lines = _curves(session, wanted)
    elif last_points:
        lines = _last_points(session, wanted)
    files: dict[int, list[Artifact]] = {}
    a = ArtifactRow
    query: Any = (
        select(a.trial_id, a.kind, a.path).join(TrialRow, TrialRow.id == a.trial_id).where(*wanted).order_by(a.id)
    )
    for key, kind, path in itertools.chain.from_iterable(reading.batches(session, query)):
        if type(kind) is not str or type(path) is not str:
            raise ValueError(f"an artifact is {kind!r:.40}, {path!r:.40}, and not two texts")
        files.setdefault(key, []).append(Artifact(kind=kind, path=path))
    written = annotations(session, *wanted)
    found: list[TrialRecord] = []
    for fields in _fields(session, wanted):
        key = fields["id"]
        check_trial_number(fields["number"])
        notes = fields_of(written[key]) if key in written else _NO_ANNOTATION
        found.append(TrialRecord(**fields, curve=lines.get(key, ()), artifacts=tuple(files.get(key, ())), **notes))
    return found


def _fields(session: Session, wanted: Sequence[ColumnElement[bool]]) -> Iterator[dict[str, Any]]:
    """Yields the fields of trials, by number, that are columns of their own row."""
    sqlite = session.get_bind().dialect.name == "sqlite"
    names = list(_KINDS)
    known = values.table_columns(TrialRow, {"lease_until"})
    texts: dict[str, str] = {}  # equal ones as one object
    origins: dict[tuple[str, ...], Provenance] = {}
    query = select(*(_expression(known[name], _KINDS[name], sqlite) for name in names)).where(*wanted)
    for batch in reading.batches(session, query.order_by(TrialRow.number)):
        raw = dict(zip(names, zip(*batch, strict=True), strict=True))
        for name, column in raw.items():
            _check(name, column)
        columns: dict[str, Sequence[Any]] = {name: _converted(name, raw[name], texts) for name in _OWN}
        for name in _ESTIMATES:
            columns[name] = list(map(_estimate, raw[name], raw[f"{name}_low"], raw[f"{name}_high"]))
        rows = list(zip(*(raw[name] for name in _PROVENANCE), strict=True))
        origins |= {row: _provenance(*row) for row in set(rows) - origins.keys()}
        columns["provenance"] = [origins[row] for row in rows]
        for fields in zip(*columns.values(), strict=True):
            yield dict(zip(columns, fields, strict=True))


def _provenance(version: str, git_commit: str, machine: str, config_hash: str) -> Provenance:
    return Provenance(version=version, git_commit=git_commit, machine=machine, config_hash=config_hash)


def _converted(name: str, raw: Sequence[Any], texts: dict[str, str]) -> Sequence[Any]:
    """Returns a column's values as a record holds them; equal texts as one object."""
    kind = _KINDS[name]
    if name in _WORDS:
        members: dict[Any, Any] = {None: None, **{member.value: member for member in _WORDS[name]}}
        return [members[value] for value in raw]
    if kind == "json":
        return _objects(name, raw)
    if kind == "time":
        return [_moment(value) for value in raw]
    if kind == "flag":
        return list(map(bool, raw))
    return [texts.setdefault(value, value) for value in raw] if kind == "text" else raw


def _expression(column: Any, kind: str, sqlite: bool) -> Any:
    if kind == "json":
        return type_coerce(column, Text()) if sqlite else cast(column, Text())
    return type_coerce(column, Text()) if sqlite and kind in ("time", "flag", "number") else column


def _check(name: str, column: Sequence[Any]) -> None:
    """Raises `ValueError` unless all values of a column are such as it holds."""
    kind = _KINDS[name]
    good = _TYPES[kind] | ({type(None)} if name in _NULLABLE else set())
    if not set(map(type, column)) <= good:
        value = next(value for value in column if type(value) not in good)
        raise ValueError(f"{name} of a trial is {value!r:.60}, and no {kind}")
    if kind == "number" and (math.inf in column or -math.inf in column):
        raise ValueError(f"{name} of a trial is infinite")
    if name in _NOT_NEGATIVE and min(column) < 0:
        raise ValueError(f"{name} of a trial is {min(column)!r:.40}, below 0")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} in a stored value")


def objects(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Returns the JSON objects of texts: all at once, in half the time of one after the other. Raises `ValueError`."""
    found = json.loads(f"[{','.join(texts)}]", parse_constant=_refuse)
    if len(found) != len(texts) or not set(map(type, found)) <= {dict}:
        raise ValueError("a JSON object is needed")
    return list(found)


def _objects(name: str, texts: Sequence[str]) -> list[dict[str, Any]]:
    good = _PARAM_TYPES if name == "params" else _NUMBER_TYPES
    found = objects(texts)
    for one in found:
        held: Any = one.values()
        types = set(map(type, held))
        if not types.isdisjoint(_NESTED):
            held = list(_leaves(one))
        if not types <= good or math.inf in held or -math.inf in held:
            raise ValueError(f"{name} of a trial hold a value that is none of theirs: {json.dumps(one):.80}")
    return found


def _leaves(value: Any) -> Iterator[Any]:
    """Yields what a JSON value is made of, without lists and tables."""
    if isinstance(value, list | dict):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _leaves(one)
    else:
        yield value


def _moment(value: str | datetime | None) -> datetime | None:
    if value is None:
        return None
    if type(value) is str:
        return datetime.fromisoformat(value).replace(tzinfo=UTC)
    assert isinstance(value, datetime)
    return value.astimezone(UTC)


def _estimate(value: float | None, low: float | None, high: float | None) -> Estimate | None:
    if value is None or low is None or high is None:
        return None
    return Estimate(value=value, low=low, high=high)


def _curves(session: Session, wanted: Sequence[ColumnElement[bool]]) -> dict[int, tuple[Measurement, ...]]:
    m, found = MeasurementRow, dict[int, list[Measurement]]()
    sqlite = session.get_bind().dialect.name == "sqlite"
    points = select(m.trial_id, m.steps, m.elapsed_seconds, m.score, _expression(m.metrics, "json", sqlite))
    query = points.join(TrialRow, TrialRow.id == m.trial_id).where(*wanted).order_by(m.trial_id, m.position)
    for batch in reading.batches(session, query):
        keys, steps, seconds, score, texts = zip(*batch, strict=True)
        metrics = objects(texts)
        values.check_curve(steps, seconds, score, metrics, "a trial")
        made = map(_point, steps, seconds, score, metrics)
        for key, some in itertools.groupby(zip(keys, made, strict=True), operator.itemgetter(0)):
            found.setdefault(key, []).extend(point for _, point in some)
    return {key: tuple(line) for key, line in found.items()}


def _point(steps: int, elapsed_seconds: float, score: float | None, metrics: Mapping[str, float]) -> Measurement:
    return Measurement(steps=steps, elapsed_seconds=elapsed_seconds, score=score, metrics=metrics)


def _last_points(session: Session, wanted: Sequence[ColumnElement[bool]]) -> dict[int, tuple[Measurement, ...]]:
    m = MeasurementRow
    last: Any = (
        select(m.trial_id, func.max(m.steps), func.max(m.elapsed_seconds))
        .join(TrialRow, TrialRow.id == m.trial_id)
        .where(*wanted)
        .group_by(m.trial_id)
    )
    found: dict[int, tuple[Measurement, ...]] = {}
    for key, steps, seconds in itertools.chain.from_iterable(reading.batches(session, last)):
        if type(steps) is not int or type(seconds) not in _NUMBER_TYPES:
            raise ValueError(f"steps and seconds of a curve are {steps!r:.40} and {seconds!r:.40}")
        found[key] = (Measurement(steps=steps, elapsed_seconds=seconds, score=None),)
    return found


def annotations(session: Session, *wheres: ColumnElement[bool]) -> dict[int, Annotation]:
    """Returns the annotations of trials by the trial's id; `wheres` are conditions on `TrialRow`."""
    row = AnnotationRow
    query = select(row.trial_id, row.tags, row.note, row.excluded).join(TrialRow, TrialRow.id == row.trial_id)
    return {
        key: Annotation(tags=tuple(tags), note=note, excluded=excluded)
        for key, tags, note, excluded in session.execute(query.where(*wheres))
    }
