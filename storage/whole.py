"""Whole sweeps, for commands that export, import, check, rename or remove them.

A sweep travels as a `StoredSweep` and then its `StoredTrial`s by number: every column of every row. Their values go by
the names of the columns, so a new column travels without a change here. What the database numbers itself (ids) stays
behind, and gets new numbers where the sweep arrives. Curves are columns: of 10,000,000 points, an object each would
need gigabytes.
"""

import dataclasses
import itertools
import json
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Text, cast, delete, func, insert, select, type_coerce, update
from sqlalchemy.orm import Session

from protein.errors import StoreError
from protein.types import Artifact, Machine, TrialState

from . import check, values
from .check import Progress
from .store import SqlStore
from .tables import MAX_NAME_LENGTH, AnnotationRow, ArtifactRow, MeasurementRow, SweepRow, TrialRow

BATCH = 200  # trials that are read or written at once
PART = 2000  # trials whose rows are deleted in one statement


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
            raise StoreError(f"sweep '{done[-1][0]}' should have {expected} trials and has {num_trials}")
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

    def damages(self, progress: Progress) -> Iterator[check.Damage]:
        """Yields everything that is wrong with the stored values; see `protein.storage.check`."""
        with self._one_moment(), self._transaction(self._read_engine) as session:
            yield from check.damages(session, progress)

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
