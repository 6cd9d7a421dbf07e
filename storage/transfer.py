"""Whole sweeps out of a store and into a store: every column of every row, one trial after the other.

A sweep travels as a `StoredSweep` and then its `StoredTrial`s by number. Their values go by the names of the columns,
so a new column travels without a change here. What the database numbers itself (ids) stays behind, and gets new numbers
where the sweep arrives. Curves are columns: of 10,000,000 points, an object each would need gigabytes.
"""

import dataclasses
import itertools
import json
import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Text, cast, func, insert, select, type_coerce
from sqlalchemy.orm import Session

from protein.errors import StoreError
from protein.types import TrialState

from . import rows
from .tables import AnnotationRow, ArtifactRow, MeasurementRow, SweepRow, TrialRow

BATCH = 200  # trials that are read or written at once


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
Progress = Callable[[int, int], None]  # is told how many trials are done, and of how many
SWEEP_KINDS = rows.kinds(SweepRow, rows.SWEEP_KEYS)  # what a sweep's and a trial's values are, by name
TRIAL_KINDS = rows.kinds(TrialRow, rows.TRIAL_KEYS)


def read(session: Session, sweep_ids: Collection[int]) -> Iterator[Item]:
    """Yields sweeps, each with its trials, as they are at one moment: that of the session's transaction."""
    known = rows.columns(SweepRow, rows.SWEEP_KEYS)
    for sweep_id in sweep_ids:
        values = session.execute(select(*known.values()).where(SweepRow.id == sweep_id)).one()
        count = session.scalar(select(func.count()).where(TrialRow.sweep_id == sweep_id)) or 0
        row = rows.completed(SweepRow, rows.SWEEP_KEYS, dict(zip(known, values, strict=True)), "the sweep")
        yield StoredSweep(values=row, num_trials=count)
        yield from _trials(session, sweep_id)


def _trials(session: Session, sweep_id: int) -> Iterator[StoredTrial]:
    known, following = rows.columns(TrialRow, rows.TRIAL_KEYS), -1
    wanted = select(TrialRow.id, *known.values()).where(TrialRow.sweep_id == sweep_id).order_by(TrialRow.number)
    while batch := session.execute(wanted.where(TrialRow.number > following).limit(BATCH)).all():
        ids = [row[0] for row in batch]
        curves, artifacts, annotations = _curves(session, ids), _artifacts(session, ids), _annotations(session, ids)
        for key, *values in batch:
            trial = rows.completed(TrialRow, rows.TRIAL_KEYS, dict(zip(known, values, strict=True)), "a trial")
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
        rows.check_curve(steps, seconds, score, parsed, "a trial")
        found[key] = (steps, seconds, score, parsed)
    return found


def _artifacts(session: Session, ids: Sequence[int]) -> dict[int, list[tuple[str, str]]]:
    a = ArtifactRow
    found: dict[int, list[tuple[str, str]]] = {}
    for key, kind, path in session.execute(
        select(a.trial_id, a.kind, a.path).where(a.trial_id.in_(ids)).order_by(a.id)
    ):
        rows.check_artifact(kind, path, "a trial")
        found.setdefault(key, []).append((kind, path))
    return found


def _annotations(session: Session, ids: Sequence[int]) -> dict[int, dict[str, Any]]:
    known = rows.columns(AnnotationRow, rows.ANNOTATION_KEYS)
    query = select(AnnotationRow.trial_id, *known.values()).where(AnnotationRow.trial_id.in_(ids))
    return {
        key: rows.completed(AnnotationRow, rows.ANNOTATION_KEYS, dict(zip(known, values, strict=True)), "an annotation")
        for key, *values in session.execute(query)
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
    except (ValueError, TypeError, KeyError) as error:
        raise StoreError(f"{' '.join(str(error).split())[:300]}; nothing was stored") from error
    return done


def _check_number(trial: StoredTrial, expected: int, sweep: str) -> None:
    if trial.values.get("number") != expected:
        found = trial.values.get("number")
        raise ValueError(f"sweep '{sweep}': trial {expected} is missing, and {found!r:.40} comes in its place")


def _insert_sweep(session: Session, sweep: StoredSweep, shown: str) -> int:
    values = rows.completed(SweepRow, rows.SWEEP_KEYS, sweep.values, "the sweep")
    rows.sweep_record(0, values)
    if not values["name"]:
        raise ValueError("the sweep has no name")
    if session.scalar(select(SweepRow.id).where(SweepRow.name == values["name"])) is not None:
        raise StoreError(
            f"sweep '{values['name']}' exists already in {shown}, so nothing was stored; give another name, or rename"
            " that one with protein rename"
        )
    return int(session.execute(insert(SweepRow).values(**values).returning(SweepRow.id)).scalar_one())


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
    row = rows.completed(TrialRow, rows.TRIAL_KEYS, trial.values, what)
    try:
        rows.trial_record(0, row)
    except ValueError as error:
        raise ValueError(f"{what}: {error}") from error
    rows.check_curve(trial.steps, trial.elapsed_seconds, trial.score, trial.metrics, what)
    for kind, path in trial.artifacts:
        rows.check_artifact(kind, path, what)
    if trial.annotation is not None:
        rows.completed(AnnotationRow, rows.ANNOTATION_KEYS, trial.annotation, f"the annotation of {what}")
    return row
