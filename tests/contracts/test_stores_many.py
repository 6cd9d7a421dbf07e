"""What every store must do when many trials are read at once. See `protein.ports.Store`."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event
from store_samples import LEASE_SECONDS, complete, filled_sweep, new_sweep, points, start, sweep_spec

from protein.columns import FIELDS, MAX_TEXT, TrialColumns, value_of
from protein.errors import StoreError
from protein.ports import Store
from protein.storage import open_store
from protein.types import (
    Estimate,
    Measurement,
    SweepRecord,
    TrialEnd,
    TrialRecord,
)


def rows(columns: TrialColumns) -> list[dict[str, Any]]:
    """Returns columns as one dict for each trial; missing numbers are None, as in records."""

    def plain(value: Any) -> Any:
        value = value.item() if isinstance(value, np.generic) else value
        return None if isinstance(value, float) and math.isnan(value) else value

    whole = {name: getattr(columns, name) for name in FIELDS}
    named = ("params", "metrics", "timings")
    for name in whole:
        lengths = [len(c) for c in whole[name].values()] if name in named else [len(whole[name])]
        assert set(lengths) <= {len(columns)}, name
    return [
        {
            name: {key: plain(column[i]) for key, column in values.items()} if name in named else plain(values[i])
            for name, values in whole.items()
        }
        for i in range(len(columns))
    ]


def expected(record: TrialRecord, names: Mapping[str, Collection[str]]) -> dict[str, Any]:
    """Returns a record as one row of columns, given the names that any trial has in each of its mappings."""
    row: dict[str, Any] = {}
    for name in FIELDS:
        side = "low" if name.endswith("_low") else "high" if name.endswith("_high") else "value"
        value = getattr(record, name.removesuffix("_low").removesuffix("_high"))
        if name in names:
            value = {key: value.get(key) for key in names[name]}
        elif isinstance(value, Estimate):
            value = getattr(value, side)
        elif name.endswith("_at") and value is not None:
            value = value.timestamp()
        row[name] = value
    row["continues"] = -1 if record.continues is None else record.continues
    row["origin"], row["reason"] = record.origin[:MAX_TEXT], record.reason[:MAX_TEXT]
    return row


def assert_same(
    store: Store, sweep: SweepRecord, columns: TrialColumns, numbers: Collection[int] | None = None
) -> None:
    """Asserts that columns hold exactly what the records of these trials hold."""
    records = store.trials(sweep.id, curves=False, numbers=numbers)
    mappings = ("params", "metrics", "timings")
    names = {name: list(dict.fromkeys(key for r in records for key in getattr(r, name))) for name in mappings}
    found = rows(columns)
    assert len(found) == len(records)
    for row, record in zip(found, records, strict=True):
        want = expected(record, names)
        assert row == want


# Columns


def test_columns_hold_what_the_records_hold(store: Store) -> None:
    filled_sweep(store, "other")
    sweep = filled_sweep(store)
    store.annotate(sweep.id, [1, 4], tags=["a", "b c"], note="an exploit", excluded=True)
    columns = store.columns(sweep.id)
    assert_same(store, sweep, columns)
    assert [columns.params[name].dtype.kind for name in ("lr", "size", "norm", "kind")] == ["f", "i", "b", "O"]
    assert columns.score.dtype == columns.metrics["odd"].dtype == np.float64
    assert columns.run_seconds[3] == 4.5 + 3 / 7


def test_columns_of_an_empty_sweep_and_of_none(store: Store) -> None:
    columns = store.columns(new_sweep(store).id)
    assert len(columns) == 0 and columns.params == {} and columns.score.dtype == np.float64
    assert len(store.columns(99)) == 0


def test_params_come_in_the_order_of_the_space_whatever_trial_has_one_first(store: Store) -> None:
    space = {"parameters": [{"name": name} for name in ("model", "C", "depth", "lr")]}
    sweep = store.create_sweep(dataclasses.replace(sweep_spec("s"), space=space), None)
    for params in ({"model": "tree", "other": 1, "lr": 0.1, "depth": 3}, {"lr": 0.1, "model": "svm", "C": 2.0}):
        start(store, sweep, params=params)
    columns = store.columns(sweep.id)
    assert list(columns.params) == ["model", "C", "depth", "lr", "other"]
    assert columns.params["C"].tolist()[1] == 2.0


def test_only_the_fields_that_are_asked_for_are_read(store: Store) -> None:
    sweep = filled_sweep(store)
    whole, some = store.columns(sweep.id), store.columns(sweep.id, fields=["score", "excluded"])
    np.testing.assert_array_equal(some.score, whole.score)
    np.testing.assert_array_equal(some.number, whole.number)
    assert len(some.excluded) == len(whole)
    assert (len(some.state), len(some.steps), some.params, some.tags) == (0, 0, {}, [])
    assert some.cursor == whole.cursor
    with pytest.raises(StoreError, match=r"trials have no column 'scores'.*score"):
        store.columns(sweep.id, fields=["scores"])


def test_a_cursor_gives_what_has_changed_since_and_nothing_else(store: Store, store_url: str) -> None:
    sweep = filled_sweep(store)
    other = open_store(store_url)
    running = store.summaries()[sweep.id].running
    first, second = sorted(running)
    cursor = other.columns(sweep.id).cursor

    def changed() -> list[int]:
        nonlocal cursor
        columns = other.columns(sweep.id, cursor)
        assert_same(other, sweep, columns, columns.number.tolist())
        cursor = columns.cursor
        assert len(other.columns(sweep.id, cursor)) == 0
        return list(columns.number.tolist())

    assert changed() == []
    trials = {record.number: record for record in store.trials(sweep.id, numbers=[first, second])}
    store.add_measurements(trials[first], [], LEASE_SECONDS)  # a sign of life changes no column
    assert changed() == []
    store.add_measurements(trials[first], points(2, 3), LEASE_SECONDS)
    assert changed() == [first]
    store.release_trial(trials[first], "interrupted")
    assert changed() == [first]
    taken_up = store.take_up_trial(sweep.id, first, "p", LEASE_SECONDS, from_steps=10)
    assert changed() == [first]
    store.release_trial(taken_up, "interrupted")
    store.take_up_trial(sweep.id, first, "p", LEASE_SECONDS, from_steps=0)
    assert changed() == [first]  # it has lost a point
    new = start(store, sweep)
    store.finish_trial(trials[second], complete())
    assert changed() == [second, new.number]
    store.annotate(sweep.id, [0, first], note="seen")
    assert changed() == [0, first]
    store.annotate(sweep.id, 0, note="")
    assert changed() == [0]
    assert store.interrupt_orphans(sweep.id, ["p", "me"]) == [first, new.number]
    quick = start(store, sweep)
    store.finish_trial(quick, complete())
    assert changed() == [first, new.number, quick.number]
    other.close()


@pytest.mark.parametrize(
    "cursor",
    [
        "",
        "1",
        "1;2",
        "a;0;",
        "1;0;2",
        "1;0;2:3",
        "1;0;2:3:x",
        "1;0;1:2:3",
        "1;0;1:complete:2:3",
        "'; DROP",
        f"{2**70};0;",
        f"1;0;{2**70}:running:1:1",
    ],
)
def test_a_cursor_that_is_none_is_refused(store: Store, cursor: str) -> None:
    sweep = new_sweep(store)
    with pytest.raises(StoreError, match="is no cursor"):
        store.columns(sweep.id, cursor)


def test_a_cursor_of_another_sweep_gives_trials_of_this_one(store: Store) -> None:
    first, second = filled_sweep(store, "first"), new_sweep(store, "second")
    start(store, second)
    assert len(store.columns(second.id, store.columns(first.id).cursor)) == 0
    assert len(store.columns(first.id, store.columns(second.id).cursor)) >= len(TrialEnd)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
finite = st.floats(allow_nan=False, allow_infinity=False)
plain = st.booleans() | st.integers() | finite | texts
values = st.none() | plain | st.recursive(plain | st.none(), lambda one: st.lists(one) | st.dictionaries(texts, one))
metrics = st.dictionaries(texts, finite | st.integers(-(2**70), 2**70), max_size=3)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    trials=st.lists(
        st.tuples(st.dictionaries(st.sampled_from("abc") | texts, values, max_size=4), metrics), min_size=1, max_size=6
    )
)
def test_columns_keep_values_of_any_kind(store: Store, trials: list[tuple[dict[str, Any], dict[str, float]]]) -> None:
    sweep = new_sweep(store, f"s{len(store.list_sweeps())}")
    for params, figures in trials:
        trial = start(store, sweep, params=params or {"x": 1.0})
        store.finish_trial(trial, dataclasses.replace(complete(), metrics=figures))
    columns, records = store.columns(sweep.id), store.trials(sweep.id)
    for name, column in columns.params.items():
        for value, record in zip(column.tolist(), records, strict=True):
            if name not in record.params:  # not even a None
                assert value is None or (isinstance(value, float) and math.isnan(value))
                continue
            stored = record.params[name]
            number = isinstance(stored, int | float) and not isinstance(stored, bool)
            assert value_of(value) == stored or (column.dtype == np.float64 and value == float(stored))
            assert number or type(value_of(value)) is type(stored)
    assert {name for record in records for name in record.params} == set(columns.params)
    for name, figure in columns.metrics.items():
        stored_figures = [float(record.metrics.get(name, math.nan)) for record in records]
        np.testing.assert_array_equal(figure, stored_figures)


def calls(store: Store, key: int, size: int, cursor: str) -> dict[str, Callable[[], object]]:
    return {
        "columns": lambda: store.columns(key),
        "since": lambda: store.columns(key, cursor),
        "trials": lambda: store.trials(key, curves=False),
        "summaries": lambda: store.summaries([key]),
        "curves": lambda: store.curves(key, range(size), 5),
        "wishes": lambda: store.wishes(key),
    }


def num_queries(store: Store, call: Callable[[], object]) -> int:
    """Returns how many statements a call executes."""
    statements: list[str] = []

    def executed(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        statements.append(statement)

    engine = store._engine  # type: ignore[attr-defined]
    event.listen(engine, "before_cursor_execute", executed)
    call()
    event.remove(engine, "before_cursor_execute", executed)
    return len(statements)


def test_the_number_of_queries_does_not_grow_with_the_number_of_trials(store: Store) -> None:
    counts = []
    for name, size in (("small", 2), ("large", 30)):
        sweep = new_sweep(store, name)
        for _ in range(size):
            trial = start(store, sweep)
            store.add_measurements(trial, points(0, 9), LEASE_SECONDS)
            store.finish_trial(trial, complete())
        running = [start(store, sweep) for _ in range(size)]
        cursor = store.columns(sweep.id).cursor
        for trial in running:
            store.finish_trial(trial, complete())
        store.annotate(sweep.id, range(size), tags=["x"], excluded=True)
        asked = calls(store, sweep.id, size, cursor)
        counts.append({method: num_queries(store, call) for method, call in asked.items()})
    assert counts[0] == counts[1]
    assert max(counts[0].values()) <= 8 and min(counts[0].values()) >= 1


# Some trials, and none of their curves


def test_trials_without_curves_are_the_same_but_for_them(store: Store) -> None:
    sweep = filled_sweep(store)
    whole = store.trials(sweep.id)
    bare = [dataclasses.replace(record, curve=()) for record in whole]
    for _ in range(2):  # the second time, finished trials are remembered
        assert store.trials(sweep.id, curves=False) == bare
        assert store.trials(sweep.id) == whole
    assert store.trials(sweep.id, numbers=[4, 2, 2, 99]) == [whole[2], whole[4]]
    assert store.trials(sweep.id, curves=False, numbers=[5]) == [bare[5]]
    assert store.trials(sweep.id, numbers=[]) == store.trials(sweep.id, numbers=[-1, 2**70]) == []
    assert store.curves(sweep.id, [2**70], 10) == {}
    assert store.trial(sweep.id, 4) == whole[4]
    with pytest.raises(StoreError, match="the sweep has no trial 99"):
        store.trial(sweep.id, 99)


# Requests


def test_without_curves_the_last_point_may_be_asked_for(store: Store) -> None:
    sweep = new_sweep(store)
    unordered = [
        Measurement(steps=9, elapsed_seconds=0.5, score=1.0),
        Measurement(steps=2, elapsed_seconds=0.75, score=-1.0),
    ]
    for curve in (unordered, [], points(0, 30)):
        store.add_measurements(start(store, sweep), curve, LEASE_SECONDS)
    found = store.trials(sweep.id, curves=False, last_points=True)
    assert [[point.steps for point in trial.curve] for trial in found] == [[9], [], [29]]
    assert all(point.score is None for trial in found for point in trial.curve)
    assert store.trials(sweep.id, curves=False, last_points=True, numbers=[2]) == found[2:]
    assert [len(trial.curve) for trial in store.trials(sweep.id)] == [2, 0, 30]
    assert all(trial.curve == () for trial in store.trials(sweep.id, curves=False))


def test_trials_with_the_same_params_are_found(store: Store) -> None:
    first, second = new_sweep(store, "first"), new_sweep(store, "second")
    for value in (0.1, 0.2, 0.1, 1.0, 0.1):
        start(store, first, params={"x": value, "s": "ä'\""})
    start(store, second, params={"x": 0.1, "s": "ä'\""})
    assert store.same_params(first.id, [2, 3]) == [0, 2, 3, 4]
    assert store.same_params(first.id, [1]) == [1]
    assert store.same_params(first.id, []) == store.same_params(first.id, [99]) == []
