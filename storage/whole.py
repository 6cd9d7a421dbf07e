"""Whole sweeps, for commands that export, import, check, rename or remove them.

A sweep travels as a `StoredSweep` and then its `StoredTrial`s by number: every column of every row. Their values go by
the names of the columns, so a new column travels without a change here. What the database numbers itself (ids) stays
behind, and gets new numbers where the sweep arrives. Curves are columns: of 10,000,000 points, an object each would
need gigabytes.

To check a store is to look at every value, and to say what is damaged and where: by sweep, trial and column. SQLite
checks neither types nor rules when it reads: a flipped bit in the file is another value. So values are read as the
database gives them, without any conversion, and are held against the rules by which they are written.
"""

import dataclasses
import itertools
import json
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    JSON,
    Boolean,
    Column,
    Double,
    Text,
    cast,
    delete,
    func,
    insert,
    select,
    text,
    type_coerce,
    update,
)
from sqlalchemy.orm import Session

from protein.errors import StoreError
from protein.spelling import counted
from protein.types import Artifact, Machine, TrialState

from . import values
from .records import objects
from .store import SqlStore
from .tables import MAX_NAME_LENGTH, AnnotationRow, ArtifactRow, Base, MeasurementRow, SweepRow, TrialRow, Utc

Progress = Callable[[int, int], None]  # is told how many trials are done, and of how many

BATCH = 200  # trials that are read, checked or written at once
PART = 2000  # trials whose rows are deleted in one statement
MAX_REPORTS = 100  # of SQLite's own check


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredSweep:
    """A sweep's row, and how many trials follow."""

    values: Mapping[str, Any]
    num_trials: int

    @property
    def name(self) -> str:
        return str(self.values["name"])


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class StoredTrial:
    """A trial's row, its curve as columns, its artifacts in their order, and its annotation's row if it has one."""

    values: Mapping[str, Any]
    steps: Sequence[int] = ()
    elapsed_seconds: Sequence[float] = ()
    score: Sequence[float | None] = ()
    metrics: Sequence[Mapping[str, float]] = ()
    artifacts: Sequence[tuple[str, str]] = ()  # kind and path
    annotation: Mapping[str, Any] | None = None

    @property
    def number(self) -> int:
        return int(self.values["number"])


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


Item = StoredSweep | StoredTrial
SWEEP_KINDS = values.kinds(SweepRow)  # what a sweep's and a trial's values are, by name
TRIAL_KINDS = values.kinds(TrialRow)


def read(session: Session, sweep_ids: Collection[int]) -> Iterator[Item]:
    """Yields sweeps, each with its trials, as they are at one moment: that of the session's transaction."""
    known = values.table_columns(SweepRow)
    for sweep_id in sweep_ids:
        raw = session.execute(select(*known.values()).where(SweepRow.id == sweep_id)).one()
        count = session.scalar(select(func.count()).where(TrialRow.sweep_id == sweep_id)) or 0
        row = values.completed(SweepRow, dict(zip(known, raw, strict=True)), "the sweep")
        yield StoredSweep(values=row, num_trials=count)
        yield from _trials(session, sweep_id)


def _trials(session: Session, sweep_id: int) -> Iterator[StoredTrial]:
    known, following = values.table_columns(TrialRow), -1
    wanted = select(TrialRow.id, *known.values()).where(TrialRow.sweep_id == sweep_id).order_by(TrialRow.number)
    while batch := session.execute(wanted.where(TrialRow.number > following).limit(BATCH)).all():
        ids = [row[0] for row in batch]
        curves, artifacts, annotations = _curves(session, ids), _artifacts(session, ids), _annotations(session, ids)
        for key, *raw in batch:
            trial = values.completed(TrialRow, dict(zip(known, raw, strict=True)), "a trial")
            following = trial["number"]
            steps, seconds, score, metrics = curves.get(key, ((), (), (), ()))
            yield StoredTrial(
                values=trial,
                steps=steps,
                elapsed_seconds=seconds,
                score=score,
                metrics=metrics,
                artifacts=artifacts.get(key, ()),
                annotation=annotations.get(key),
            )


def _curves(session: Session, ids: Sequence[int]) -> dict[int, tuple[Sequence[Any], ...]]:
    """Returns curves by the trial's id, each as four columns. Metrics are parsed a curve at once: ten times faster."""
    m = MeasurementRow
    sqlite = session.get_bind().dialect.name == "sqlite"
    metrics = type_coerce(m.metrics, Text()) if sqlite else cast(m.metrics, Text())
    query = select(m.trial_id, m.steps, m.elapsed_seconds, m.score, metrics).where(m.trial_id.in_(ids))
    found: dict[int, tuple[Sequence[Any], ...]] = {}
    points_of_all = session.connection().execute(query.order_by(m.trial_id, m.position)).all()
    for key, points in itertools.groupby(points_of_all, operator.itemgetter(0)):
        _, steps, seconds, score, texts = zip(*points, strict=True)
        parsed = json.loads(f"[{','.join(texts)}]")
        if len(parsed) != len(texts):
            raise ValueError("the metrics of a point are not one JSON object")
        values.check_curve(steps, seconds, score, parsed, "a trial")
        found[key] = (steps, seconds, score, parsed)
    return found


def _artifacts(session: Session, ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    a = ArtifactRow
    found: dict[int, list[tuple[str, str]]] = {}
    for key, kind, path in session.execute(
        select(a.trial_id, a.kind, a.path).where(a.trial_id.in_(ids)).order_by(a.id)
    ):
        values.check_artifact(kind, path, "a trial")
        found.setdefault(key, []).append((kind, path))
    return found


def _annotations(session: Session, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    known = values.table_columns(AnnotationRow)
    query = select(AnnotationRow.trial_id, *known.values()).where(AnnotationRow.trial_id.in_(ids))
    return {
        key: values.completed(AnnotationRow, dict(zip(known, raw, strict=True)), "an annotation")
        for key, *raw in session.execute(query)
    }


def write(session: Session, items: Iterable[Item], shown: str, progress: Progress) -> list[tuple[str, int, int]]:
    """Writes sweeps as new ones and returns of each the name, and how many trials and curve points it has.

    A trial that was running is stored as running, but its lease has ended: whoever resumes the sweep interrupts it.

    Args:
        session: of a transaction that writes.
        items: what `read` yields, from another store or from a file.
        shown: how messages name the store.
        progress: told about the trials of each sweep.

    Raises:
        StoreError: a sweep of this name exists, or a value cannot be stored. Nothing must be committed then.
    """
    done: list[tuple[str, int, int]] = []
    sweep_id, expected, num_trials, num_points = 0, 0, 0, 0
    batch: list[StoredTrial] = []

    def end_sweep() -> None:
        nonlocal batch
        if not done:
            return
        _insert_trials(session, sweep_id, batch)
        batch = []
        if num_trials != expected:
            raise StoreError(f"sweep '{done[-1][0]}' should have {counted(expected, 'trial')} and has {num_trials}")
        done[-1] = (done[-1][0], num_trials, num_points)

    try:
        for item in items:
            if isinstance(item, StoredSweep):
                end_sweep()
                sweep_id = _insert_sweep(session, item, shown)
                done.append((item.name, 0, 0))
                expected, num_trials, num_points = item.num_trials, 0, 0
                continue
            if not done:
                raise ValueError("a trial comes before its sweep")
            _check_number(item, num_trials, done[-1][0])
            batch.append(item)
            num_trials += 1
            num_points += len(item.steps)
            if len(batch) >= BATCH:
                _insert_trials(session, sweep_id, batch)
                batch = []
                progress(num_trials, expected)
        end_sweep()
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise StoreError(f"{' '.join(str(error).split())[:300]}; nothing was stored") from error
    return done


def _check_number(trial: StoredTrial, expected: int, sweep: str) -> None:
    if trial.values.get("number") != expected:
        found = trial.values.get("number")
        raise ValueError(f"sweep '{sweep}': trial {expected} is missing, and {found!r:.40} comes in its place")


def _insert_sweep(session: Session, sweep: StoredSweep, shown: str) -> int:
    row = values.completed(SweepRow, sweep.values, "the sweep")
    values.sweep_record(0, row)
    if not row["name"]:
        raise ValueError("the sweep has no name")
    if session.scalar(select(SweepRow.id).where(SweepRow.name == row["name"])) is not None:
        raise StoreError(
            f"sweep '{row['name']}' exists already in {shown}, so nothing was stored; give another name, or rename"
            " that one with protein rename"
        )
    return int(session.execute(insert(SweepRow).values(**row).returning(SweepRow.id)).scalar_one())


def _insert_trials(session: Session, sweep_id: int, trials: Sequence[StoredTrial]) -> None:
    if not trials:
        return
    checked = [_checked(trial) for trial in trials]
    lease_until = datetime.now(UTC) - timedelta(hours=1)  # clocks differ
    for row in checked:
        if row["state"] == TrialState.RUNNING.value:
            row["lease_until"] = min(row["lease_until"], lease_until)
            row["owner"] = ""  # who runs it runs the original
    insertion = insert(TrialRow).returning(TrialRow.id, sort_by_parameter_order=True)
    ids = session.scalars(insertion, [{"sweep_id": sweep_id, **row} for row in checked]).all()
    points: list[dict[str, Any]] = []
    artifacts: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for key, trial in zip(ids, trials, strict=True):
        curve = zip(trial.steps, trial.elapsed_seconds, trial.score, trial.metrics, strict=True)
        for position, (steps, seconds, score, metrics) in enumerate(curve):
            point = {"steps": steps, "elapsed_seconds": float(seconds), "metrics": metrics}
            points.append({"trial_id": key, "position": position, "score": score, **point})
        artifacts += [{"trial_id": key, "kind": kind, "path": path} for kind, path in trial.artifacts]
        if trial.annotation is not None:
            annotations.append({"trial_id": key, "sweep_id": sweep_id, **trial.annotation})
    for kind, of in ((MeasurementRow, points), (ArtifactRow, artifacts), (AnnotationRow, annotations)):
        if of:
            session.connection().execute(insert(kind), of)


def _checked(trial: StoredTrial) -> dict[str, Any]:
    """Returns a trial's row. Raises `ValueError` where anything of the trial cannot be stored."""
    what = f"trial {trial.values.get('number')!r:.20}"
    row = values.completed(TrialRow, trial.values, what)
    try:
        values.trial_record(0, row)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    values.check_curve(trial.steps, trial.elapsed_seconds, trial.score, trial.metrics, what)
    for kind, path in trial.artifacts:
        values.check_artifact(kind, path, what)
    if trial.annotation is not None:
        values.completed(AnnotationRow, trial.annotation, f"the annotation of {what}")
    return row


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
        for number, what, count in _damaged_trials(session, key):
            if what:
                yield Damage(what=what, sweep=name, trial=number)
            done += count
            if count:
                progress(done, total)


def _strays(session: Session) -> Iterator[Damage]:
    """Yields rows that belong to no row: a database keeps that from happening, a damaged file does not."""
    t, m, a, n = TrialRow, MeasurementRow, ArtifactRow, AnnotationRow
    asked = (
        ("trial", "sweep", select(func.count()).where(t.sweep_id.not_in(select(SweepRow.id)))),
        ("curve point", "trial", select(func.count()).where(m.trial_id.not_in(select(t.id)))),
        ("artifact", "trial", select(func.count()).where(a.trial_id.not_in(select(t.id)))),
        ("annotation", "trial", select(func.count()).where(n.trial_id.not_in(select(t.id)))),
    )
    for what, owner, query in asked:
        if count := session.scalar(query):
            yield Damage(what=f"{counted(count, f'{what} belongs', f'{what}s belong')} to no {owner}")


def _damaged_trials(session: Session, sweep_id: int) -> Iterator[tuple[int | None, str, int]]:
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


class WholeStore(SqlStore):
    """A store in a SQLite file or a PostgreSQL database; `storage.open_whole_store` is the way to one."""

    @property
    def shown(self) -> str:
        """How messages name the store, without a password."""
        return self._shown

    def read_sweeps(self, sweep_ids: Collection[int]) -> Iterator[Item]:
        """Yields sweeps with all their rows, as they are at one moment. Raises `StoreError` at a damaged value."""
        with self._reading() as session:
            yield from read(session, sweep_ids)

    def write_sweeps(
        self, items: Iterable[Item], progress: Progress, machines: Sequence[Machine] = ()
    ) -> list[tuple[str, int, int]]:
        """Stores sweeps as new ones, all of them or none.

        Args:
            items: what `read_sweeps` of another store yields, or a file.
            progress: told how many trials of a sweep are stored, and of how many.
            machines: that are stored with them, behind those that this store knows. A name that it knows stays.

        Returns:
            Of each sweep the name, and how many trials and curve points it has.

        Raises:
            StoreError: a sweep of this name exists, or a value cannot be stored.
        """
        with self._transaction(self._write_engine) as session:
            for machine in machines:
                self._insert_machine(session, machine)
            return write(session, items, self._shown, progress)

    def damages(self, progress: Progress) -> Iterator[Damage]:
        """Yields everything that is wrong with the stored values."""
        with self._one_moment(), self._transaction(self._read_engine) as session:
            yield from damages(session, progress)

    def rename_sweep(self, old: str, new: str, artifacts: Iterable[tuple[int, Artifact, str]] = ()) -> None:
        """Renames a sweep, and changes where its files are.

        Args:
            old: name of the sweep.
            new: its new name.
            artifacts: of each file that moves the trial's number, the artifact as it is stored, and its new path.

        Raises:
            StoreError: there is no such sweep, or one that has the new name.
        """
        if not 1 <= len(values.text("sweep name", new)) <= MAX_NAME_LENGTH:
            raise StoreError(f"sweep name of {len(new)} characters: 1 to {MAX_NAME_LENGTH} are allowed; give another")
        with self._transaction(self._write_engine) as session:
            sweep_id = session.scalar(select(SweepRow.id).where(SweepRow.name == old))
            if sweep_id is None:
                raise StoreError(f"there is no sweep '{old}' in {self._shown}; nothing was renamed")
            if session.scalar(select(SweepRow.id).where(SweepRow.name == new)) is not None:
                raise StoreError(f"sweep '{new}' exists already in {self._shown}; give another name")
            session.execute(update(SweepRow).where(SweepRow.id == sweep_id).values(name=new))
            mine = select(TrialRow.number, TrialRow.id).where(TrialRow.sweep_id == sweep_id)
            ids = dict(session.execute(mine).all())
            a = ArtifactRow
            for number, artifact, path in artifacts:
                values.check_artifact(artifact.kind, path, f"trial {number}")
                same = (a.trial_id == ids[number], a.kind == artifact.kind, a.path == artifact.path)
                session.execute(update(a).where(*same).values(path=path))

    def remove_sweep(self, sweep_id: int) -> None:
        """Deletes a sweep with everything of it. Raises `StoreError` where there is none."""
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            ids = session.scalars(select(TrialRow.id).where(TrialRow.sweep_id == sweep_id)).all()
            for first in range(0, len(ids), PART):
                part = ids[first : first + PART]
                for kind in (MeasurementRow, ArtifactRow, AnnotationRow):
                    session.execute(delete(kind).where(kind.trial_id.in_(part)))
                session.execute(delete(TrialRow).where(TrialRow.id.in_(part)))
            session.execute(delete(SweepRow).where(SweepRow.id == sweep_id))
