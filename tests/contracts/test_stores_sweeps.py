"""What every store must do with sweeps and machines. See `protein.ports.Store`."""

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from store_samples import (
    new_sweep,
    start,
    sweep_spec,
)

from protein.errors import StoreError, TrialLost
from protein.ports import Store
from protein.types import MAX_TAGS, AgentCall, Limit, Machine

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


@pytest.mark.parametrize("text", ["a\0b", "\ud800"], ids=["NUL", "surrogate"])
def test_a_text_that_cannot_be_stored_is_refused_wherever_it_is(store: Store, text: str) -> None:
    parameter = {"type": "categorical", "name": "x", "choices": ["a", text], "default": None}
    for change in ({"space": {"parameters": [parameter]}}, {"config": {text: 1}}, {"config": {"a": {"b": (text,)}}}):
        with pytest.raises(StoreError, match=f"{next(iter(change))}: the text .* cannot be stored"):
            store.create_sweep(dataclasses.replace(sweep_spec(), **change), None)
    assert store.list_sweeps() == []


def test_the_longest_name_fits(store: Store) -> None:
    assert store.find_sweep(new_sweep(store, "\U0001f3d3" * 200).spec.name) is not None


def test_the_config_may_be_replaced(store: Store) -> None:
    sweep, other = new_sweep(store), new_sweep(store, "other")
    config = {"command": {"text": "python train.py"}}
    store.set_config(sweep.id, config)
    assert store.find_sweep("s") == dataclasses.replace(sweep, spec=dataclasses.replace(sweep.spec, config=config))
    assert store.find_sweep("other") == other
    before = store.list_sweeps()
    for wrong in (math.nan, "a\0b", "\udce9", Path("x")):
        with pytest.raises(StoreError):
            store.set_config(sweep.id, {"a": wrong})
        assert store.list_sweeps() == before


def test_tags_of_sweeps_are_added_and_taken_away_all_or_none(store: Store) -> None:
    one, two = new_sweep(store, "one"), new_sweep(store, "two")

    def tags() -> list[tuple[str, ...]]:
        return [sweep.spec.tags for sweep in store.list_sweeps()]

    store.tag_sweeps([one.id, two.id], add_tags=[" a ", "b", "a"])
    store.tag_sweeps([two.id], add_tags=["c"], remove_tags=["a", "never"])
    assert tags() == [("a", "b"), ("b", "c")]
    with pytest.raises(StoreError, match=f"sweep 'one' would have {MAX_TAGS + 2} tags"):
        store.tag_sweeps([one.id, two.id], add_tags=[str(i) for i in range(MAX_TAGS)])
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        store.tag_sweeps([one.id, 99], add_tags=["d"])
    assert tags() == [("a", "b"), ("b", "c")]
    # A process that resumes the sweep knows older tags.
    store.set_space(two.id, {**two.spec.space, "tags": ["old"], "require": ["x <= 1.0"]})
    found = store.list_sweeps()[1].spec
    assert (found.tags, [str(limit) for limit in found.limits]) == (("b", "c"), ["x <= 1"])
    assert found.without_tags() == dataclasses.replace(two.spec, space={**two.spec.space, "require": ["x <= 1.0"]})
    store.tag_sweeps([one.id], remove_tags=["a", "b"])
    assert store.list_sweeps()[0].spec == one.spec  # nothing is left of them


def test_the_space_may_be_replaced(store: Store) -> None:
    """Its limits on metrics may change."""
    sweep, other = new_sweep(store), new_sweep(store, "other")
    spec = sweep.spec.with_limits([Limit("memory_gb", "<=", 8.0)])
    store.set_space(sweep.id, spec.space)
    found = store.find_sweep("s")
    assert found == dataclasses.replace(sweep, spec=spec) and found.spec.limits == (Limit("memory_gb", "<=", 8.0),)
    assert store.find_sweep("other") == other
    assert found.spec.with_limits([]) == sweep.spec, "a space without limits is stored as it always was"
    with pytest.raises(StoreError):
        store.set_space(sweep.id, {"a": math.nan})


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
        lambda store: store.set_space(99, {}),
        lambda store: store.interrupt_orphans(99, ["me"]),
        lambda store: start(store, dataclasses.replace(new_sweep(store), id=99)),
    ],
    ids=["set_budget", "set_config", "set_space", "interrupt_orphans", "start_trial"],
)
def test_an_unknown_sweep_is_an_error(store: Store, call: Callable[[Store], object]) -> None:
    with pytest.raises(StoreError, match="no sweep has the id 99"):
        call(store)


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


# Calls of agents


def test_calls_of_agents_are_kept_in_order_and_each_claims_its_number(store: Store) -> None:
    sweep, moment = new_sweep(store), datetime(2026, 11, 3, 12, 30, 15, 250_000, tzinfo=UTC)
    call = AgentCall(
        made_at=moment, client="größe\x1b[2J", tool="pause", arguments={"a": [1, None]}, sweep="s", owner="host:1:2.0"
    )
    start = dataclasses.replace(
        call, number=1, tool="start_sweep", max_cost_seconds=0.1 + 0.2, max_trials=2**40, workers=2, client="c"
    )
    assert store.agent_calls() == []
    for wrong in (dataclasses.replace(call, number=1), dataclasses.replace(call, number=7)):
        with pytest.raises(TrialLost, match="is not the next one"):
            store.add_agent_call(wrong)
    store.add_agent_call(call)
    with pytest.raises(TrialLost, match="call 0 is not the next one"):
        store.add_agent_call(dataclasses.replace(start, number=0))
    store.add_agent_call(start)
    kept = dataclasses.replace(call, client=store.agent_calls()[0].client)
    assert store.agent_calls() == [kept, start] and kept.client.startswith("größe") and "\x1b" not in kept.client
    store.end_agent_call(1, "started\0", owner="host:3:4.0", sweep_id=sweep.id)
    store.end_agent_call(0, "paused")
    ended = dataclasses.replace(start, outcome="started\ufffd", owner="host:3:4.0", sweep_id=sweep.id)
    assert store.agent_calls() == [dataclasses.replace(kept, outcome="paused"), ended]
    with pytest.raises(StoreError):
        store.add_agent_call(dataclasses.replace(start, number=2, max_cost_seconds=math.nan))


@pytest.mark.parametrize("name", ["", "x" * 201, "a\0b"])
def test_a_machine_without_a_usable_name_is_refused(store: Store, name: str) -> None:
    machine = Machine(name=name, facts={}, calibration_seconds=1.0, measured_at=now())
    with pytest.raises(StoreError, match="machine"):
        store.add_machine(machine)
    assert store.machines() == []
