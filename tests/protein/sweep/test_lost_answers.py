"""Writes whose answer is lost: the database server dies between a commit and its answer. None is made twice."""

import threading
from typing import Any, cast

import pytest
import small_sweep
import store_samples

from protein.errors import StoreUnavailable, TrialLost
from protein.ports import Finished, Store, TrialProgress
from protein.sweep import resuming
from protein.sweep.trials import SweepTrials
from protein.types import (
    Artifact,
    Measurement,
    Outcome,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialRecord,
    TrialState,
)

SUGGESTION = Suggestion(
    params={"train.learning_rate": 0.1}, kind=SuggestionKind.INITIAL_CONFIG, origin="initial config"
)
DEAD_OWNER = store_samples.ended_owner()
WRITES = ("start_trial", "add_measurements", "finish_trial", "release_trial", "take_up_trial", "interrupt_orphans")


class LosesAnswers:
    """A real store. The first answer of each method in `WRITES` is lost after its commit."""

    def __init__(self, store: Store, *, before_the_commit: bool = False) -> None:
        self._store, self._before = store, before_the_commit
        self.lost: list[str] = []

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in WRITES or name in self.lost:
            return method

        def loses_answer(*args: object, **kwargs: object) -> object:
            self.lost.append(name)
            if not self._before:
                method(*args, **kwargs)
            raise StoreUnavailable("the server cannot be used")

        return loses_answer


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("protein.sweep.trials.STORE_RETRY_SECONDS", 0.0)


@pytest.fixture(params=["after the commit", "before the commit"])
def losing(request: pytest.FixtureRequest, store: Store) -> LosesAnswers:
    return LosesAnswers(store, before_the_commit=request.param == "before the commit")


@pytest.fixture
def trials(losing: LosesAnswers) -> SweepTrials:
    """The trials of a new sweep; they can wait."""
    sweep = store_samples.new_sweep(cast(Store, losing))
    trials = SweepTrials(sweep, cast(Store, losing), small_sweep.Lines(), threading.Event())
    trials.take_over(sweep.max_cost_seconds)
    return trials


def start(trials: SweepTrials) -> TrialRecord:
    return trials.start(SUGGESTION, seed=3, suggest_seconds=0.1, provenance=store_samples.PROVENANCE)


def stored(store: Store, trials: SweepTrials) -> list[TrialRecord]:
    return store.trials(trials.sweep.id)


def test_a_trial_whose_start_was_not_answered_is_started_once(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    record = start(trials)
    assert losing.lost == ["interrupt_orphans", "start_trial"]
    [only] = stored(store, trials)
    assert (only.id, only.number, only.params, only.seed) == (record.id, 0, SUGGESTION.params, 3)
    assert trials.running[0].id == only.id
    assert start(trials).number == 1


def test_trials_of_a_dead_process_wait_where_the_answer_was_lost(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    store_samples.start(store, trials.sweep, owner=DEAD_OWNER)
    losing.lost.clear()
    trials.take_over(None)
    assert losing.lost == ["interrupt_orphans"]
    assert trials.waiting == [0]


def test_points_whose_writing_was_not_answered_are_written_once(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    start(trials)
    for points in (store_samples.points(0, 1), store_samples.points(1, 3)):
        losing.lost.clear()
        trials.add(TrialProgress(trial=trials.running[0], measurements=tuple(points)))
        assert losing.lost == ["add_measurements"]
    assert stored(store, trials)[0].curve == tuple(store_samples.points(0, 3))
    assert trials.records[0].curve == tuple(store_samples.points(0, 3))


@pytest.mark.parametrize("artifacts", [(), (Artifact(kind="log", path="/trial.log"),)])
def test_a_trial_whose_end_was_not_answered_has_ended(
    store: Store, losing: LosesAnswers, trials: SweepTrials, artifacts: tuple[Artifact, ...]
) -> None:
    start(trials)
    event = Finished(trial=trials.running[0], outcome=store_samples.complete(2.5), artifacts=artifacts)
    assert trials.finish(event).state is TrialState.COMPLETE
    assert losing.lost == ["interrupt_orphans", "start_trial", "finish_trial"]
    [only] = stored(store, trials)
    assert (only.state, only.score, only.cost_seconds) == (TrialState.COMPLETE, 0.5, 2.5)
    assert only.artifacts == artifacts
    assert not trials.running


def test_a_trial_whose_release_and_taking_up_were_not_answered_goes_on(
    store: Store, losing: LosesAnswers, trials: SweepTrials
) -> None:
    start(trials)
    trials.add(
        TrialProgress(trial=trials.running[0], measurements=(Measurement(steps=4, elapsed_seconds=2.0, score=0.5),))
    )
    outcome = Outcome(end=TrialEnd.INTERRUPTED, reason="preempted: a node died", cost_seconds=5.0)
    assert trials.release(Finished(trial=trials.running[0], outcome=outcome)).state is TrialState.WAITING
    assert trials.waiting == [0]
    assert stored(store, trials)[0].cost_seconds == 5.0

    place = resuming.Place(path=None, steps=4, seconds=2.0)
    record = trials.resume(0, place)
    assert record is not None
    assert trials.running[0].id == record.id
    assert losing.lost == ["interrupt_orphans", *WRITES[:2], "release_trial", "take_up_trial"]
    [only] = stored(store, trials)
    assert only.state is TrialState.RUNNING
    assert (only.steps, only.cost_seconds, only.lost_seconds) == (4, 2.0, 3.0)  # lost once


@pytest.mark.parametrize("change", ["another outcome", "another owner"])
def test_a_trial_that_another_process_has_taken_is_lost(
    store: Store, losing: LosesAnswers, trials: SweepTrials, change: str
) -> None:
    """Repeating a write does not make another process's trial this one's."""
    start(trials)
    losing._before = True  # the first try is not stored, and then another process comes
    trial = trials.running[0]

    store.release_trial(trial, "a node died")
    if change == "another owner":
        store.take_up_trial(trials.sweep.id, 0, "other:1:1.00", 600.0, 0)
    else:
        mine = store.take_up_trial(trials.sweep.id, 0, trial.owner, 600.0, 0)
        store.finish_trial(mine, store_samples.complete(9.0))
    with pytest.raises(TrialLost):
        trials.finish(Finished(trial=trial, outcome=store_samples.complete(2.5)))
