"""Reads learning curves thinned to a number of points, by the database itself: long curves never leave it whole.

A curve of more points than asked for is cut into stretches of equal length, and of each the points with its lowest and
its highest value are kept: what is drawn of them looks like the whole curve.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
from sqlalchemy import ColumnElement, and_, case, func, or_, select
from sqlalchemy.orm import Session

from protein.columns import MAX_CURVE_POINTS, MAX_CURVES, CurveColumns
from protein.errors import StoreError

from . import rows, values
from .tables import MeasurementRow, TrialRow

_LEAST_POINTS = 4  # the two ends, and the extremes of one stretch


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
    rows.check_curve(steps, seconds, heights, [{}] * len(points), f"trial {number}")  # a damaged file holds anything
    return CurveColumns(
        number=number,
        num_points=num_points,
        steps=np.array(steps, dtype=np.int64),
        elapsed_seconds=np.array(seconds, dtype=np.float64),
        value=np.array(heights, dtype=np.float64),
    )
