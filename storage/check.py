"""Looks at every value of a store, and says what is damaged and where: by sweep, trial and column.

SQLite checks neither types nor rules when it reads: a flipped bit in the file is another value. So values are read as
the database gives them, without any conversion, and are held against the rules by which they are written.
"""

import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, Boolean, Column, Double, Text, cast, func, select, text, type_coerce
from sqlalchemy.orm import Session

from . import values
from .records import objects
from .tables import AnnotationRow, ArtifactRow, Base, MeasurementRow, SweepRow, TrialRow, Utc

Progress = Callable[[int, int], None]  # is told how many trials are done, and of how many

BATCH = 200  # trials that are checked at once
MAX_REPORTS = 100  # of SQLite's own check


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One thing that is wrong. `sweep` is "" and `trial` None where it belongs to none that can be told."""

    what: str
    sweep: str = ""
    trial: int | None = None

    def __str__(self) -> str:
        where = f"sweep '{self.sweep}'" if self.sweep else ""
        where += f"{', ' if where else ''}trial {self.trial}" if self.trial is not None else ""
        return f"{where}: {self.what}" if where else self.what


def damages(session: Session, progress: Progress) -> Iterator[Damage]:
    """Yields everything that is wrong with a store; nothing if it is whole."""
    if _sqlite(session):
        found = session.execute(text(f"PRAGMA integrity_check({MAX_REPORTS})")).scalars().all()
        if found != ["ok"]:
            yield from (Damage(what=f"SQLite says: {one}") for one in found)
    yield from _strays(session)
    total = session.scalar(select(func.count()).select_from(TrialRow)) or 0
    done = 0
    query = select(SweepRow.id, *_expressions(session, SweepRow).values()).order_by(SweepRow.id)
    known = values.table_columns(SweepRow)
    for key, *raw in session.execute(query).all():
        row, wrong = _row(known, raw)
        name = str(row.get("name", raw[list(known).index("name")]))
        yield from (Damage(what=what, sweep=name) for what in wrong)
        if not wrong:
            try:
                values.sweep_record(key, row)
            except (ValueError, TypeError, KeyError) as error:
                yield Damage(what=_one_line(error), sweep=name)
        for number, what, count in _trials(session, key):
            if what:
                yield Damage(what=what, sweep=name, trial=number)
            done += count
            if count:
                progress(done, total)


def _strays(session: Session) -> Iterator[Damage]:
    """Yields rows that belong to no row: a database keeps that from happening, a damaged file does not."""
    t, m, a, n = TrialRow, MeasurementRow, ArtifactRow, AnnotationRow
    asked = (
        ("trials belong to no sweep", select(func.count()).where(t.sweep_id.not_in(select(SweepRow.id)))),
        ("curve points belong to no trial", select(func.count()).where(m.trial_id.not_in(select(t.id)))),
        ("artifacts belong to no trial", select(func.count()).where(a.trial_id.not_in(select(t.id)))),
        ("annotations belong to no trial", select(func.count()).where(n.trial_id.not_in(select(t.id)))),
    )
    for what, query in asked:
        if count := session.scalar(query):
            yield Damage(what=f"{count} {what}")


def _trials(session: Session, sweep_id: int) -> Iterator[tuple[int | None, str, int]]:
    """Yields of a sweep's trials what is wrong ("" for a whole batch that was checked), and how many were checked."""
    known = values.table_columns(TrialRow)
    raw = _expressions(session, TrialRow)
    wanted = select(TrialRow.id, *raw.values()).where(TrialRow.sweep_id == sweep_id).order_by(TrialRow.id)
    last_id, numbers = -(2**63), set[int]()
    place = list(known).index("number")
    while batch := session.execute(wanted.where(TrialRow.id > last_id).limit(BATCH)).all():
        named: dict[int, int | None] = {}
        for key, *kept in batch:
            last_id = key
            number = kept[place] if type(kept[place]) is int else None
            named[key] = number
            row, wrong = _row(known, kept)
            if number is not None and number in numbers:
                wrong.append(f"another trial has the number {number}, too")
            numbers.add(-1 if number is None else number)
            if not wrong:
                try:
                    values.trial_record(key, row)
                except (ValueError, TypeError, KeyError) as error:
                    wrong.append(_one_line(error))
            yield from ((number, what, 0) for what in wrong)
        yield from ((named.get(key), what, 0) for key, what in _belongings(session, sweep_id, list(named)))
        yield None, "", len(batch)
    missing = sorted(set(range(len(numbers))) - numbers)
    if missing:
        shown = ", ".join(map(str, missing[:5])) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        yield None, f"no trial has the number {shown}; numbers count from 0 without gaps", 0


def _belongings(session: Session, sweep_id: int, ids: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yields what is wrong with the curves, artifacts and annotations of trials, by the trial's id."""
    m = MeasurementRow
    raw = _expressions(session, m, {"trial_id", "position"})
    points = select(m.trial_id, m.position, *raw.values()).where(m.trial_id.in_(ids)).order_by(m.trial_id, m.position)
    curves: dict[int, list[Sequence[Any]]] = {}
    for key, *point in session.execute(points):
        curves.setdefault(key, []).append(point)
    for key, curve in curves.items():
        positions, steps, seconds, score, metrics = zip(*curve, strict=True)
        if list(positions) != list(range(len(positions))):
            yield key, f"its curve has {len(positions)} points whose positions do not count from 0 without gaps"
        try:
            values.check_curve(steps, seconds, score, _all_parsed(metrics), "its values")
        except (ValueError, TypeError) as error:
            yield key, _one_line(error).removeprefix("its values: ")
    for kind, keys in ((ArtifactRow, {"id", "trial_id"}), (AnnotationRow, {"trial_id"})):
        known, raw = values.table_columns(kind, keys), _expressions(session, kind, keys)
        owner = kind.__table__.c.trial_id
        for key, *kept in session.execute(select(owner, *raw.values()).where(owner.in_(ids))):
            row, wrong = _row(known, kept)
            if kind is AnnotationRow and not wrong and row["sweep_id"] != sweep_id:
                wrong.append(f"its annotation belongs to the sweep with the id {row['sweep_id']}")
            yield from ((key, what) for what in wrong)


def _expressions(session: Session, kind: type[Base], without: set[str] | None = None) -> dict[str, Any]:
    """Returns the columns of a table as the database keeps them: times and JSON as texts in SQLite."""
    sqlite = _sqlite(session)
    found: dict[str, Any] = {}
    for name, column in values.table_columns(kind, without).items():
        if isinstance(column.type, JSON):
            found[name] = type_coerce(column, Text()) if sqlite else cast(column, Text())
        elif isinstance(column.type, Utc | Boolean | Double) and sqlite:
            found[name] = type_coerce(column, Text())  # no conversion: a text is what the driver gives as it is
        else:
            found[name] = column
    return found


def _row(known: Mapping[str, Column[Any]], raw: Sequence[Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns a row's values by name, and what is wrong with them."""
    row: dict[str, Any] = {}
    wrong: list[str] = []
    for (name, column), value in zip(known.items(), raw, strict=True):
        try:
            row[name] = values.checked(name, column, _converted(column, value), "damaged value")
        except (ValueError, TypeError) as error:
            wrong.append(_one_line(error))
    return row, wrong


def _converted(column: Column[Any], value: Any) -> Any:
    """Returns a value as Python has it. Raises `ValueError` where it is not what its column holds."""
    if value is None:
        return None
    if isinstance(column.type, JSON):
        return _parsed(value)
    if isinstance(column.type, Utc) and not isinstance(value, datetime):
        try:
            return datetime.fromisoformat(value).replace(tzinfo=UTC)
        except (ValueError, TypeError):
            raise ValueError(f"damaged value: {column.key} is {value!r:.60}, and not a time") from None
    if isinstance(column.type, Boolean) and type(value) is int and value in (0, 1):
        return bool(value)
    return value


def _all_parsed(texts: Sequence[Any]) -> list[Any]:
    """Returns the values of JSON texts: all at once, and one after the other where one of them is damaged."""
    try:
        return [*objects(texts)]
    except (ValueError, TypeError, RecursionError):
        return [_parsed(one) for one in texts]


def _parsed(value: Any) -> Any:
    """Returns a JSON text's value; the text itself where it is none."""
    try:
        return json.loads(value)
    except (ValueError, TypeError, RecursionError):
        return value


def _sqlite(session: Session) -> bool:
    return session.get_bind().dialect.name == "sqlite"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
