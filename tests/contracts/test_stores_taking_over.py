"""What every store must do with trials whose process is gone, that wait, or that are cancelled."""

import dataclasses
import time
from collections.abc import Callable

import pytest
from store_samples import (
    LEASE_SECONDS,
    PROVENANCE,
    complete,
    new_sweep,
    points,
    start,
)

from protein.errors import StoreError, TrialLost
from protein.ports import Store
from protein.types import (
    Params,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
)

# Orphans


def test_the_trials_of_dead_owners_are_interrupted_once(store: Store) -> None:
    sweep, other = new_sweep(store), new_sweep(store, "other")
    dead, alive, finished = start(store, sweep, "dead"), start(store, sweep, "alive"), start(store, sweep, "dead")
    fresh, elsewhere = start(store, sweep, "dead too"), start(store, other, "dead")
    store.add_measurements(dead, points(0, 9), LEASE_SECONDS)
    store.add_measurements(alive, points(0, 3), LEASE_SECONDS)
    store.finish_trial(finished, complete())
    before = store.trials(sweep.id)

    assert store.interrupt_orphans(sweep.id, ["dead", "dead too", "nobody"]) == [dead.number, fresh.number]
    records = store.trials(sweep.id)
    for record, cost_seconds, steps in ((records[dead.number], 1.0, 8), (records[fresh.number], 0.0, 0)):
        assert (record.state, record.end, record.score) == (TrialState.FAILED, TrialEnd.INTERRUPTED, None)
        assert record.reason == "interrupted"
        assert (record.cost_seconds, record.steps) == (cost_seconds, steps)
        assert record.finished_at is not None
    assert records[dead.number].curve == tuple(points(0, 9))
    assert records[alive.number] == before[alive.number]
    assert records[finished.number] == before[finished.number]
    assert store.trials(other.id)[elsewhere.number].state is TrialState.RUNNING

    assert store.interrupt_orphans(sweep.id, ["dead", "dead too", "nobody"]) == []
    assert store.trials(sweep.id) == records
    with pytest.raises(TrialLost):
        store.finish_trial(dead, complete())


def test_a_trial_whose_lease_has_ended_is_interrupted(store: Store) -> None:
    sweep = new_sweep(store)
    lapsed, kept, renewed = (
        start(store, sweep, lease_seconds=0.05),
        start(store, sweep),
        start(store, sweep, lease_seconds=0.05),
    )
    store.add_measurements(renewed, [], LEASE_SECONDS)
    time.sleep(0.1)
    assert store.interrupt_orphans(sweep.id, []) == [lapsed.number]
    assert [record.state for record in store.trials(sweep.id)] == [
        TrialState.FAILED,
        TrialState.RUNNING,
        TrialState.RUNNING,
    ]
    store.finish_trial(kept, complete())


def test_a_lapsed_lease_that_nobody_took_is_the_owners_still(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, lease_seconds=0.01)
    time.sleep(0.05)
    store.add_measurements(trial, points(0, 1), LEASE_SECONDS)
    assert store.interrupt_orphans(sweep.id, []) == []
    store.finish_trial(trial, complete())


# Round trips


# Waiting trials


def test_a_trial_that_is_released_waits_without_an_owner_and_is_taken_up_again(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "first")
    store.add_measurements(trial, points(0, 9), LEASE_SECONDS)
    before = store.trial(sweep.id, trial.number)
    store.release_trial(trial, "preempted: the node is gone")
    waits = store.trial(sweep.id, trial.number)
    reason = "preempted: the node is gone"
    assert waits == dataclasses.replace(before, state=TrialState.WAITING, owner="", reason=reason)
    assert not waits.state.finished

    again = store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=100)
    assert again == dataclasses.replace(trial, owner="second")
    assert store.trial(sweep.id, trial.number) == dataclasses.replace(before, owner="second")
    store.add_measurements(again, points(9, 12), LEASE_SECONDS)
    store.finish_trial(again, complete(cost_seconds=1.5))
    finished = store.trial(sweep.id, trial.number)
    assert finished.curve == tuple(points(0, 12))
    assert (finished.cost_seconds, finished.lost_seconds) == (1.5, 0.0)


def test_points_beyond_the_checkpoint_are_dropped_and_their_cost_is_lost(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "first")
    store.add_measurements(trial, points(0, 9), LEASE_SECONDS)  # the last at step 8 and 1 s
    store.release_trial(trial, "interrupted")
    trial = store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=4)
    record = store.trial(sweep.id, trial.number)
    assert record.curve == tuple(points(0, 5))
    assert (record.steps, record.cost_seconds, record.lost_seconds) == (4, 0.5, 0.5)
    store.add_measurements(trial, points(5, 7), LEASE_SECONDS)
    store.release_trial(trial, "interrupted")
    trial = store.take_up_trial(sweep.id, trial.number, "third", LEASE_SECONDS, from_steps=5, from_seconds=0.7)
    record = store.trial(sweep.id, trial.number)
    assert record.curve == tuple(points(0, 6))
    assert (record.steps, record.cost_seconds) == (5, 0.7)
    assert record.lost_seconds == pytest.approx(0.5 + 6 / 8 - 0.7)
    assert store.summaries([sweep.id])[sweep.id].spent_seconds == pytest.approx(0.7 + 0.55)
    store.finish_trial(trial, complete(cost_seconds=3.0))
    record = store.trial(sweep.id, trial.number)
    assert record.cost_seconds == 3.0
    assert record.lost_seconds == pytest.approx(0.55)


def test_a_silent_trials_lease_is_renewed_with_what_it_has_cost(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "first", lease_seconds=0.05)
    store.add_measurements(trial, points(0, 5), 0.05)  # the last at step 4 and .5 s
    store.renew_lease(trial, LEASE_SECONDS, 3.5)
    time.sleep(0.1)
    assert store.live_trials(sweep.id) == {trial.number: "first"}
    record = store.trial(sweep.id, trial.number)
    assert (record.cost_seconds, record.steps, record.curve) == (3.5, 4, tuple(points(0, 5)))
    assert store.interrupt_orphans(sweep.id, ["first"], [trial.number]) == [trial.number]
    assert store.trial(sweep.id, trial.number).cost_seconds == 3.5
    with pytest.raises(TrialLost):
        store.renew_lease(trial, LEASE_SECONDS, 9.0)
    assert store.trial(sweep.id, trial.number).cost_seconds == 3.5
    store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=4)
    assert store.trial(sweep.id, trial.number).lost_seconds == 3.0


def test_a_trial_that_starts_from_nothing_again_loses_all(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "first")
    store.add_measurements(trial, points(1, 9), LEASE_SECONDS)
    store.release_trial(trial, "interrupted")
    store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=0)
    record = store.trial(sweep.id, trial.number)
    assert (record.curve, record.steps, record.cost_seconds, record.lost_seconds) == ((), 0, 0.0, 1.0)


def test_a_waiting_trial_is_taken_up_by_one_process_only(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "first")
    with pytest.raises(TrialLost, match="does not wait any more"):
        store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=0)
    store.add_measurements(trial, points(0, 3), LEASE_SECONDS)
    store.release_trial(trial, "interrupted")
    late_writes: list[Callable[[], None]] = [
        lambda: store.add_measurements(trial, points(3, 4), LEASE_SECONDS),
        lambda: store.finish_trial(trial, complete()),
        lambda: store.release_trial(trial, "interrupted"),
    ]
    for late in late_writes:
        with pytest.raises(TrialLost, match="waits to be taken up again"):
            late()
    second = store.take_up_trial(sweep.id, trial.number, "second", LEASE_SECONDS, from_steps=2)
    before = store.trial(sweep.id, trial.number)
    with pytest.raises(TrialLost, match="does not wait any more"):
        store.take_up_trial(sweep.id, trial.number, "third", LEASE_SECONDS, from_steps=2)
    for late in late_writes:
        with pytest.raises(TrialLost, match="belongs to 'second' and not to 'first'"):
            late()
    assert store.trial(sweep.id, trial.number) == before
    store.finish_trial(second, complete())
    with pytest.raises(TrialLost, match="does not wait any more"):
        store.take_up_trial(sweep.id, trial.number, "third", LEASE_SECONDS, from_steps=2)


def test_orphans_that_left_something_wait_and_the_others_end(store: Store) -> None:
    sweep = new_sweep(store)
    left, nothing, alive, cancelled = (start(store, sweep, owner) for owner in ("dead", "dead", "alive", "dead"))
    store.add_measurements(left, points(0, 3), LEASE_SECONDS)
    store.cancel(sweep.id, [cancelled.number])
    waiting = [left.number, alive.number, cancelled.number, 99]
    found = store.interrupt_orphans(sweep.id, ["dead"], waiting)
    assert found == [left.number, nothing.number, cancelled.number]
    records = store.trials(sweep.id)
    assert [record.state for record in records] == [
        TrialState.WAITING,
        TrialState.FAILED,
        TrialState.RUNNING,
        TrialState.FAILED,
    ]
    assert [record.reason for record in records] == ["interrupted", "interrupted", "", "cancelled by hand"]
    assert (records[0].cost_seconds, records[0].owner) == (0.25, "")
    summary = store.summaries([sweep.id])[sweep.id]
    assert (dict(summary.running), summary.waiting) == ({alive.number: "alive"}, (left.number,))
    assert store.interrupt_orphans(sweep.id, ["dead", ""], waiting) == []  # a trial that waits is nobody's orphan


# Cancelled trials


def test_cancelling_asks_the_owner_and_ends_what_waits(store: Store) -> None:
    sweep = new_sweep(store)
    running, waits, other = start(store, sweep), start(store, sweep), start(store, sweep)
    store.add_measurements(waits, points(0, 3), LEASE_SECONDS)
    store.release_trial(waits, "interrupted")
    assert store.wishes(sweep.id).cancelled == frozenset()
    store.cancel(sweep.id, [running.number, waits.number])
    assert store.wishes(sweep.id).cancelled == {running.number, waits.number}
    records = store.trials(sweep.id)
    assert [record.cancel_requested for record in records] == [True, True, False]
    assert [record.state for record in records] == [TrialState.RUNNING, TrialState.FAILED, TrialState.RUNNING]
    assert (records[1].end, records[1].reason) == (TrialEnd.INTERRUPTED, "cancelled by hand")
    assert records[1].cost_seconds == 0.25 and records[1].finished_at is not None
    with pytest.raises(TrialLost, match="does not wait any more"):
        store.take_up_trial(sweep.id, waits.number, "second", LEASE_SECONDS, from_steps=2)
    store.release_trial(running, "preempted: the node is gone")  # by an owner that does not know it yet
    record = store.trial(sweep.id, running.number)
    assert (record.end, record.reason) == (TrialEnd.INTERRUPTED, "cancelled by hand")
    store.finish_trial(other, complete())


@pytest.mark.parametrize(
    ("numbers", "message"), [([0, 7], "no trial 7"), ([0, -1], "no trial -1"), ([0, 1], "trial 1 has finished")]
)
def test_cancelling_what_is_not_there_or_has_finished_changes_nothing(
    store: Store, numbers: list[int], message: str
) -> None:
    sweep = new_sweep(store)
    start(store, sweep)
    store.finish_trial(start(store, sweep), complete())
    before = store.trials(sweep.id)
    with pytest.raises(StoreError, match=message):
        store.cancel(sweep.id, numbers)
    assert store.trials(sweep.id) == before
    assert store.wishes(sweep.id).cancelled == frozenset()


# Why a sweep ended, and machines


def test_the_owners_of_running_trials_are_told_while_their_lease_lasts(store: Store) -> None:
    sweep, other = new_sweep(store), new_sweep(store, "other")
    for owner, seconds in (("one", 60.0), ("two", 60.0), ("three", 0.001), ("four", 60.0), ("five", 60.0)):
        trial = start(store, sweep, owner, lease_seconds=seconds)
        if owner == "four":
            store.finish_trial(trial, complete())
        if owner == "five":
            store.release_trial(trial, "it waits")
    time.sleep(0.05)
    assert store.live_trials(sweep.id) == {0: "one", 1: "two"}
    assert store.live_trials(other.id) == {}


# Trials that people have queued


def queued(params: Params) -> tuple[Suggestion, int]:
    return Suggestion(params=params, kind=SuggestionKind.BY_HAND, origin="by hand"), 5


def test_a_queued_trial_waits_for_one_process_that_starts_it(store: Store) -> None:
    sweep = new_sweep(store)
    store.finish_trial(start(store, sweep), complete())
    store.queue_trials(sweep.id, [queued({"lr": 0.1}), queued({"lr": 0.2})], number=1, provenance=PROVENANCE)
    assert store.wishes(sweep.id).num_trials == 3
    _, first, _ = before = store.trials(sweep.id)
    assert [(one.number, one.state, one.is_queued, one.owner, one.seed) for one in before[1:]] == [
        (1, TrialState.WAITING, True, "", 5),
        (2, TrialState.WAITING, True, "", 5),
    ]
    assert (first.params, first.kind, first.reason) == ({"lr": 0.1}, SuggestionKind.BY_HAND, "queued by hand")
    known = store.summaries([sweep.id])[sweep.id]
    assert (known.waiting, known.queued) == ((1, 2), (1, 2))
    for number in (2, 4):  # the claim of a process that knows fewer trials, or more
        with pytest.raises(TrialLost):
            store.queue_trials(sweep.id, [queued({"lr": 0.3})], number=number, provenance=PROVENANCE)
    assert store.trials(sweep.id) == before
    assert store.interrupt_orphans(sweep.id, [""]) == [], "they run nowhere"

    here = dataclasses.replace(PROVENANCE, machine="another host")
    taken = store.take_up_trial(sweep.id, 1, "me", LEASE_SECONDS, 0, 0.0, here)
    assert (taken.params, taken.seed, taken.owner) == ({"lr": 0.1}, 5, "me")
    with pytest.raises(TrialLost):
        store.take_up_trial(sweep.id, 1, "other", LEASE_SECONDS, 0, 0.0, here)
    record = store.trial(sweep.id, 1)
    assert (record.provenance, record.is_queued, record.lost_seconds) == (here, False, 0.0)
    assert record.started_at >= first.started_at
    store.cancel(sweep.id, [2])
    assert store.trial(sweep.id, 2).end is TrialEnd.INTERRUPTED
    assert store.summaries([sweep.id])[sweep.id].queued == ()
    store.release_trial(taken, "interrupted", 1.0)
    again = store.trial(sweep.id, 1)
    assert (again.state, again.is_queued) == (TrialState.WAITING, False), "it has started before"
    assert start(store, sweep).number == 3
