"""What every store must do with a trial, from its start to its end. See `protein.ports.Store`."""

import dataclasses
import itertools
import math
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from patience import PATIENCE_SECONDS
from store_samples import (
    LEASE_SECONDS,
    PROVENANCE,
    complete,
    new_sweep,
    points,
    process,
    start,
)

from protein.errors import StoreError, TrialLost
from protein.ports import Store
from protein.storage import open_store
from protein.types import (
    Artifact,
    Estimate,
    Measurement,
    Outcome,
    Suggestion,
    SuggestionKind,
    Trial,
    TrialEnd,
    TrialState,
)

pytestmark = pytest.mark.usefixtures("warm")

EMPTY = Suggestion(params={}, kind=SuggestionKind.SEARCH, origin="")
NOT_FINITE = [math.nan, math.inf, -math.inf]


def now() -> datetime:
    return datetime.now(UTC)


# Starting trials


def test_numbers_count_up_from_0_in_each_sweep(store: Store) -> None:
    first, second = new_sweep(store, "first"), new_sweep(store, "second")
    for expected in range(3):
        assert start(store, first).number == expected
    assert start(store, second).number == 0
    assert [trial.number for trial in store.trials(first.id)] == [0, 1, 2]
    assert [trial.number for trial in store.trials(second.id)] == [0]


def test_a_number_can_be_claimed_once(store: Store, store_url: str) -> None:
    sweep = new_sweep(store)
    other = open_store(store_url)
    number = start(store, sweep).number + 1
    assert start(store, sweep, "fast", number=number).number == number
    before = store.trials(sweep.id)
    for claim in (number, number + 2):
        with pytest.raises(TrialLost, match=f"trial {claim} of this sweep was started by another process"):
            start(other, sweep, "slow", number=claim)
    assert store.trials(sweep.id) == before
    assert start(other, sweep, "slow", number=number + 1).number == number + 1
    other.close()


def test_a_started_trial_is_stored_with_all_that_is_known(store: Store) -> None:
    sweep, before = new_sweep(store), now()
    estimate = Estimate(value=3.0, low=-1.5, high=1e300)
    cost = Estimate(value=40.0, low=30.0, high=60.0)
    suggestion = Suggestion(
        params={"b": True, "i": 3, "f": 1.0, "s": "ä"},
        kind=SuggestionKind.SEARCH,
        origin="improving the front near 40 s",
        predicted_score=estimate,
        predicted_cost_seconds=cost,
    )
    trial = store.start_trial(
        sweep.id, suggestion, seed=2**62, owner="host:1", lease_seconds=60.0, suggest_seconds=0.5, provenance=PROVENANCE
    )
    assert trial == Trial(
        id=trial.id, sweep_id=sweep.id, number=0, params=suggestion.params, seed=2**62, owner="host:1"
    )
    [record] = store.trials(sweep.id)
    assert (record.id, record.sweep_id, record.number) == (trial.id, sweep.id, 0)
    assert list(record.params.items()) == list(suggestion.params.items())
    assert [type(value) for value in record.params.values()] == [bool, int, float, str]
    assert (record.seed, record.state, record.owner) == (2**62, TrialState.RUNNING, "host:1")
    assert (record.kind, record.origin) == (SuggestionKind.SEARCH, suggestion.origin)
    assert (record.predicted_score, record.predicted_cost_seconds) == (estimate, cost)
    assert (record.suggest_seconds, record.provenance) == (0.5, PROVENANCE)
    assert (record.end, record.score, record.cost_seconds, record.steps, record.reason) == (None, None, 0.0, 0, "")
    assert (record.timings, record.metrics, record.curve, record.artifacts) == ({}, {}, (), ())
    assert record.finished_at is None
    assert record.started_at.utcoffset() == timedelta(0)
    assert abs(record.started_at - before) < timedelta(minutes=1)


@pytest.mark.parametrize("value", [*NOT_FINITE, [1, math.nan], {"a": ["b\0"]}, {1}, "a\0", "\ud800"])
def test_a_parameter_that_is_no_value_is_refused(store: Store, value: Any) -> None:
    sweep = new_sweep(store)
    with pytest.raises(StoreError, match="parameter 'x'"):
        start(store, sweep, params={"x": value})
    assert store.trials(sweep.id) == []


@pytest.mark.parametrize(
    "change",
    [
        {"suggest_seconds": math.nan},
        {"suggest_seconds": -1.0},
        {"lease_seconds": 0.0},
        {"lease_seconds": math.inf},
        {"lease_seconds": 1e12},
        {"seed": 2**63},
        {"owner": "a\0"},
        {"suggestion": dataclasses.replace(EMPTY, predicted_score=Estimate(value=0.0, low=0.0, high=math.inf))},
    ],
    ids=str,
)
def test_a_start_that_cannot_be_stored_is_refused(store: Store, change: dict[str, Any]) -> None:
    sweep = new_sweep(store)
    arguments: dict[str, Any] = {
        "suggestion": EMPTY,
        "seed": 0,
        "owner": "me",
        "lease_seconds": 1.0,
        "suggest_seconds": 0.0,
        "provenance": PROVENANCE,
    }
    with pytest.raises(StoreError):
        store.start_trial(sweep.id, **(arguments | change))
    assert store.trials(sweep.id) == []


def test_processes_that_start_trials_at_once_share_numbers_without_gaps(store: Store, store_url: str) -> None:
    sweep, count = new_sweep(store), 10
    writers = [process("trials", store_url, sweep, f"w{i}", count) for i in range(3)]
    printed = [[int(line) for line in writer.communicate(timeout=PATIENCE_SECONDS)[0].split()] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 3
    assert sorted(itertools.chain(*printed)) == list(range(3 * count))
    records = store.trials(sweep.id)
    assert [record.number for record in records] == list(range(3 * count))
    assert len({record.id for record in records}) == 3 * count
    for owner, numbers in zip(("w0", "w1", "w2"), printed, strict=True):
        assert [record.number for record in records if record.owner == owner] == numbers
        assert all(records[number].params == {"owner": owner} for number in numbers)
    assert all(record.state is TrialState.COMPLETE and record.curve == tuple(points(0, 3)) for record in records)


# Curves


def test_a_curve_keeps_the_order_of_its_writing(store: Store) -> None:
    sweep = new_sweep(store)
    first, second = start(store, sweep), start(store, sweep)
    unordered = [
        Measurement(steps=9, elapsed_seconds=0.5, score=None),
        Measurement(steps=2, elapsed_seconds=0.25, score=-1.0),
    ]
    store.add_measurements(first, points(0, 5), LEASE_SECONDS)
    store.add_measurements(second, unordered, LEASE_SECONDS)
    store.add_measurements(first, [], LEASE_SECONDS)
    store.add_measurements(first, points(5, 12), LEASE_SECONDS)
    records = store.trials(sweep.id)
    assert [record.curve for record in records] == [tuple(points(0, 12)), tuple(unordered)]


def test_a_running_trial_costs_what_its_last_measurement_says(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    for last in (3, 9):
        store.add_measurements(trial, points(last - 2, last), LEASE_SECONDS)
        store.add_measurements(trial, [], LEASE_SECONDS)
        [record] = store.trials(sweep.id)
        assert (record.cost_seconds, record.steps, record.score) == ((last - 1) / 8, last - 1, None)


@pytest.mark.parametrize("value", [*NOT_FINITE, "1", None])
def test_a_bad_metric_is_refused_with_its_whole_batch(store: Store, value: Any) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    batch = [*points(0, 3), Measurement(steps=3, elapsed_seconds=3.0, score=0.0, metrics={"loss": value})]
    with pytest.raises(StoreError, match="metric 'loss'"):
        store.add_measurements(trial, batch, LEASE_SECONDS)
    [record] = store.trials(sweep.id)
    assert (record.curve, record.cost_seconds) == ((), 0.0)


def test_a_broken_process_may_name_its_metrics_as_it_likes(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    metrics = {"": 1.0, "\0 \ud800 \U0001f4a5": 2.0, "a'b\"c\\": 3.0}
    point = Measurement(steps=1, elapsed_seconds=1.0, score=None, metrics=metrics)
    store.add_measurements(trial, [point], LEASE_SECONDS)
    store.finish_trial(trial, dataclasses.replace(complete(), metrics=metrics))
    [record] = store.trials(sweep.id)
    named = {"": 1.0, "\ufffd \ufffd\ufffd\ufffd \U0001f4a5": 2.0, "a'b\"c\\": 3.0}
    assert record.curve == (dataclasses.replace(point, metrics=named),)
    assert record.metrics == named
    for name, value in named.items():
        assert store.curves(sweep.id, [0], 10, metric=name)[0].value.tolist() == [value]


def test_steps_beyond_64_bits_are_refused(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    with pytest.raises(StoreError, match="steps"):
        store.add_measurements(trial, [Measurement(steps=2**63, elapsed_seconds=1.0, score=0.0)], LEASE_SECONDS)
    store.add_measurements(trial, [Measurement(steps=2**63 - 1, elapsed_seconds=1.0, score=0.0)], LEASE_SECONDS)
    assert store.trials(sweep.id)[0].steps == 2**63 - 1


def test_long_curves_come_back_whole(store: Store) -> None:
    sweep = new_sweep(store)
    curve = points(0, 1000)
    for _ in range(20):
        trial = start(store, sweep)
        store.add_measurements(trial, curve, LEASE_SECONDS)
        store.finish_trial(trial, complete())
    records = store.trials(sweep.id)
    assert len(records) == 20
    assert all(record.curve == tuple(curve) for record in records)
    assert store.trials(sweep.id) == records


# Finishing


OUTCOMES = [
    Outcome(
        end=TrialEnd.COMPLETE,
        score=-20.5,
        cost_seconds=12.25,
        steps=10**12,
        timings={"startup": 1.5, "evaluation": 0.0},
        metrics={"train_score": -3.0, "episodes": 100},
    ),
    Outcome(end=TrialEnd.CAPPED, score=1.0, cost_seconds=0.0, steps=0, reason="stopped at its cost limit"),
    Outcome(end=TrialEnd.STOPPED_EARLY, score=None, cost_seconds=1.0, steps=7, reason="its curve is low"),
    Outcome(end=TrialEnd.DIVERGED, score=None, cost_seconds=3.5, steps=7, reason="diverged: loss is nan at step 7"),
]


@pytest.mark.parametrize("outcome", OUTCOMES, ids=["complete", "pruned", "pruned without score", "failed"])
def test_an_outcome_is_stored_as_it_is(store: Store, outcome: Outcome) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    store.add_measurements(trial, points(0, 2), LEASE_SECONDS)
    files = [
        Artifact(kind="log", path="/runs/ä b/1.log"),
        Artifact(kind="checkpoint", path="/a"),
        Artifact(kind="log", path="/2"),
    ]
    store.finish_trial(trial, outcome, files)
    [record] = store.trials(sweep.id)
    for field in dataclasses.fields(outcome):
        assert getattr(record, field.name) == getattr(outcome, field.name), field.name
    assert record.artifacts == tuple(files)
    assert record.artifact("log") == "/2"
    assert record.curve == tuple(points(0, 2))
    assert record.finished_at is not None
    assert record.finished_at >= record.started_at
    assert record.observation().cost_seconds == outcome.cost_seconds


@pytest.mark.parametrize(
    "change",
    [
        {"score": None},
        {"score": math.nan},
        {"score": math.inf},
        {"cost_seconds": math.nan},
        {"cost_seconds": -0.5},
        {"steps": -1},
        {"steps": 10**400},
        {"metrics": {"loss": math.nan}},
        {"metrics": {"loss": 10**400}},
        {"timings": {"startup": math.inf}},
        {"end": TrialEnd.FAILED, "reason": "it has a score"},
        {"end": TrialEnd.CRASHED, "score": None, "reason": ""},
    ],
    ids=lambda change: ",".join(f"{name}={str(value)[:20]}" for name, value in change.items()),
)
def test_an_outcome_that_makes_no_sense_is_refused(store: Store, change: dict[str, Any]) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep)
    before = store.trials(sweep.id)
    with pytest.raises(StoreError) as caught:
        store.finish_trial(trial, dataclasses.replace(complete(), **change), [Artifact(kind="log", path="/1")])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300
    assert store.trials(sweep.id) == before


def test_a_broken_process_may_say_anything_as_its_reason(store: Store) -> None:
    sweep = new_sweep(store)
    reason = "crashed: \0 \ud800 Grüße \U0001f4a5\nsecond line" + "x" * 10_000
    store.finish_trial(start(store, sweep), Outcome(end=TrialEnd.CRASHED, reason=reason))
    stored = store.trials(sweep.id)[0].reason
    assert stored.startswith("crashed: \ufffd \ufffd")
    assert stored.endswith(" Grüße \U0001f4a5\nsecond line" + "x" * 10_000)


def test_a_finished_trial_never_changes(store: Store) -> None:
    sweep = new_sweep(store)
    for outcome in OUTCOMES:
        trial = start(store, sweep)
        store.finish_trial(trial, outcome)
        before = store.trials(sweep.id)
        with pytest.raises(TrialLost, match=rf"trial {trial.number} is finished \({outcome.state}\)"):
            store.add_measurements(trial, points(0, 1), LEASE_SECONDS)
        with pytest.raises(TrialLost, match=rf"trial {trial.number} is finished \({outcome.state}\)"):
            store.finish_trial(trial, complete(), [Artifact(kind="log", path="/1")])
        assert store.interrupt_orphans(sweep.id, ["me"]) == []
        assert store.trials(sweep.id) == before


def test_only_the_owner_writes_to_a_trial(store: Store) -> None:
    sweep = new_sweep(store)
    trial = start(store, sweep, "me")
    before = store.trials(sweep.id)
    thief = dataclasses.replace(trial, owner="thief")
    with pytest.raises(TrialLost, match="trial 0 belongs to 'me' and not to 'thief'"):
        store.add_measurements(thief, points(0, 1), LEASE_SECONDS)
    with pytest.raises(TrialLost, match="trial 0 belongs to 'me' and not to 'thief'"):
        store.finish_trial(thief, complete())
    with pytest.raises(TrialLost, match=r"id 12345\) is not in"):
        store.finish_trial(dataclasses.replace(trial, id=12345), complete())
    assert store.trials(sweep.id) == before
    store.finish_trial(trial, complete())


# Round trips
