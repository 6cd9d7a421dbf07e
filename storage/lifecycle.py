"""Changes the states of trials that nobody runs: they wait, are taken up again, or are ended.

    RUNNING -> WAITING     its owner gave it back, or died, and it left something to go on from
    WAITING -> RUNNING     by compare-and-set: of two processes that want a trial, one gets it
    WAITING -> FAILED      a person has cancelled it

Each function is called within a transaction of `protein.storage.store`.
"""

import dataclasses
from collections.abc import Collection
from datetime import datetime

from sqlalchemy import ColumnElement, case, delete, func, select, update
from sqlalchemy.orm import Session

from protein.errors import StoreError, TrialLost
from protein.types import CANCELLED, Trial, TrialEnd, TrialState

from . import values
from .tables import MeasurementRow, TrialRow

WAITS = {"state": TrialState.WAITING.value, "owner": ""}  # the columns of a trial that waits
_ENDED = {"state": TrialEnd.INTERRUPTED.state.value, "end": TrialEnd.INTERRUPTED.value}

Moment = ColumnElement[datetime]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a trial goes on from: the steps behind it, and the trial's own cost there if that is known."""

    steps: int
    seconds: float | None


def take_up(session: Session, sweep_id: int, number: int, owner: str, lease_until: Moment, place: Place) -> Trial:
    """See `protein.ports.Store.take_up_trial`."""
    t, m = TrialRow, MeasurementRow
    claim = (
        update(t)
        .where(
            t.sweep_id == sweep_id,
            t.number == number,
            t.state == TrialState.WAITING.value,
            t.cancel_requested.is_(False),
        )
        .values(state=TrialState.RUNNING.value, owner=owner, lease_until=lease_until, reason="")
        .returning(t.id, t.params, t.seed, t.cost_seconds, t.lost_seconds)
    )
    row = session.execute(claim, execution_options={"synchronize_session": False}).one_or_none()
    if row is None:
        raise TrialLost(
            f"trial {number} does not wait any more: another process has taken it up, or it was cancelled;"
            " nothing was written"
        )
    beyond = select(func.min(m.position)).where(m.trial_id == row.id, m.steps > place.steps)
    if (first := session.scalar(beyond)) is not None:
        session.execute(delete(m).where(m.trial_id == row.id, m.position >= first))
    last = select(m.steps, m.elapsed_seconds).where(m.trial_id == row.id).order_by(m.position.desc()).limit(1)
    kept = session.execute(last).one_or_none()
    steps, seconds = (0, 0.0) if kept is None else (kept.steps, kept.elapsed_seconds)
    if place.seconds is not None:  # more exact, and the run may have reported less than it had saved
        steps, seconds = place.steps, place.seconds
    lost = row.lost_seconds + max(row.cost_seconds - seconds, 0.0)
    session.execute(update(t).where(t.id == row.id).values(steps=steps, cost_seconds=seconds, lost_seconds=lost))
    return Trial(id=row.id, sweep_id=sweep_id, number=number, params=dict(row.params), seed=row.seed, owner=owner)


def end_cancelled(session: Session, trial: Trial, now: Moment) -> None:
    """Ends a trial that has just begun to wait, where a person has asked for its end."""
    asked = update(TrialRow).where(TrialRow.id == trial.id, TrialRow.cancel_requested)
    session.execute(asked.values(**_ENDED, reason=CANCELLED, finished_at=now))


def interrupt(
    session: Session, sweep_id: int, orphaned: ColumnElement[bool], waiting: Collection[int], now: Moment
) -> list[int]:
    """See `protein.ports.Store.interrupt_orphans`; the sweep's row is locked."""
    t, end = TrialRow, TrialEnd.INTERRUPTED
    mine = (t.sweep_id == sweep_id, t.state == TrialState.RUNNING.value, orphaned)
    can_wait = (t.number.in_(values.trial_numbers(waiting)), t.cancel_requested.is_(False))
    wait = update(t).where(*mine, *can_wait).values(**WAITS, reason=end.text)
    reason = case((t.cancel_requested, CANCELLED), else_=end.text)
    ended = update(t).where(*mine).values(**_ENDED, reason=reason, finished_at=now)
    connection = session.connection()
    found = [*connection.execute(wait.returning(t.number)).scalars()]
    return sorted([*found, *connection.execute(ended.returning(t.number)).scalars()])


def cancel(session: Session, sweep_id: int, numbers: Collection[int], now: Moment) -> None:
    """See `protein.ports.Store.cancel`; the sweep's row is locked."""
    t = TrialRow
    wanted = values.trial_numbers(numbers)
    mine = (t.sweep_id == sweep_id, t.number.in_(wanted))
    # Locked, so that none finishes between this look and the change.
    rows = session.execute(select(t.number, t.state).where(*mine).order_by(t.number).with_for_update()).all()
    states = {row.number: TrialState(row.state) for row in rows}
    for number in sorted(set(numbers)):
        if number not in states:
            raise StoreError(f"the sweep has no trial {number}, so none was cancelled; protein show lists its trials")
        if states[number].finished:
            raise StoreError(f"trial {number} has finished ({states[number]}), so none was cancelled")
    session.execute(update(t).where(*mine).values(cancel_requested=True))
    waits = (*mine, t.state == TrialState.WAITING.value)
    session.execute(update(t).where(*waits).values(**_ENDED, reason=CANCELLED, finished_at=now))
