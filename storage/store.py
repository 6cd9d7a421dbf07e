"""`protein.ports.Store` over SQLAlchemy. One public method is one transaction; see the port for the contract.

Concurrency: SQLite serialises writers. On PostgreSQL, a write that changes the set of a sweep's trials locks the
sweep's row first, so numbers have no gaps. A write to a trial is one UPDATE whose WHERE clause is the fence (`id`,
`owner`, running): either it matches, or nothing happens. Leases run by the clock of the server, if there is one.

The states of a trial that nobody runs change like this:

    (new)   -> WAITING     a person has queued it
    RUNNING -> WAITING     its owner gave it back, or died, and it left something to go on from
    WAITING -> RUNNING     by compare-and-set
    WAITING -> FAILED      a person has cancelled it

A finished trial never changes, but for its annotations. So `trials` keeps the finished trials that it has read, and
reads again only from the first one that was still running. Annotations are read each time.
"""

import dataclasses
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    type_coerce,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from protein.columns import CurveColumns, SweepSummary, TrialColumns
from protein.errors import StoreError, TrialLost
from protein.ports import Wishes
from protein.types import (
    CANCELLED,
    MAX_TAGS,
    QUEUED,
    TAGS,
    AgentCall,
    Annotation,
    Artifact,
    Machine,
    Measurement,
    Outcome,
    Provenance,
    Request,
    Result,
    Suggestion,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
    fields_of,
)

from . import reading, records, values
from .database import Database
from .tables import (
    MAX_NAME_LENGTH,
    AgentCallRow,
    AnnotationRow,
    ArtifactRow,
    MachineRow,
    MeasurementRow,
    SweepRow,
    TrialRow,
)

_NO_ANNOTATION = Annotation()
_PART = 500  # trials whose annotations are asked for in one query
_WAITS = {"state": TrialState.WAITING.value, "owner": ""}  # the columns of a trial that waits
_ENDED = {"state": TrialEnd.INTERRUPTED.state.value, "end": TrialEnd.INTERRUPTED.value}
_POINT = ("steps", "elapsed_seconds", "score", "metrics")  # the columns of a point of a curve


class SqlStore(Database):
    """A store in a SQLite file or a PostgreSQL database; `storage.open_store` is the way to one."""

    def __init__(self, url: str, *, to_write: bool = True) -> None:
        # By sweep, and whether with curves: its first trials, all finished.
        self._finished: dict[tuple[int, bool], tuple[TrialRecord, ...]] = {}
        super().__init__(url, to_write=to_write)

    def create_sweep(self, spec: SweepSpec, max_cost_seconds: float | None) -> SweepRecord:
        if not 1 <= len(values.text("sweep name", spec.name)) <= MAX_NAME_LENGTH:
            raise StoreError(
                f"sweep name of {len(spec.name)} characters: 1 to {MAX_NAME_LENGTH} are allowed; give another"
            )
        budget = values.budget(max_cost_seconds)
        row = SweepRow(max_cost_seconds=budget, requested=Request.RUN.value, ended="", **values.columns(spec))
        with self._transaction(self._write_engine) as session:
            # Two processes may both find no such sweep here; the constraint then lets one of the two insert it.
            if session.scalar(select(SweepRow.id).where(SweepRow.name == spec.name)) is not None:
                raise StoreError(
                    f"sweep {spec.name!r} exists already in {self._shown}; give another name, or resume it"
                )
            row.created_at = session.execute(select(self._now())).scalar_one()
            session.add(row)
            session.flush()
            return values.stored_sweep(row)

    def find_sweep(self, name: str) -> SweepRecord | None:
        with self._reading() as session:
            row = session.scalar(select(SweepRow).where(SweepRow.name == values.text("sweep name", name)))
            return None if row is None else values.stored_sweep(row)

    def list_sweeps(self) -> list[SweepRecord]:
        with self._reading() as session:
            return [values.stored_sweep(row) for row in session.scalars(select(SweepRow).order_by(SweepRow.id))]

    def set_budget(self, sweep_id: int, max_cost_seconds: float | None) -> None:
        self._update_sweep(sweep_id, max_cost_seconds=values.budget(max_cost_seconds))

    def set_config(self, sweep_id: int, config: Mapping[str, Any]) -> None:
        self._update_sweep(sweep_id, config=values.json_object("config", config))

    def set_space(self, sweep_id: int, space: Mapping[str, Any]) -> None:
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            row = session.get_one(SweepRow, sweep_id)
            others = {name: value for name, value in space.items() if name != TAGS}
            tags = {name: value for name, value in row.space.items() if name == TAGS}
            row.space = values.json_object("space", {**others, **tags})

    def tag_sweeps(
        self, sweep_ids: Collection[int], *, add_tags: Sequence[str] = (), remove_tags: Sequence[str] = ()
    ) -> None:
        more, fewer = values.tags(add_tags), values.tags(remove_tags)
        with self._transaction(self._write_engine) as session:
            for sweep_id in sorted(set(sweep_ids)):
                self._lock_sweep(session, sweep_id)
                row = session.get_one(SweepRow, sweep_id)
                now = list(dict.fromkeys(tag for tag in [*row.space.get(TAGS, ()), *more] if tag not in fewer))
                if len(now) > MAX_TAGS:
                    raise StoreError(
                        f"sweep '{row.name}' would have {len(now)} tags, and {MAX_TAGS} are the most, so nothing was"
                        " changed; remove some"
                    )
                others = {name: value for name, value in row.space.items() if name != TAGS}
                row.space = {**others, TAGS: now} if now else others

    def start_trial(
        self,
        sweep_id: int,
        suggestion: Suggestion,
        *,
        seed: int,
        owner: str,
        lease_seconds: float,
        suggest_seconds: float,
        provenance: Provenance,
        number: int | None = None,
    ) -> Trial:
        columns = _new_trial(
            suggestion,
            Result(),
            sweep_id=sweep_id,
            seed=seed,
            provenance=provenance,
            suggest_seconds=suggest_seconds,
            state=TrialState.RUNNING,
            owner=owner,
        )
        lease = values.lease(lease_seconds)
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            following = self._next_number(session, sweep_id)
            if number not in (None, following):
                raise TrialLost(
                    f"trial {number} of this sweep was started by another process; let one process run a sweep"
                )
            columns |= {"number": following, "started_at": self._now(), "lease_until": self._now(lease)}
            key = session.execute(insert(TrialRow).values(**columns).returning(TrialRow.id)).scalar_one()
        return Trial(
            id=key, sweep_id=sweep_id, number=following, params=dict(columns["params"]), seed=seed, owner=owner
        )

    def queue_trials(
        self, sweep_id: int, queued: Sequence[tuple[Suggestion, int]], *, number: int, provenance: Provenance
    ) -> None:
        waits: dict[str, Any] = {"sweep_id": sweep_id, "provenance": provenance, "suggest_seconds": 0.0}
        waits |= {"state": TrialState.WAITING, "owner": ""}
        rows = [_new_trial(suggestion, Result(reason=QUEUED), seed=seed, **waits) for suggestion, seed in queued]
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            if self._next_number(session, sweep_id) != number:
                raise TrialLost(f"trial {number} of this sweep was started by another process; nothing was queued")
            for i, row in enumerate(rows):
                now = {"number": number + i, "started_at": self._now(), "lease_until": self._now()}
                session.execute(insert(TrialRow).values(**row, **now))

    def add_measurements(self, trial: Trial, measurements: Sequence[Measurement], lease_seconds: float) -> None:
        lease = values.lease(lease_seconds)
        rows = [{"trial_id": trial.id, **values.columns(measurement)} for measurement in measurements]
        if len(rows) == 1 and not self._sqlite and self._add_at_once(trial, rows[0], lease):
            return
        with self._transaction(self._write_engine) as session:
            change: dict[str, Any] = {"lease_until": self._now(lease)}
            if rows:
                change |= {"cost_seconds": rows[-1]["elapsed_seconds"], "steps": rows[-1]["steps"]}
            self._fenced_update(session, trial, change)
            if rows:
                for position, row in enumerate(rows, start=session.scalar(self._next_position(trial)) or 0):
                    row["position"] = position
                session.execute(insert(MeasurementRow), rows)

    def renew_lease(self, trial: Trial, lease_seconds: float, cost_seconds: float) -> None:
        cost, lease = values.seconds("cost_seconds", cost_seconds), values.lease(lease_seconds)
        with self._transaction(self._write_engine) as session:
            self._fenced_update(session, trial, {"lease_until": self._now(lease), "cost_seconds": cost})

    def _add_at_once(self, trial: Trial, row: dict[str, Any], lease: timedelta) -> bool:
        """Adds one point by one statement, which is its own transaction: one question to the server instead of five.

        Returns False where the fence did not match. Then nothing was written.
        """
        t, m = TrialRow, MeasurementRow
        change = {"cost_seconds": row["elapsed_seconds"], "steps": row["steps"], "lease_until": self._now(lease)}
        mine = update(t).where(*_fence(trial)).values(**change).returning(t.id).cte("mine")
        position = self._next_position(trial).scalar_subquery()
        values_ = [bindparam(name, row[name], m.__table__.c[name].type) for name in _POINT]
        point = select(mine.c.id, position, *values_)
        with self._explained(), self._at_once_engine.connect() as connection:
            added = insert(m).from_select(["trial_id", "position", *_POINT], point).returning(m.position)
            return connection.scalar(added) is not None

    def _next_position(self, trial: Trial) -> Select[int]:
        last = func.max(MeasurementRow.position)
        return select(func.coalesce(last + 1, 0)).where(MeasurementRow.trial_id == trial.id)

    def finish_trial(self, trial: Trial, outcome: Outcome, artifacts: Sequence[Artifact] = ()) -> None:
        values.check_outcome(outcome)
        change = {"state": outcome.state.value, **values.columns(outcome)}
        rows = [{"trial_id": trial.id, **values.columns(artifact)} for artifact in artifacts]
        if not rows and not self._sqlite:  # one statement, which is its own transaction
            at_once = update(TrialRow).where(*_fence(trial)).values(**change, finished_at=self._now())
            with self._explained(), self._at_once_engine.connect() as connection:
                if connection.execute(at_once).rowcount == 1:
                    return
        with self._transaction(self._write_engine) as session:
            self._fenced_update(session, trial, {**change, "finished_at": self._now()})
            if rows:
                session.execute(insert(ArtifactRow), rows)

    def release_trial(self, trial: Trial, reason: str, cost_seconds: float | None = None) -> None:
        change: dict[str, Any] = {**_WAITS, "reason": values.readable(reason)}
        if cost_seconds is not None:
            change["cost_seconds"] = values.seconds("cost_seconds", cost_seconds)
        with self._transaction(self._write_engine) as session:
            self._fenced_update(session, trial, {**change, "lease_until": self._now()})
            # Where a person has asked for its end, it does not begin to wait.
            asked = update(TrialRow).where(TrialRow.id == trial.id, TrialRow.cancel_requested)
            session.execute(asked.values(**_ENDED, reason=CANCELLED, finished_at=self._now()))

    def take_up_trial(
        self,
        sweep_id: int,
        number: int,
        owner: str,
        lease_seconds: float,
        from_steps: int,
        from_seconds: float | None = None,
        provenance: Provenance | None = None,
    ) -> Trial:
        values.integer("from_steps", from_steps, low=0)
        if from_seconds is not None:
            values.seconds("from_seconds", from_seconds)
        owner, lease = values.text("owner", owner), values.lease(lease_seconds)
        t, m = TrialRow, MeasurementRow
        begins: dict[str, Any] = {}
        if provenance is not None:
            begins = {**values.columns_of(TrialRecord, provenance=provenance), "started_at": self._now()}
        with self._transaction(self._write_engine) as session:
            claim = (  # compare-and-set: of two processes that want a trial, one gets it
                update(t)
                .where(
                    t.sweep_id == sweep_id,
                    t.number == number,
                    t.state == TrialState.WAITING.value,
                    t.cancel_requested.is_(False),
                )
                .values(state=TrialState.RUNNING.value, owner=owner, lease_until=self._now(lease), reason="", **begins)
                .returning(t.id, t.params, t.seed, t.cost_seconds, t.lost_seconds)
            )
            row = session.execute(claim, execution_options={"synchronize_session": False}).one_or_none()
            if row is None:
                raise TrialLost(
                    f"trial {number} does not wait any more: another process has taken it up, or it was cancelled;"
                    " nothing was written"
                )
            beyond = select(func.min(m.position)).where(m.trial_id == row.id, m.steps > from_steps)
            if (first := session.scalar(beyond)) is not None:
                session.execute(delete(m).where(m.trial_id == row.id, m.position >= first))
            last = select(m.steps, m.elapsed_seconds).where(m.trial_id == row.id).order_by(m.position.desc()).limit(1)
            kept = session.execute(last).one_or_none()
            steps, seconds = (0, 0.0) if kept is None else (kept.steps, kept.elapsed_seconds)
            if from_seconds is not None:  # more exact, and the run may have reported less than it had saved
                steps, seconds = from_steps, from_seconds
            lost = row.lost_seconds + max(row.cost_seconds - seconds, 0.0)
            session.execute(
                update(t).where(t.id == row.id).values(steps=steps, cost_seconds=seconds, lost_seconds=lost)
            )
        return Trial(id=row.id, sweep_id=sweep_id, number=number, params=dict(row.params), seed=row.seed, owner=owner)

    def interrupt_orphans(self, sweep_id: int, dead_owners: Sequence[str], waiting: Collection[int] = ()) -> list[int]:
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)  # two of these at once could lock the trials in different orders
            t, end, now = TrialRow, TrialEnd.INTERRUPTED, self._now()
            orphaned = or_(t.owner.in_(list(dead_owners)), t.lease_until < self._now())
            mine = (t.sweep_id == sweep_id, t.state == TrialState.RUNNING.value, orphaned)
            can_wait = (t.number.in_(values.trial_numbers(waiting)), t.cancel_requested.is_(False))
            wait = update(t).where(*mine, *can_wait).values(**_WAITS, reason=end.text)
            reason = case((t.cancel_requested, CANCELLED), else_=end.text)
            ended = update(t).where(*mine).values(**_ENDED, reason=reason, finished_at=now)
            connection = session.connection()
            found = [*connection.execute(wait.returning(t.number)).scalars()]
            return sorted([*found, *connection.execute(ended.returning(t.number)).scalars()])

    def live_trials(self, sweep_id: int) -> dict[int, str]:
        mine = (TrialRow.sweep_id == sweep_id, TrialRow.state == TrialState.RUNNING.value)
        with self._reading(sweep_id) as session:
            query = select(TrialRow.number, TrialRow.owner).where(*mine, TrialRow.lease_until >= self._now())
            return dict(session.execute(query.order_by(TrialRow.number)).all())

    def trials(
        self,
        sweep_id: int,
        *,
        curves: bool = True,
        last_points: bool = False,
        numbers: Collection[int] | None = None,
    ) -> list[TrialRecord]:
        if numbers is not None or (last_points and not curves):
            which = true() if numbers is None else TrialRow.number.in_(values.trial_numbers(numbers))
            with self._reading(sweep_id) as session:
                return records.read(session, sweep_id, which, curves=curves, last_points=last_points)
        known = self._finished.get((sweep_id, curves), ())
        with self._reading(sweep_id) as session:
            new = records.read(session, sweep_id, TrialRow.number >= len(known), curves=curves)
            known = tuple(self._annotated(session, sweep_id, known))
        found = (*known, *new)
        finished = next((i for i, record in enumerate(found) if not record.state.finished), len(found))
        self._finished[sweep_id, curves] = found[:finished]
        return list(found)

    def same_params(self, sweep_id: int, numbers: Collection[int]) -> list[int]:
        params = type_coerce(TrialRow.params, Text()) if self._sqlite else cast(TrialRow.params, Text())
        mine = TrialRow.sweep_id == sweep_id
        these = select(params).where(mine, TrialRow.number.in_(values.trial_numbers(numbers)))
        with self._reading(sweep_id) as session:
            return list(
                session.scalars(select(TrialRow.number).where(mine, params.in_(these)).order_by(TrialRow.number))
            )

    def trial(self, sweep_id: int, number: int) -> TrialRecord:
        found = self.trials(sweep_id, numbers=[number])
        if not found:
            raise StoreError(f"the sweep has no trial {number} in {self._shown}; protein show lists its trials")
        return found[0]

    def columns(
        self, sweep_id: int, since: str | None = None, *, fields: Collection[str] | None = None
    ) -> TrialColumns:
        with self._reading(sweep_id) as session:
            return reading.trial_columns(session, sweep_id, since, fields)

    def curves(
        self, sweep_id: int, numbers: Collection[int], max_points: int, *, metric: str | None = None
    ) -> dict[int, CurveColumns]:
        with self._reading(sweep_id) as session:
            return reading.thinned(session, sweep_id, numbers, max_points, metric)

    def summaries(self, sweep_ids: Collection[int] | None = None) -> dict[int, SweepSummary]:
        with self._reading() as session:
            return reading.summaries(session, sweep_ids)

    def annotate(
        self,
        sweep_id: int,
        numbers: int | Collection[int],
        *,
        tags: Sequence[str] | None = None,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
        excluded: bool | None = None,
    ) -> None:
        chosen = [numbers] if isinstance(numbers, int) else numbers
        kept = None if tags is None else values.tags(tags)
        more, fewer = values.tags(add_tags), values.tags(remove_tags)
        note = None if note is None else values.note(note)
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)  # so revisions have an order
            rows = self._annotation_rows(session, sweep_id, chosen)
            newest = select(func.max(AnnotationRow.revision)).where(AnnotationRow.sweep_id == sweep_id)
            for revision, (number, row) in enumerate(rows.items(), start=(session.scalar(newest) or 0) + 1):
                now = [*(row.tags if kept is None else kept), *more]
                row.tags = list(dict.fromkeys(tag for tag in now if tag not in fewer))
                if len(row.tags) > MAX_TAGS:
                    raise StoreError(
                        f"trial {number} would have {len(row.tags)} tags, and {MAX_TAGS} are the most, so nothing was"
                        " changed; remove some"
                    )
                row.note = row.note if note is None else note
                row.excluded = row.excluded if excluded is None else excluded
                row.revision = revision
                session.add(row)

    def _annotation_rows(self, session: Session, sweep_id: int, numbers: Collection[int]) -> dict[int, AnnotationRow]:
        """Returns the annotations of trials, by number, new ones where there are none. Raises `StoreError`."""
        wanted = values.trial_numbers(numbers)
        for number in set(numbers).difference(wanted):
            raise StoreError(
                f"the sweep has no trial {number:.6g}, so nothing was changed; protein show lists its trials"
            )
        ids: dict[int, int] = {}
        known: dict[int, AnnotationRow] = {}
        for first in range(0, len(wanted), _PART):
            mine = (TrialRow.sweep_id == sweep_id, TrialRow.number.in_(wanted[first : first + _PART]))
            ids |= dict(session.execute(select(TrialRow.number, TrialRow.id).where(*mine)).all())
            joined = select(AnnotationRow).join(TrialRow, TrialRow.id == AnnotationRow.trial_id)
            known |= {row.trial_id: row for row in session.scalars(joined.where(*mine))}
        for number in wanted:
            if number not in ids:
                raise StoreError(
                    f"the sweep has no trial {number}, so nothing was changed; protein show lists its trials"
                )
            if ids[number] not in known:
                row = AnnotationRow(trial_id=ids[number], sweep_id=sweep_id, tags=[], note="", excluded=False)
                known[ids[number]] = row
        return {number: known[ids[number]] for number in wanted}

    def request(self, sweep_id: int, requested: Request) -> None:
        self._update_sweep(sweep_id, requested=Request(requested).value)

    def cancel(self, sweep_id: int, numbers: Collection[int]) -> None:
        with self._transaction(self._write_engine) as session:
            self._lock_sweep(session, sweep_id)
            t = TrialRow
            mine = (t.sweep_id == sweep_id, t.number.in_(values.trial_numbers(numbers)))
            # Locked, so that none finishes between this look and the change.
            rows = session.execute(select(t.number, t.state).where(*mine).order_by(t.number).with_for_update()).all()
            states = {row.number: TrialState(row.state) for row in rows}
            for number in sorted(set(numbers)):
                if number not in states:
                    raise StoreError(
                        f"the sweep has no trial {number}, so none was cancelled; protein show lists its trials"
                    )
                if states[number].finished:
                    raise StoreError(f"trial {number} has finished ({states[number]}), so none was cancelled")
            session.execute(update(t).where(*mine).values(cancel_requested=True))
            waits = (*mine, t.state == TrialState.WAITING.value)
            session.execute(update(t).where(*waits).values(**_ENDED, reason=CANCELLED, finished_at=self._now()))

    def set_ended(self, sweep_id: int, ended: str) -> None:
        self._update_sweep(sweep_id, ended=values.readable(ended))

    def _update_sweep(self, sweep_id: int, **columns: Any) -> None:
        with self._transaction(self._write_engine) as session:
            change = update(SweepRow).where(SweepRow.id == sweep_id).values(**columns)
            if session.connection().execute(change).rowcount == 0:
                raise self._no_sweep(sweep_id)

    def machines(self) -> list[Machine]:
        with self._reading() as session:
            return [values.stored_machine(row) for row in session.scalars(select(MachineRow).order_by(MachineRow.id))]

    def add_machine(self, machine: Machine) -> None:
        with self._transaction(self._write_engine) as session:
            self._insert_machine(session, machine)

    def _insert_machine(self, session: Session, machine: Machine) -> None:
        if not 1 <= len(values.text("machine's name", machine.name)) <= MAX_NAME_LENGTH:
            raise StoreError(f"name of a machine of {len(machine.name)} characters: 1 to {MAX_NAME_LENGTH} are allowed")
        columns = values.columns(machine)
        dialect_insert: Any
        if self._sqlite:
            from sqlalchemy.dialects.sqlite import insert as dialect_insert
        else:  # late: a store has one of the two, and most commands insert nothing
            from sqlalchemy.dialects.postgresql import insert as dialect_insert
        session.execute(dialect_insert(MachineRow).values(**columns).on_conflict_do_nothing(index_elements=["name"]))

    def agent_calls(self) -> list[AgentCall]:
        with self._reading() as session:
            rows = session.scalars(select(AgentCallRow).order_by(AgentCallRow.number))
            return [values.stored_agent_call(row) for row in rows]

    def add_agent_call(self, call: AgentCall) -> None:
        columns = values.columns(call)
        with self._transaction(self._write_engine) as session:
            last = session.scalar(select(func.max(AgentCallRow.number)))
            try:
                if call.number == (0 if last is None else last + 1):
                    session.execute(insert(AgentCallRow).values(**columns))
                    return
            except IntegrityError:  # two transactions have seen the same last one
                pass
            raise TrialLost(f"call {call.number} is not the next one: another was made in between")

    def end_agent_call(
        self, number: int, outcome: str, *, owner: str | None = None, sweep_id: int | None = None
    ) -> None:
        change: dict[str, Any] = {"outcome": values.readable(outcome)}
        change |= {} if owner is None else {"owner": values.text("owner", owner)}
        change |= {} if sweep_id is None else {"sweep_id": sweep_id}
        with self._transaction(self._write_engine) as session:
            session.execute(update(AgentCallRow).where(AgentCallRow.number == number).values(**change))

    def wishes(self, sweep_id: int) -> Wishes:
        a = AnnotationRow
        excluded = select(TrialRow.number).join(a, a.trial_id == TrialRow.id).where(a.sweep_id == sweep_id, a.excluded)
        cancelled = select(TrialRow.number).where(TrialRow.sweep_id == sweep_id, TrialRow.cancel_requested)
        with self._reading(sweep_id) as session:
            requested = session.scalar(select(SweepRow.requested).where(SweepRow.id == sweep_id))
            if requested is None:
                raise self._no_sweep(sweep_id)
            return Wishes(
                requested=Request(requested),
                excluded=frozenset(session.scalars(excluded)),
                cancelled=frozenset(session.scalars(cancelled)),
                num_trials=self._next_number(session, sweep_id),
            )

    def _annotated(self, session: Session, sweep_id: int, earlier: Sequence[TrialRecord]) -> Iterator[TrialRecord]:
        """Yields trials that were read earlier with their annotations as they are now."""
        written = records.annotations(session, TrialRow.sweep_id == sweep_id)
        for record in earlier:
            now = fields_of(written.get(record.id, _NO_ANNOTATION))
            same = all(getattr(record, name) == value for name, value in now.items())
            yield record if same else dataclasses.replace(record, **now)

    def _next_number(self, session: Session, sweep_id: int) -> int:
        highest = session.scalar(select(func.max(TrialRow.number)).where(TrialRow.sweep_id == sweep_id))
        return 0 if highest is None else highest + 1

    def _lock_sweep(self, session: Session, sweep_id: int) -> None:
        lock = select(SweepRow.id).where(SweepRow.id == sweep_id).with_for_update(key_share=True)
        if session.scalar(lock) is None:
            raise self._no_sweep(sweep_id)

    def _no_sweep(self, sweep_id: int) -> StoreError:
        return StoreError(f"no sweep has the id {sweep_id} in {self._shown}; `protein status` lists the sweeps")

    def _fenced_update(self, session: Session, trial: Trial, change: Mapping[str, Any]) -> None:
        if session.connection().execute(update(TrialRow).where(*_fence(trial)).values(**change)).rowcount == 1:
            return
        found = session.execute(select(TrialRow.state, TrialRow.owner).where(TrialRow.id == trial.id)).one_or_none()
        if found is None:
            raise TrialLost(f"trial {trial.number} (id {trial.id}) is not in {self._shown}; nothing was written")
        if found.state == TrialState.WAITING.value:
            raise TrialLost(f"trial {trial.number} waits to be taken up again and has no owner; nothing was written")
        if found.state != TrialState.RUNNING.value:
            raise TrialLost(
                f"trial {trial.number} is finished ({found.state}) and cannot change; nothing was written"
                "; its lease may have ended, or another process resumed the sweep"
            )
        raise TrialLost(
            f"trial {trial.number} belongs to {found.owner!r} and not to {trial.owner!r}; nothing was written"
            "; let one process run a trial"
        )


def _new_trial(suggestion: Suggestion, result: Result, **fields: Any) -> dict[str, Any]:
    """Returns the columns of a new trial, but for its number and times."""
    own = values.columns_of(TrialRecord, **fields, lost_seconds=0.0, cancel_requested=False)
    return values.columns(suggestion) | values.columns(result) | own


def _fence(trial: Trial) -> tuple[ColumnElement[bool], ...]:
    """Returns the conditions under which a trial's owner may write to it."""
    t = TrialRow
    return t.id == trial.id, t.owner == trial.owner, t.state == TrialState.RUNNING.value
