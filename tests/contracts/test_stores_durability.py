"""What every store must keep: all that goes in comes out, in another process too. See `protein.ports.Store`."""

import dataclasses
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_samples import (
    LEASE_SECONDS,
    complete,
    new_sweep,
    points,
    process,
    start,
)

from protein.ports import Store
from protein.storage import open_store
from protein.storage.values import readable
from protein.types import (
    Artifact,
    Estimate,
    Measurement,
    Outcome,
    Provenance,
    Suggestion,
    SuggestionKind,
    TrialEnd,
    TrialState,
)

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
for_people = text.map(readable)  # tests/storage/test_values.py shows what becomes of the rest
metrics = st.dictionaries(for_people, finite | st.integers(-(2**70), 2**70), max_size=3)
params = st.dictionaries(text, st.booleans() | st.integers() | finite | text, max_size=4)
estimates = st.none() | st.lists(finite, min_size=3, max_size=3).map(
    lambda values: Estimate(low=min(values), value=sorted(values)[1], high=max(values))
)
suggestions = st.builds(
    Suggestion,
    params=params,
    kind=st.sampled_from(SuggestionKind),
    origin=for_people,
    predicted_score=estimates,
    predicted_cost_seconds=estimates,
)
provenances = st.builds(Provenance, version=text, git_commit=text, machine=for_people, config_hash=text)
curves = st.lists(
    st.builds(Measurement, steps=steps, elapsed_seconds=seconds, score=st.none() | finite, metrics=metrics), max_size=5
)
artifacts = st.lists(st.builds(Artifact, kind=text, path=text), max_size=3)
common = {"cost_seconds": seconds, "steps": steps, "timings": metrics, "metrics": metrics}
ends = {state: st.sampled_from([end for end in TrialEnd if end.state is state]) for state in TrialState}
outcomes = (
    st.builds(Outcome, end=ends[TrialState.COMPLETE], score=finite, reason=for_people, **common)
    | st.builds(Outcome, end=ends[TrialState.PRUNED], score=st.none() | finite, reason=for_people, **common)
    | st.builds(Outcome, end=ends[TrialState.FAILED], score=st.none(), reason=for_people.filter(bool), **common)
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
