"""Reads many trials at once, as columns: a fixed number of queries, in batches, each value converted once.

A cursor is a text "next;revision;unfinished". It says what its owner has seen: the trials with numbers below `next`,
the annotations up to `revision`, and of each trial that had not finished its number, state, steps and cost, as in
"12:running:4096:3.5,13:waiting:0:0.0". A finished trial never changes and numbers have no gaps. So this is enough to
find what has changed since.
"""

import contextlib
import dataclasses
import gc
import itertools
import json
import operator
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Double,
    Select,
    Text,
    and_,
    case,
    cast,
    extract,
    false,
    func,
    or_,
    select,
    tuple_,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from protein.columns import (
    FIELDS,
    MAX_CURVE_POINTS,
    MAX_CURVES,
    MAX_TEXT,
    CurveColumns,
    SweepSummary,
    TrialColumns,
    cell,
    in_order,
)
from protein.errors import StoreError
from protein.spelling import nearest
from protein.types import QUEUED, Annotation, SuggestionKind, TrialEnd, TrialState

from . import values
from .tables import AnnotationRow, MeasurementRow, SweepRow, TrialRow
from .values import MAX_TRIAL_NUMBER, check_trial_number

_MOST_UNFINISHED = 10_000  # trials that run or wait at once
_UNFINISHED = {state.value: state for state in TrialState if not state.finished}
_PAIRS = 500  # sweeps whose best trials are asked for in one query
_LEAST_POINTS = 4  # of a thinned curve: the two ends, and the extremes of one stretch
_LEAST_SECONDS = 1e-3  # costs below are equal, as on the front (`protein.engine.pareto`)
_CUT_SHORT = (TrialEnd.CAPPED.value, TrialEnd.OUT_OF_BUDGET.value)
BATCH = 5000  # rows that are converted at once: their params as dicts take some MB


@dataclasses.dataclass(frozen=True, slots=True)
class Cursor:
    """See the head of this file."""

    following: int
    revision: int
    unfinished: Mapping[int, tuple[TrialState, int, float]]

    @classmethod
    def parse(cls, text: str) -> "Cursor":
        """Raises `StoreError` unless the text is a cursor."""
        try:
            following, revision, listed = text.split(";")
            parts = (part.split(":") for part in listed.split(",") if part)
            unfinished = {
                int(number): (_UNFINISHED[state], int(steps), float(cost)) for number, state, steps, cost in parts
            }
            found = cls(int(following), int(revision), unfinished)
            highest = max(found.following, found.revision, *unfinished, 0)
            if len(unfinished) > _MOST_UNFINISHED or highest > MAX_TRIAL_NUMBER:
                raise ValueError
            return found
        except (ValueError, KeyError):
            raise StoreError(f"{text!r:.80} is no cursor of a sweep's trials; ask without one") from None

    def __str__(self) -> str:
        listed = (
            f"{number}:{state}:{steps}:{cost!r}" for number, (state, steps, cost) in sorted(self.unfinished.items())
        )
        return f"{self.following};{self.revision};{','.join(listed)}"


def trial_columns(session: Session, sweep_id: int, since: str | None, fields: Collection[str] | None) -> TrialColumns:
    """See `protein.ports.Store.columns`."""
    wanted = set(FIELDS if fields is None else fields) | {"number"}
    for name in sorted(wanted.difference(FIELDS)):
        raise StoreError(f"trials have no column {name!r}{nearest(name, FIELDS)}")
    seen = Cursor(0, 0, {}) if since is None else Cursor.parse(since)
    with no_collection():
        return _trial_columns(session, sweep_id, since, seen, wanted)


def _trial_columns(session: Session, sweep_id: int, since: str | None, seen: Cursor, wanted: set[str]) -> TrialColumns:
    revision = session.scalar(select(func.max(AnnotationRow.revision)).where(AnnotationRow.sweep_id == sweep_id))
    # Few trials are excluded, and to look up an annotation for each of many takes a quarter of the time.
    flags_apart = since is None and wanted & _ANNOTATED == {"excluded"}
    read = [name for name in FIELDS if name in wanted | _CURSOR_FIELDS and not (flags_apart and name == "excluded")]
    sqlite = session.get_bind().dialect.name == "sqlite"
    query = select(*(_COLUMNS[name].expression(sqlite) for name in read))
    mine = TrialRow.sweep_id == sweep_id
    if since is not None or (wanted & _ANNOTATED and not flags_apart):
        query = query.outerjoin(AnnotationRow, AnnotationRow.trial_id == TrialRow.id)
    if since is None:
        query = query.where(mine)
    else:
        query = query.add_columns(func.coalesce(AnnotationRow.revision, 0))
        newer = AnnotationRow.revision > seen.revision
        annotated = select(AnnotationRow.trial_id).where(AnnotationRow.sweep_id == sweep_id, newer)
        ran, new = TrialRow.number.in_(sorted(seen.unfinished)), TrialRow.number >= seen.following
        # In this form the database finds each of the three by its own index.
        query = query.where(or_(and_(mine, new), and_(mine, ran), and_(mine, TrialRow.id.in_(annotated))))
    place = [read.index(name) for name in ("number", "state", "steps", "cost_seconds")]
    following, unfinished = seen.following, dict[int, tuple[TrialState, int, float]]()
    chunks: dict[str, list[Any]] = {name: [] for name in read}
    for batch in batches(session, query.order_by(TrialRow.number)):
        kept: Sequence[Any] = batch
        for row in (batch[0], batch[-1]):  # they are in the order of their numbers
            check_trial_number(int(row[place[0]]))
        following = max(following, int(batch[-1][place[0]]) + 1)
        for number, state, steps, cost in (
            map(row.__getitem__, place) for row in batch if row[place[1]] in _UNFINISHED
        ):
            unfinished[int(number)] = (_UNFINISHED[state], int(steps), float(cost))
        if since is not None:  # leave out unfinished trials that have no new state, point or note
            same = {number for number, now in unfinished.items() if seen.unfinished.get(number) == now}
            kept = [row for row in batch if row[place[0]] not in same or row[-1] > seen.revision]
        for name, raw in zip(read, zip(*kept, strict=True), strict=False):
            chunks[name].append(_COLUMNS[name].convert(raw))
    columns: dict[str, Any] = {
        name: _COLUMNS[name].join(chunks.get(name, []) if name in wanted else []) for name in FIELDS
    }
    if flags_apart:
        excluded = select(TrialRow.number).join(AnnotationRow, AnnotationRow.trial_id == TrialRow.id)
        excluded = excluded.where(AnnotationRow.sweep_id == sweep_id, AnnotationRow.excluded)
        columns["excluded"] = np.isin(columns["number"], np.array(session.scalars(excluded).all(), dtype=np.int64))
    if params := columns["params"]:  # a trial names those alone that are active in it
        space = session.scalar(select(SweepRow.space).where(SweepRow.id == sweep_id))
        columns["params"] = {name: params[name] for name in in_order(params, space or {})}
    return TrialColumns(cursor=str(Cursor(following, revision or 0, unfinished)), columns=columns)


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Keeps Python from looking for garbage: among a million new objects there is none, and it takes a third longer."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def batches(session: Session, query: Select[Any]) -> Iterator[Sequence[Any]]:
    """Yields the rows of a query for columns, some at once; none of them needs SQLAlchemy to convert a value.

    From SQLite they come as the driver gives them: SQLAlchemy's own rows take as long again as reading them.
    """
    connection = session.connection()
    if connection.dialect.name != "sqlite":
        yield from connection.execute(query, execution_options={"yield_per": BATCH}).partitions(BATCH)
        return
    result = connection.execute(query)
    try:
        while batch := result.cursor.fetchmany(BATCH):
            yield batch
    except sqlite3.Error as error:
        raise DBAPIError.instance(str(query), None, error, sqlite3.Error, dialect=connection.dialect) from error
    finally:
        result.close()


@dataclasses.dataclass(frozen=True, slots=True)
class _Column:
    """How a column is read: its SQL, given whether the database is SQLite; its values in a batch; all batches."""

    expression: Callable[[bool], ColumnElement[Any]]
    convert: Callable[[Sequence[Any]], Any]
    join: Callable[[list[Any]], Any]


def _floats(values: Sequence[Any]) -> NDArray[np.float64]:
    """Returns numbers as floats, None as NaN."""
    return np.array(values, dtype=np.float64)


def _integers(values: Sequence[Any]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _flags(values: Sequence[Any]) -> NDArray[np.bool_]:
    return np.array(values, dtype=np.bool_)


def _joined(dtype: Any) -> Callable[[list[Any]], Any]:
    return lambda chunks: np.concatenate([np.empty(0, dtype=dtype), *chunks])


def _listed(chunks: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(chunks))


def _members(kind: Any) -> Callable[[Sequence[Any]], list[Any]]:
    """Returns a converter to the members of an enum; None stays None."""
    known = {None: None, **{member.value: member for member in kind}}
    return lambda values: [known[value] for value in values]


def _texts(values: Sequence[Any]) -> list[str]:
    """Returns texts, equal ones as one object."""
    one: dict[str, str] = {}
    return [one.setdefault(value, value) for value in values]


def _times(values: Sequence[Any]) -> NDArray[np.float64]:
    """Returns moments as seconds since 1970. SQLite holds them as texts in UTC."""
    if any(isinstance(value, str) for value in values):
        moments = np.array(["NaT" if value is None else value for value in values], dtype="datetime64[us]")
        seconds = moments.astype(np.int64) / 1e6
        return np.asarray(np.where(np.isnat(moments), np.nan, seconds))
    return _floats(values)


def _tags(values: Sequence[Any]) -> list[tuple[str, ...]]:
    return [() if value is None else tuple(_texts(json.loads(value))) for value in values]


@dataclasses.dataclass(frozen=True, slots=True)
class _Objects:
    """`n` JSON objects by column: of each name `n` values. Where types differ they are objects, None: it is missing."""

    length: int
    columns: dict[str, NDArray[Any]]


_ABSENT = object()


def _objects(values: Sequence[str]) -> _Objects:
    """Parses JSON objects. All texts at once take half the time of one after the other."""
    found = json.loads(f"[{','.join(values)}]")
    if len(found) != len(values) or not all(type(one) is dict for one in found):
        raise ValueError("a JSON object is needed")
    names = tuple(found[0])
    if len(names) > 1 and all(len(one) == len(names) for one in found):
        with contextlib.suppress(KeyError):  # mostly all objects have the same names: twice as fast
            columns = zip(*map(operator.itemgetter(*names), found), strict=True)
            return _Objects(len(found), {name: _array(column) for name, column in zip(names, columns, strict=True)})
    some = dict.fromkeys(itertools.chain.from_iterable(found))
    return _Objects(len(found), {name: _array([one.get(name, _ABSENT) for one in found]) for name in some})


def _array(values: Sequence[Any]) -> NDArray[Any]:
    """Returns values as an array of their type; as cells where there are several types, or one is absent (None)."""
    kinds = set(map(type, values))
    dtype: Any = object
    if kinds == {bool}:
        dtype = np.bool_
    elif kinds == {int}:
        dtype = np.int64
    elif kinds == {float}:
        dtype = np.float64
    elif kinds == {str}:
        values = _texts(values)
    elif not kinds <= {bool, int, float, str}:
        values = [None if one is _ABSENT else cell(one) for one in values]
    try:
        return np.array(values, dtype=dtype)
    except OverflowError:  # an integer of more than 64 bits
        return np.array(values, dtype=object)


def _joined_objects(chunks: list[_Objects]) -> dict[str, NDArray[Any]]:
    """Returns the columns of all batches, in the order in which their names first occur."""
    length = sum(chunk.length for chunk in chunks)
    columns = {}
    for name in dict.fromkeys(itertools.chain.from_iterable(chunk.columns for chunk in chunks)):
        parts = [chunk.columns.get(name) for chunk in chunks]
        kinds = {None if part is None else part.dtype.kind for part in parts}
        if len(kinds) == 1 and "O" not in kinds:
            columns[name] = np.concatenate([part for part in parts if part is not None])
            continue
        column = np.full(length, None, dtype=object)
        first = 0
        for chunk, part in zip(chunks, parts, strict=True):
            if part is not None:
                column[first : first + chunk.length] = part
            first += chunk.length
        types = set(map(type, column))
        if types & {int, float} and types <= {int, float, type(None)} and types != {int}:
            with contextlib.suppress(OverflowError):  # an integer of more than 308 digits
                column = column.astype(np.float64)
        columns[name] = column
    return columns


def _joined_numbers(chunks: list[_Objects]) -> dict[str, NDArray[np.float64]]:
    return {name: column.astype(np.float64) for name, column in _joined_objects(chunks).items()}


def _raw(column: Any) -> Callable[[bool], ColumnElement[Any]]:
    return lambda _: column


def _json(column: Any) -> Callable[[bool], ColumnElement[Any]]:
    """Returns JSON as the text that it is stored as."""
    return lambda sqlite: type_coerce(column, Text()) if sqlite else cast(column, Text())


def _moment(column: Any) -> Callable[[bool], ColumnElement[Any]]:
    return lambda sqlite: type_coerce(column, Text()) if sqlite else cast(extract("epoch", column), Double())


def _column(name: str, kind: Any) -> _Column:
    """Returns how the column of a field of this type is read."""
    annotated = name in _ANNOTATED
    column: Any = getattr(AnnotationRow if annotated else TrialRow, name)
    if kind is int:
        value = func.coalesce(column, -1) if column.nullable else column
        return _Column(_raw(value), _integers, _joined(np.int64))
    if kind is float:
        return _Column(_raw(column), _floats, _joined(np.float64))
    if kind is bool:
        flags: Any = func.coalesce(column, false()) if annotated else column
        return _Column(_raw(flags), _flags, _joined(np.bool_))
    if kind is datetime:
        return _Column(_moment(column), _times, _joined(np.float64))
    if kind is tuple:
        return _Column(_json(column), _tags, _listed)
    if kind is Mapping:
        return _Column(_json(column), _objects, _joined_objects if name == "params" else _joined_numbers)
    if issubclass(kind, StrEnum):
        return _Column(_raw(column), _members(kind), _listed)
    if name in _CUT:
        column = func.substr(column, 1, MAX_TEXT)
    return _Column(_raw(func.coalesce(column, "") if annotated else column), _texts, _listed)


_CUT = ("origin", "reason")
_CURSOR_FIELDS = {"number", "state", "steps", "cost_seconds"}
_ANNOTATED = {field.name for field in dataclasses.fields(Annotation)}
_COLUMNS = {name: _column(name, kind) for name, kind in FIELDS.items()}


# Learning curves, thinned by the database itself: long ones never leave it whole. A curve of more points than asked for
# is cut into stretches of equal length, and of each the points with its lowest and its highest value are kept. What is
# drawn of them looks like the whole curve.


def thinned(
    session: Session, sweep_id: int, numbers: Collection[int], max_points: int, metric: str | None
) -> dict[int, CurveColumns]:
    """See `protein.ports.Store.curves`."""
    if len(numbers) > MAX_CURVES:
        raise StoreError(f"{len(numbers)} curves are too many at once: ask for at most {MAX_CURVES}")
    if not _LEAST_POINTS <= max_points <= MAX_CURVE_POINTS:
        raise StoreError(f"a curve is read as {_LEAST_POINTS} to {MAX_CURVE_POINTS} points, got {max_points}")
    m, buckets = MeasurementRow, (max_points - 2) // 2
    value = m.score if metric is None else _metric(session, values.text("metric", metric))
    final = select(func.coalesce(func.max(m.position), -1)).where(m.trial_id == TrialRow.id).scalar_subquery()
    mine = and_(TrialRow.sweep_id == sweep_id, TrialRow.number.in_(values.trial_numbers(numbers)))
    # Materialized: the last position of each curve is looked up once, not again at each point.
    chosen = select(TrialRow.id, TrialRow.number, final.label("last")).where(mine).cte().prefix_with("MATERIALIZED")
    lengths = {number: last + 1 for number, last in session.execute(select(chosen.c.number, chosen.c.last))}
    points = select(chosen.c.number, chosen.c.last, m.position, m.steps, m.elapsed_seconds, value.label("value")).where(
        m.trial_id == chosen.c.id, value.is_not(None)
    )
    if any(length > max_points for length in lengths.values()):
        stretch = case((chosen.c.last < max_points, 1), else_=(chosen.c.last + buckets) // buckets)
        within = (m.trial_id, m.position // stretch)
        lowest = func.row_number().over(partition_by=within, order_by=(value, m.position))
        highest = func.row_number().over(partition_by=within, order_by=(value.desc(), m.position))
        every = points.add_columns(lowest.label("lowest"), highest.label("highest")).subquery().c
        kept = or_(every.lowest == 1, every.highest == 1, every.position == 0, every.position == every.last)
        query = select(every.number, every.steps, every.elapsed_seconds, every.value).where(kept)
        query = query.order_by(every.number, every.position)
    else:
        every = points.subquery().c
        query = select(every.number, every.steps, every.elapsed_seconds, every.value)
        query = query.order_by(every.number, every.position)
    found: dict[int, list[Any]] = {number: [] for number in lengths}
    for number, *point in session.execute(query):
        found[number].append(point)
    return {number: _curve(number, lengths[number], points) for number, points in sorted(found.items())}


def _metric(session: Session, name: str) -> ColumnElement[Any]:
    """Returns the value of a metric, whatever its name: SQLite's paths into JSON know neither quotes nor accents."""
    if session.get_bind().dialect.name == "sqlite":
        each = func.json_each(MeasurementRow.metrics).table_valued("key", "value")
        return select(each.c.value).where(each.c.key == name).scalar_subquery()
    found: ColumnElement[Any] = MeasurementRow.metrics[name].as_float()
    return found


def _curve(number: int, num_points: int, points: list[Any]) -> CurveColumns:
    steps, seconds, heights = zip(*points, strict=True) if points else ((), (), ())
    values.check_curve(steps, seconds, heights, [{}] * len(points), f"trial {number}")  # a damaged file holds anything
    return CurveColumns(
        number=number,
        num_points=num_points,
        steps=np.array(steps, dtype=np.int64),
        elapsed_seconds=np.array(seconds, dtype=np.float64),
        value=np.array(heights, dtype=np.float64),
    )


# Sweeps in a few numbers, computed by the database: how far each is, however many trials it has.


def summaries(session: Session, sweep_ids: Collection[int] | None) -> dict[int, SweepSummary]:
    """See `protein.ports.Store.summaries`."""
    t = TrialRow
    mine = [] if sweep_ids is None else [t.sweep_id.in_(sorted(set(sweep_ids)))]
    known = select(SweepRow.id).order_by(SweepRow.id)
    known = known if sweep_ids is None else known.where(SweepRow.id.in_(sorted(set(sweep_ids))))
    ids = session.scalars(known).all()
    ends: dict[int, dict[TrialEnd | None, int]] = {key: {} for key in ids}
    spent, confirming, confirmations = dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 0.0), dict.fromkeys(ids, 0)
    confirms = case((t.kind == SuggestionKind.REEVALUATION.value, 1), else_=0)
    counted = select(t.sweep_id, t.end, confirms, func.count(), func.sum(t.cost_seconds + t.lost_seconds))
    counted = counted.where(*mine).group_by(t.sweep_id, t.end, confirms)
    for key, end, is_confirmation, count, seconds in session.execute(counted):
        (confirming if is_confirmation else spent)[key] += seconds
        if is_confirmation and end is not None:
            confirmations[key] += count
        else:
            kind = None if end is None else TrialEnd(end)
            ends[key][kind] = ends[key].get(kind, 0) + count
    excluded = dict.fromkeys(ids, 0)
    a = AnnotationRow
    flagged = select(a.sweep_id, func.count()).where(a.excluded).group_by(a.sweep_id)
    if sweep_ids is not None:
        flagged = flagged.where(a.sweep_id.in_(sorted(set(sweep_ids))))
    excluded |= dict(session.execute(flagged).all())
    best = _best(session, ids, [t.state == TrialState.COMPLETE.value])
    searched = t.kind != SuggestionKind.REEVALUATION.value  # what is confirmed was trained to its end before
    cut_short = _best(session, ids, [t.end.in_(_CUT_SHORT), t.score.is_not(None), searched])
    scores: dict[int, float] = {}
    named = list(best.items())
    for first in range(0, len(named), _PAIRS):
        pairs = tuple_(t.sweep_id, t.number).in_(named[first : first + _PAIRS])
        found = session.execute(select(t.sweep_id, t.score).where(pairs)).all()
        scores |= {key: score for key, score in found if score is not None}
    running: dict[int, dict[int, str]] = {key: {} for key in ids}
    waiting: dict[int, list[int]] = {key: [] for key in ids}
    queued: dict[int, list[int]] = {key: [] for key in ids}
    unfinished = select(t.sweep_id, t.number, t.owner, t.state, t.reason).where(*mine, t.end.is_(None))
    for key, number, owner, state, reason in session.execute(unfinished.order_by(t.sweep_id, t.number)):
        if state == TrialState.WAITING.value:
            waiting[key].append(number)
            if reason == QUEUED:
                queued[key].append(number)
        else:
            running[key][number] = owner
    return {
        key: SweepSummary(
            ends=ends[key],
            excluded=excluded[key],
            spent_seconds=round(spent[key], 9),  # the database adds in any order
            best=best.get(key),
            best_score=scores.get(key),
            cut_short=cut_short.get(key),
            running=running[key],
            waiting=tuple(waiting[key]),
            queued=tuple(queued[key]),
            confirmations=confirmations[key],
            confirming_seconds=round(confirming[key], 9),
        )
        for key in ids
    }


def _best(session: Session, sweep_ids: Collection[int], wheres: list[ColumnElement[bool]]) -> Mapping[int, int]:
    """Returns by sweep the number of the trial with the highest score among those that are not excluded.

    A query of its own for each sweep within one: to rank all trials takes four times as long as to find the first.
    """
    t, a = TrialRow, AnnotationRow
    excluded = select(a.trial_id).where(a.excluded)
    cost = t.continued_seconds + t.cost_seconds
    order = (t.score.desc(), case((cost > _LEAST_SECONDS, cost), else_=_LEAST_SECONDS), t.number)
    first = select(t.number).where(t.sweep_id == SweepRow.id, *wheres, t.id.not_in(excluded)).order_by(*order).limit(1)
    number = first.correlate(SweepRow).scalar_subquery()
    found = session.execute(select(SweepRow.id, number).where(SweepRow.id.in_(sweep_ids))).all()
    return {key: best for key, best in found if best is not None}
