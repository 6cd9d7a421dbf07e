"""What every store must do with the curves of many trials, and with sums of them. See `protein.ports.Store`."""

import dataclasses
import math
from collections.abc import Collection

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_samples import LEASE_SECONDS, filled_sweep, new_sweep, points, start

from protein.columns import MAX_CURVE_POINTS, MAX_CURVES, dots
from protein.errors import StoreError
from protein.ports import Store
from protein.types import (
    Measurement,
    Outcome,
    SuggestionKind,
    TrialEnd,
    TrialState,
)
from protein.view import data

# Columns


# Curves


def test_short_curves_come_whole_and_those_without_a_score_empty(store: Store) -> None:
    sweep = new_sweep(store)
    for curve in (points(0, 20), [], [Measurement(steps=1, elapsed_seconds=0.5, score=None)], points(5, 6)):
        store.add_measurements(start(store, sweep), curve, LEASE_SECONDS)
    found = store.curves(sweep.id, [3, 0, 1, 2, 9], 20)
    assert list(found) == [0, 1, 2, 3]
    assert [curve.num_points for curve in found.values()] == [20, 0, 1, 1]
    assert found[0].steps.tolist() == [p.steps for p in points(0, 20)]
    assert found[0].elapsed_seconds.tolist() == [p.elapsed_seconds for p in points(0, 20)]
    assert found[0].value.tolist() == [p.score for p in points(0, 20)]
    assert [len(curve.steps) for curve in found.values()] == [20, 0, 0, 1]


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scores=st.lists(st.none() | st.floats(-1e6, 1e6), min_size=1, max_size=120),
    max_points=st.integers(4, 40),
    other=st.integers(0, 60),
)
def test_a_thinned_curve_keeps_its_ends_and_extremes(
    store: Store, scores: list[float | None], max_points: int, other: int
) -> None:
    sweep = store.find_sweep("s") or new_sweep(store)
    measured = [Measurement(steps=i, elapsed_seconds=i / 2, score=score) for i, score in enumerate(scores)]
    numbers = []
    for curve in (measured, points(0, other)):
        trial = start(store, sweep)
        store.add_measurements(trial, curve, LEASE_SECONDS)
        numbers.append(trial.number)
    found = store.curves(sweep.id, numbers, max_points)
    assert [curve.num_points for curve in found.values()] == [len(scores), other]
    thin = found[numbers[0]]
    kept = list(zip(thin.steps.tolist(), thin.elapsed_seconds.tolist(), thin.value.tolist(), strict=True))
    whole = [(i, i / 2, score) for i, score in enumerate(scores) if score is not None]
    assert len(kept) <= max_points
    assert set(kept) <= set(whole) and kept == sorted(kept)
    if len(scores) <= max_points:
        assert kept == whole
    if whole:
        assert {max(score for *_, score in whole), min(score for *_, score in whole)} <= {score for *_, score in kept}
    for end in (0, len(scores) - 1):
        score = scores[end]
        assert score is None or (end, end / 2, score) in kept
    stretch = max(1, math.ceil(len(scores) / ((max_points - 2) // 2)))
    if len(scores) > max_points:
        for first in range(0, len(scores), stretch):  # each stretch keeps its extremes
            part = [score for score in scores[first : first + stretch] if score is not None]
            shown = [score for step, _, score in kept if first <= step < first + stretch]
            assert not part or {min(part), max(part)} <= set(shown)


def test_a_curve_of_a_metric(store: Store) -> None:
    sweep = new_sweep(store)
    metrics: list[dict[str, float]] = [{"value.loss é\"'": i / 3, "n": i} if i % 2 else {"n": i} for i in range(9)]
    curve = [Measurement(steps=i, elapsed_seconds=i, score=None, metrics=m) for i, m in enumerate(metrics)]
    store.add_measurements(start(store, sweep), curve, LEASE_SECONDS)
    found = store.curves(sweep.id, [0], 50, metric="value.loss é\"'")[0]
    assert (found.steps.tolist(), found.value.tolist()) == ([1, 3, 5, 7], [1 / 3, 1.0, 5 / 3, 7 / 3])
    assert store.curves(sweep.id, [0], 4, metric="n")[0].value.tolist() == [0.0, 8.0]
    assert len(store.curves(sweep.id, [0], 50, metric="none such")[0].steps) == 0
    with pytest.raises(StoreError, match="metric"):
        store.curves(sweep.id, [0], 50, metric="a\0b")


@pytest.mark.parametrize(
    ("numbers", "max_points", "message"),
    [
        (range(MAX_CURVES + 1), 100, "too many at once"),
        ([0], 3, "4 to"),
        ([0], MAX_CURVE_POINTS + 1, f"to {MAX_CURVE_POINTS} points"),
    ],
)
def test_curves_are_bounded(store: Store, numbers: Collection[int], max_points: int, message: str) -> None:
    sweep = new_sweep(store)
    with pytest.raises(StoreError, match=message):
        store.curves(sweep.id, numbers, max_points)


# Summaries


def test_a_summary_counts_what_the_trials_say(store: Store) -> None:
    empty, sweep = new_sweep(store, "empty"), filled_sweep(store)
    summaries = store.summaries()
    assert list(summaries) == [empty.id, sweep.id]
    assert (summaries[empty.id].ends, summaries[empty.id].spent_seconds, summaries[empty.id].best) == ({}, 0.0, None)
    found, records = summaries[sweep.id], store.trials(sweep.id)
    ends: dict[TrialEnd | None, int] = dict.fromkeys(TrialEnd, 1)
    assert found.ends == ends | {None: 2}
    assert found.spent_seconds == pytest.approx(sum(record.cost_seconds for record in records))
    assert found.running == {record.number: record.owner for record in records if record.end is None}
    assert (found.best, found.cut_short, found.excluded) == (0, 2, 0)
    assert found.best_score == records[0].score and summaries[empty.id].best_score is None
    alone = store.summaries([sweep.id])[sweep.id]  # a server may add up costs in another order
    assert dataclasses.replace(alone, spent_seconds=found.spent_seconds) == found
    assert store.summaries([]) == store.summaries([99]) == {}


def test_confirmations_are_counted_apart(store: Store) -> None:
    """Every way to count them says the same: in the database, from records, from columns."""
    sweep = new_sweep(store)
    runs = [
        (SuggestionKind.SEARCH, TrialEnd.COMPLETE, 4.0),
        (SuggestionKind.REEVALUATION, TrialEnd.COMPLETE, 2.0),
        (SuggestionKind.SEARCH, TrialEnd.CAPPED, 8.0),
        (SuggestionKind.REEVALUATION, TrialEnd.INTERRUPTED, 0.5),
        (SuggestionKind.REEVALUATION, TrialEnd.OUT_OF_BUDGET, 1.0),
        (SuggestionKind.REEVALUATION, None, 0.0),
        (SuggestionKind.SEARCH, None, 0.0),
    ]
    for kind, end, cost in runs:
        trial = start(store, sweep, kind=kind)
        if end is not None:
            score = None if end.state is TrialState.FAILED else 1.0
            store.finish_trial(trial, Outcome(end=end, score=score, cost_seconds=cost, reason="why"))
    found = store.summaries()[sweep.id]
    assert found.ends == {TrialEnd.COMPLETE: 1, TrialEnd.CAPPED: 1, None: 2}
    assert (found.spent_seconds, found.confirmations, found.confirming_seconds) == (12.0, 3, 3.5)
    assert found.cut_short == 2  # no larger budget would help the confirmation that was cut
    columns, records = store.columns(sweep.id), store.trials(sweep.id)
    far = [data.Progress.of(known, best=None) for known in (dots(columns), records)]
    assert far[0] == far[1] == data.Progress.of_columns(columns, best=None)
    assert far[0].counts == data.counts_of(found.ends, 0) == data.counts(records)
    assert (far[0].spent_seconds, far[0].confirmed()) == (12.0, "; 3 confirmations took 3.50s")


def test_the_best_of_equal_trials_is_the_cheapest_that_is_not_excluded(store: Store) -> None:
    sweep = new_sweep(store)
    for score, cost in ((1.0, 1.0), (2.0, 9.0), (2.0, 5.0), (2.0, 5.0), (3.0, 1.0)):
        store.finish_trial(start(store, sweep), Outcome(end=TrialEnd.COMPLETE, score=score, cost_seconds=cost))
    for number, best in ((None, 4), (4, 2), (2, 3), (3, 1), (1, 0), (0, None)):
        if number is not None:
            store.annotate(sweep.id, number, excluded=True)
        assert store.summaries()[sweep.id].best == best
    found = store.summaries()[sweep.id]
    assert (found.excluded, found.ends, found.spent_seconds) == (5, {TrialEnd.COMPLETE: 5}, 21.0)
