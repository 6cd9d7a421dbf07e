"""Sweeps in a few numbers, computed by the database: how far each is, however many trials it has."""

from collections.abc import Collection, Mapping

from sqlalchemy import ColumnElement, case, func, select
from sqlalchemy.orm import Session

from protein.columns import SweepSummary
from protein.types import TrialEnd, TrialState

from .tables import AnnotationRow, SweepRow, TrialRow

_LEAST_SECONDS = 1e-3  # costs below are equal, as on the front (`protein.engine.pareto`)
_CUT_SHORT = (TrialEnd.CAPPED.value, TrialEnd.OUT_OF_BUDGET.value)


def summaries(session: Session, sweep_ids: Collection[int] | None) -> dict[int, SweepSummary]:
    """See `protein.ports.Store.summaries`."""
    t = TrialRow
    mine = [] if sweep_ids is None else [t.sweep_id.in_(sorted(set(sweep_ids)))]
    known = select(SweepRow.id).order_by(SweepRow.id)
    known = known if sweep_ids is None else known.where(SweepRow.id.in_(sorted(set(sweep_ids))))
    ids = session.scalars(known).all()
    ends: dict[int, dict[TrialEnd | None, int]] = {key: {} for key in ids}
    spent = dict.fromkeys(ids, 0.0)
    counted = select(t.sweep_id, t.end, func.count(), func.sum(t.cost_seconds + t.lost_seconds))
    counted = counted.where(*mine).group_by(t.sweep_id, t.end)
    for key, end, count, seconds in session.execute(counted):
        ends[key][None if end is None else TrialEnd(end)] = count
        spent[key] += seconds
    excluded = dict.fromkeys(ids, 0)
    a = AnnotationRow
    flagged = select(a.sweep_id, func.count()).where(a.excluded).group_by(a.sweep_id)
    if sweep_ids is not None:
        flagged = flagged.where(a.sweep_id.in_(sorted(set(sweep_ids))))
    excluded |= dict(session.execute(flagged).all())
    best = _best(session, ids, [t.state == TrialState.COMPLETE.value])
    cut_short = _best(session, ids, [t.end.in_(_CUT_SHORT), t.score.is_not(None)])
    running: dict[int, dict[int, str]] = {key: {} for key in ids}
    waiting: dict[int, list[int]] = {key: [] for key in ids}
    unfinished = select(t.sweep_id, t.number, t.owner, t.state).where(*mine, t.end.is_(None))
    for key, number, owner, state in session.execute(unfinished.order_by(t.sweep_id, t.number)):
        if state == TrialState.WAITING.value:
            waiting[key].append(number)
        else:
            running[key][number] = owner
    return {
        key: SweepSummary(
            ends=ends[key],
            excluded=excluded[key],
            spent_seconds=spent[key],
            best=best.get(key),
            cut_short=cut_short.get(key),
            running=running[key],
            waiting=tuple(waiting[key]),
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
