"""What every store must do. See `protein.ports.Store`."""

import dataclasses
import itertools
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from patience import PATIENCE_SECONDS
from storing import (
    LEASE_SECONDS,
    PROVENANCE,
    complete,
    new_sweep,
    points,
    process,
    start,
    sweep_spec,
)

from protein.errors import StoreError, TrialLost
from protein.ports import Store
from protein.storage import open_store
from protein.types import (
    Artifact,
    Estimate,
    Machine,
    Measurement,
    Outcome,
    Provenance,
    Suggestion,
    SuggestionKind,
    Trial,
    TrialEnd,
    TrialState,
)

EMPTY = Suggestion(params={}, kind=SuggestionKind.SEARCH, origin="")
NOT_FINITE = [math.nan, math.inf, -math.inf]


def now() -> datetime:
    return datetime.now(UTC)


# Sweeps


def test_a_sweep_is_found_as_it_was_created(store: Store) -> None:
    before = now()
    sweep = store.create_sweep(sweep_spec("größe"), 600.0)
    assert sweep.spec == sweep_spec("größe")
    assert sweep.max_cost_seconds == 600.0
    assert sweep.created_at.utcoffset() == timedelta(0)
    assert abs(sweep.created_at - before) < timedelta(minutes=1)
    assert store.find_sweep("größe") == sweep
    assert store.find_sweep("grösse") is None


def test_space_config_and_warm_start_keep_order_types_and_every_digit(store: Store) -> None:
    values = {
        "z": 0.1 + 0.2,
        "a": 1,
        "b": 1.0,
        "c": 5e-324,
        "d": 1.7976931348623157e308,
        "e": 10**30,
        "f": [True, None],
    }
    store.create_sweep(
        dataclasses.replace(sweep_spec(), space=values, config={"train": values}, warm_start=values), None
    )
    sweep = store.find_sweep("s")
    assert sweep is not None
    for stored in (sweep.spec.space, sweep.spec.config["train"], sweep.spec.warm_start):
        assert list(stored.items()) == list(values.items())
        assert [type(value) for value in stored.values()] == [type(value) for value in values.values()]


@pytest.mark.parametrize("value", [*NOT_FINITE, {1, 2}, b"bytes"])
@pytest.mark.parametrize("part", ["space", "config", "warm_start"])
def test_a_sweep_that_is_not_plain_json_is_refused(store: Store, part: str, value: Any) -> None:
    changed: dict[str, Any] = {part: {"train": {"x": [value]}}}
    spec = dataclasses.replace(sweep_spec(), **changed)
    with pytest.raises(StoreError, match=f"{part} cannot be stored"):
        store.create_sweep(spec, None)
    assert store.list_sweeps() == []


def test_a_sweep_without_a_warm_start_has_an_empty_one(store: Store) -> None:
    store.create_sweep(dataclasses.replace(sweep_spec(), warm_start={}), None)
    sweep = store.find_sweep("s")
    assert sweep is not None and sweep.spec.warm_start == {}


def test_sweeps_are_listed_oldest_first(store: Store) -> None:
    assert store.list_sweeps() == []
    sweeps = [new_sweep(store, name) for name in ("b", "c", "a")]
    assert store.list_sweeps() == sweeps
    assert len({sweep.id for sweep in sweeps}) == 3


def test_a_taken_name_is_refused_and_nothing_changes(store: Store) -> None:
    sweep = new_sweep(store)
    with pytest.raises(StoreError, match=r"sweep 's' exists already in .*another name"):
        store.create_sweep(dataclasses.replace(sweep_spec(), seed=99), None)
    assert store.list_sweeps() == [sweep]


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b", "\ud800"], ids=["empty", "long", "NUL", "surrogate"])
def test_an_impossible_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(StoreError, match="sweep name"):
        store.create_sweep(sweep_spec(name), None)
    assert store.list_sweeps() == []


def test_the_longest_name_fits(store: Store) -> None:
    assert store.find_sweep(new_sweep(store, "\U0001f3d3" * 200).spec.name) is not None


def test_the_config_may_be_replaced(store: Store) -> None:
    sweep, other = new_sweep(store), new_sweep(store, "other")
    config = {"command": {"text": "python train.py"}}
    store.set_config(sweep.id, config)
    assert store.find_sweep("s") == dataclasses.replace(sweep, spec=dataclasses.replace(sweep.spec, config=config))
    assert store.find_sweep("other") == other


def test_the_budget_may_change(store: Store) -> None:
    sweep = new_sweep(store)
    other = new_sweep(store, "other")
    for budget in (7200.0, None, 0.0):
        store.set_budget(sweep.id, budget)
        assert store.find_sweep("s") == dataclasses.replace(sweep, max_cost_seconds=budget)
    assert store.find_sweep("other") == other


@pytest.mark.parametrize("budget", [*NOT_FINITE, -1.0])
def test_an_impossible_budget_is_refused(store: Store, budget: float) -> None:
    sweep = new_sweep(store)
    with pytest.raises(StoreError, match="budget"):
        store.set_budget(sweep.id, budget)
    with pytest.raises(StoreError, match="budget"):
        store.create_sweep(sweep_spec("other"), budget)
    assert store.list_sweeps() == [sweep]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.set_budget(99, 1.0),
        lambda store: store.set_config(99, {}),
        lambda store: store.interrupt_orphans(99, ["me"]),
        lambda store: start(store, dataclasses.replace(new_sweep(store), id=99)),
    ],
    ids=["set_budget", "set_config", "interrupt_orphans", "start_trial"],
)
def test_an_unknown_sweep_is_an_error(store: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        call(store)


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


@pytest.mark.parametrize("value", [*NOT_FINITE, None, [1]])
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
    sweep, count = new_sweep(store), 20
    writers = [process("trials", store_url, sweep, f"w{i}", count) for i in range(4)]
    printed = [[int(line) for line in writer.communicate(timeout=PATIENCE_SECONDS)[0].split()] for writer in writers]
    assert [writer.returncode for writer in writers] == [0] * 4
    assert sorted(itertools.chain(*printed)) == list(range(4 * count))
    records = store.trials(sweep.id)
    assert [record.number for record in records] == list(range(4 * count))
    assert len({record.id for record in records}) == 4 * count
    for owner, numbers in zip(("w0", "w1", "w2", "w3"), printed, strict=True):
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
    assert record.curve == (point,)
    assert record.metrics == metrics


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
    for _ in range(50):
        trial = start(store, sweep)
        store.add_measurements(trial, curve, LEASE_SECONDS)
        store.finish_trial(trial, complete())
    records = store.trials(sweep.id)
    assert len(records) == 50
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


# Durability


def test_another_store_sees_everything(store: Store, store_url: str) -> None:
    sweep = new_sweep(store)
    other = open_store(store_url)
    running, finished = start(store, sweep), start(store, sweep)
    store.finish_trial(finished, complete())
    assert other.trials(sweep.id) == store.trials(sweep.id)
    store.add_measurements(running, points(0, 3), LEASE_SECONDS)
    assert other.trials(sweep.id) == store.trials(sweep.id)
    other.finish_trial(running, complete(), [Artifact(kind="log", path="/1")])
    late = start(other, sweep)
    assert [record.state for record in store.trials(sweep.id)] == [
        TrialState.COMPLETE,
        TrialState.COMPLETE,
        TrialState.RUNNING,
    ]
    assert other.interrupt_orphans(sweep.id, [late.owner]) == [late.number]
    assert other.trials(sweep.id) == store.trials(sweep.id)
    assert other.find_sweep("s") == sweep
    records = store.trials(sweep.id)
    other.close()
    store.close()
    again = open_store(store_url)
    assert again.trials(sweep.id) == records
    assert again.list_sweeps() == [sweep]
    again.close()


def test_changing_what_was_returned_changes_nothing(store: Store) -> None:
    sweep = new_sweep(store)
    store.finish_trial(start(store, sweep), complete())
    records = store.trials(sweep.id)
    kept = list(records)
    records.clear()
    assert store.trials(sweep.id) == kept


def test_a_killed_writer_loses_nothing_that_it_had_committed(store: Store, store_url: str) -> None:
    sweep = new_sweep(store)
    writer = process("curve", store_url, sweep, "doomed", 1_000_000)
    assert writer.stdout is not None
    for _ in range(50):
        last = int(writer.stdout.readline())
    writer.kill()
    last = max([last, *map(int, writer.stdout.read().split("\n")[:-1])])
    writer.wait()
    writer.stdout.close()
    [record] = store.trials(sweep.id)
    assert record.state is TrialState.RUNNING
    assert len(record.curve) in (last + 1, last + 2)  # the very last commit may not have been printed any more
    assert record.curve == tuple(points(0, len(record.curve)))
    assert store.interrupt_orphans(sweep.id, ["doomed"]) == [0]
    assert store.trials(sweep.id)[0].cost_seconds == record.curve[-1].elapsed_seconds
    assert start(store, sweep).number == 1


# Round trips

finite = st.floats(allow_nan=False, allow_infinity=False)
seconds = st.floats(min_value=0.0, allow_nan=False, allow_infinity=False)
steps = st.integers(0, 2**63 - 1)
text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
metrics = st.dictionaries(text, finite | st.integers(-(2**70), 2**70), max_size=3)
params = st.dictionaries(text, st.booleans() | st.integers() | finite | text, max_size=4)
estimates = st.none() | st.lists(finite, min_size=3, max_size=3).map(
    lambda values: Estimate(low=min(values), value=sorted(values)[1], high=max(values))
)
suggestions = st.builds(
    Suggestion,
    params=params,
    kind=st.sampled_from(SuggestionKind),
    origin=text,
    predicted_score=estimates,
    predicted_cost_seconds=estimates,
)
provenances = st.builds(Provenance, version=text, git_commit=text, machine=text, config_hash=text)
curves = st.lists(
    st.builds(Measurement, steps=steps, elapsed_seconds=seconds, score=st.none() | finite, metrics=metrics), max_size=5
)
artifacts = st.lists(st.builds(Artifact, kind=text, path=text), max_size=3)
common = {"cost_seconds": seconds, "steps": steps, "timings": metrics, "metrics": metrics}
ends = {state: st.sampled_from([end for end in TrialEnd if end.state is state]) for state in TrialState}
outcomes = (
    st.builds(Outcome, end=ends[TrialState.COMPLETE], score=finite, reason=text, **common)
    | st.builds(Outcome, end=ends[TrialState.PRUNED], score=st.none() | finite, reason=text, **common)
    | st.builds(Outcome, end=ends[TrialState.FAILED], score=st.none(), reason=text.filter(bool), **common)
)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    suggestion=suggestions,
    seed=st.integers(-(2**63), 2**63 - 1),
    owner=text,
    suggest_seconds=seconds,
    provenance=provenances,
    curve=curves,
    outcome=outcomes,
    files=artifacts,
    cut=st.integers(0, 5),
)
def test_whatever_goes_in_comes_out(
    store: Store,
    store_url: str,
    suggestion: Suggestion,
    seed: int,
    owner: str,
    suggest_seconds: float,
    provenance: Provenance,
    curve: list[Measurement],
    outcome: Outcome,
    files: list[Artifact],
    cut: int,
) -> None:
    sweep = store.find_sweep("s") or new_sweep(store)  # one store for all examples
    trial = store.start_trial(
        sweep.id,
        suggestion,
        seed=seed,
        owner=owner,
        lease_seconds=LEASE_SECONDS,
        suggest_seconds=suggest_seconds,
        provenance=provenance,
    )
    store.add_measurements(trial, curve[:cut], LEASE_SECONDS)
    store.add_measurements(trial, curve[cut:], LEASE_SECONDS)
    store.finish_trial(trial, outcome, files)
    records = store.trials(sweep.id)
    record = records[trial.number]
    for given_ in (suggestion, outcome):
        for field in dataclasses.fields(given_):
            assert getattr(record, field.name) == getattr(given_, field.name), field.name
    assert {name: type(value) for name, value in record.params.items()} == {
        n: type(v) for n, v in suggestion.params.items()
    }
    assert (record.id, record.seed, record.owner) == (trial.id, seed, owner)
    assert (record.suggest_seconds, record.provenance) == (suggest_seconds, provenance)
    assert record.curve == tuple(curve)
    assert record.artifacts == tuple(files)
    other = open_store(store_url)
    assert other.trials(sweep.id) == records
    other.close()


def test_a_sqlite_store_is_one_file_once_it_is_closed(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "runs" / "x.db"))
    new_sweep(store)
    store.close()
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["x.db"]


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


def test_why_a_sweep_ended_is_kept(store: Store) -> None:
    sweep, other = new_sweep(store), new_sweep(store, "other")
    assert sweep.ended == ""
    store.set_ended(sweep.id, "interrupted\0")
    found = store.find_sweep("s")
    assert found == dataclasses.replace(sweep, ended="interrupted\ufffd")
    assert store.list_sweeps() == [found, other]
    store.set_ended(sweep.id, "")
    assert store.find_sweep("s") == sweep
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        store.set_ended(99, "x")


def test_machines_come_in_the_order_in_which_they_were_added(store: Store) -> None:
    assert store.machines() == []
    moments = [datetime(2026, 11, day, 12, 30, 15, 250_000, tzinfo=UTC) for day in (3, 1, 2)]
    machines = [
        Machine(name=name, facts={"cores": 1 << i, "gpus": ["ä"]}, calibration_seconds=1 / (i + 3), measured_at=moment)
        for i, (name, moment) in enumerate(zip(("node-3", "node-1", "node-2"), moments, strict=True))
    ]
    for machine in machines:
        store.add_machine(machine)
    assert store.machines() == machines
    store.add_machine(dataclasses.replace(machines[0], calibration_seconds=99.0))  # it is known
    assert store.machines() == machines


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_machine_without_a_usable_name_is_refused(store: Store, name: str) -> None:
    machine = Machine(name=name, facts={}, calibration_seconds=1.0, measured_at=now())
    with pytest.raises(StoreError, match="machine"):
        store.add_machine(machine)
    assert store.machines() == []


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
