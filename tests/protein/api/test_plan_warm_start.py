"""Warm starts from one, several and all sweeps of a real store: which are taken, and what is refused."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from protein import Categorical, Float, Integer, Report, Space, Sweep, SweepResult
from protein.api import stores
from protein.engine.warm_start import (
    described_sources,
    num_usable_configs,
    snapshot_of,
    source_names,
    source_observations,
)
from protein.errors import UsageError
from protein.types import WAITED, WALL, SuggestionKind, SweepRecord

SPACE = Space([Float("lr", 1e-4, 1.0, scale="log"), Integer("epochs", 1, 20, scale="log")], cost_parameter="epochs")
OTHER = Space([Float("width", 0.0, 1.0)])
START: dict[str, Any] = {"lr": 0.3, "epochs": 4}


def train(params: dict[str, Any], report: Report) -> float:
    report(1, 0.5, cost_seconds=float(params.get("epochs", 1)))
    return float(-((params.get("lr", params.get("width", 0.0)) - 0.1) ** 2))


def elsewhere(params: dict[str, Any], report: Report) -> float:
    return train(params, report)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Holds the sweeps few (3 trials), many (6), strange (another function), single (1) and other (another space)."""
    path = str(tmp_path_factory.mktemp("filled") / "own.db")
    for name, trials in (("few", 3), ("many", 6), ("single", 1)):
        swept(path, name, max_trials=trials)
    Sweep(SPACE, store=path, name="strange", max_trials=7, start=START, quiet=True).run(elsewhere)
    Sweep(OTHER, store=path, name="other", max_trials=4, quiet=True).run(train)
    return path


@pytest.fixture
def store(filled: str, tmp_path: Path) -> str:
    return str(shutil.copy(filled, tmp_path / "own.db"))


def swept(store: str, name: str, **changes: Any) -> SweepResult:
    return Sweep(SPACE, store=store, name=name, start=START, **{"max_trials": 1, "quiet": True, **changes}).run(train)


def stored(store: str, name: str) -> SweepRecord:
    with stores.opened(store) as opened:
        return stores.find(opened, name)


def taken(store: str, name: str) -> list[tuple[str, int]]:
    snapshot = stored(store, name).spec.warm_start
    counts = [len(trials) for trials in source_observations(snapshot)]
    return list(zip(source_names(snapshot), counts, strict=True))


def test_several_sources_however_they_are_named(store: str, capsys: pytest.CaptureFixture[str]) -> None:
    results = [
        swept(store, f"warm{i}", warm_start=wanted, quiet=False, max_trials=4)
        for i, wanted in enumerate(("few,many", "many, few", ("many", "few", "many")))
    ]
    assert taken(store, "warm0") == [("many", 6), ("few", 3)]
    assert "; warm start from 9 trials of sweeps 'many' and 'few'" in capsys.readouterr().out
    kinds = [trial.kind for trial in results[0].trials]
    assert kinds[0] is SuggestionKind.INITIAL_CONFIG and SuggestionKind.WARM_START in kinds
    for i, result in enumerate(results):
        assert taken(store, f"warm{i}") == taken(store, "warm0")
        assert [t.params for t in result.trials] == [t.params for t in results[0].trials]


def test_all_takes_what_fits_those_of_the_same_function_first(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(store, "warm", warm_start="all", max_trials=4)
    assert taken(store, "warm") == [("many", 6), ("few", 3), ("strange", 7)]  # not itself, `single` and `other`
    monkeypatch.setattr("protein.api.plan.MAX_SOURCES", 2)
    monkeypatch.setattr("protein.api.plan.MAX_SNAPSHOT_TRIALS", 10)
    swept(store, "fewer", warm_start="all")
    assert taken(store, "fewer") == [("many", 5), ("warm", 4)]


def test_what_the_source_sweep_had_fixed_is_carried_over(store: str) -> None:
    rate, batch = SPACE.parameters[0], Integer("batch", 16, 256)
    fixed = Space([rate], fixed={"batch": 64})
    start = {rate.name: START[rate.name]}
    Sweep(fixed, store=store, name="fixed", max_trials=3, start=start, quiet=True).run(train)
    wider = Space([rate, batch])
    both = {**start, "batch": 256}
    Sweep(wider, store=store, name="wider", max_trials=1, start=both, warm_start="fixed", quiet=True).run(train)
    [trials] = source_observations(stored(store, "wider").spec.warm_start)
    assert [one.params["batch"] for one in trials] == [64] * 3


def test_a_sweep_called_all_is_named_in_a_list(store: str) -> None:
    swept(store, "all", max_trials=4)
    swept(store, "every", warm_start="all")
    assert [name for name, _ in taken(store, "every")] == ["many", "all", "few", "strange"]
    for name, wanted in (("listed", ["all"]), ("comma", "all,")):
        swept(store, name, warm_start=wanted)
        assert taken(store, name) == [("all", 4)]


def test_a_resumed_sweep_keeps_its_sources(store: str) -> None:
    swept(store, "warm", warm_start="all")
    swept(store, "new", max_trials=2)
    for wanted in ("all", None, "many,few,strange"):
        swept(store, "warm", warm_start=wanted, max_trials=2)
    assert [name for name, _ in taken(store, "warm")] == ["many", "few", "strange"]
    with pytest.raises(UsageError, match=r"^sweep 'warm' exists with a warm start from 'all' .now 'few', 'many'.; cho"):
        swept(store, "warm", warm_start="few,many")
    with pytest.raises(
        UsageError, match=r"^sweep 'few' was started without a warm start; now --warm-start all is given"
    ):
        swept(store, "few", warm_start="all")


def test_a_source_sweep_tells_its_costs_without_those_of_other_programs(store: str) -> None:
    with stores.opened(store) as opened:
        [trial] = opened.trials(stores.find(opened, "single").id)
    busy = dataclasses.replace(trial, timings={WALL: 10.0, WAITED: 7.5})
    for one, calm_share in ((trial, 1.0), (busy, 0.25)):
        source = snapshot_of("single", [one], space=SPACE, fixed={})
        ((found,),) = source_observations(json.loads(json.dumps({"sources": [source]})))
        assert found.run_seconds == trial.run_seconds
        assert found.calm_seconds == pytest.approx(calm_share * trial.run_seconds)
        del source["trials"][0]["busy_share"]  # as earlier versions stored it
        ((found,),) = source_observations({"sources": [source]})
        assert found.calm_seconds == trial.run_seconds


def test_a_source_sweep_tells_the_costs_of_whole_runs(store: str) -> None:
    """A run that began on a busy machine and went on on a calm one."""
    with stores.opened(store) as opened:
        [trial] = opened.trials(stores.find(opened, "single").id)
    first = dataclasses.replace(trial, cost_seconds=10.0, timings={WALL: 10.0, WAITED: 5.0})
    suggestion = dataclasses.replace(trial, number=1, continues=trial.number, continued_seconds=10.0)
    leg = dataclasses.replace(suggestion, cost_seconds=1.0, timings={WALL: 1.0, WAITED: 0.0})
    source = snapshot_of("single", [first, leg], space=SPACE, fixed={})
    ((one, other),) = source_observations({"sources": [source]})
    assert (one.calm_seconds, other.run_seconds) == (5.0, 11.0)
    assert other.calm_seconds == pytest.approx(6.0)


def test_a_snapshot_of_one_source_as_earlier_versions_stored_it(store: str) -> None:
    swept(store, "model", warm_start="many")
    spec = stored(store, "model").spec
    (source,) = spec.warm_start["sources"]
    with stores.opened(store) as opened:
        opened.create_sweep(dataclasses.replace(spec, name="old", warm_start=source), None)
    old, new = (swept(store, name, warm_start="many", max_trials=4) for name in ("old", "model"))
    assert [t.params for t in old.trials] == [t.params for t in new.trials]
    assert described_sources(source) == "6 trials of sweep 'many'"
    with pytest.raises(UsageError, match=r"exists with a warm start from 'many' .now 'few'."):
        swept(store, "old", warm_start="few")


def test_what_cannot_be_taken_is_one_line(store: str, tmp_path: Path) -> None:
    for wanted, said in (
        ("many,mani", r"^there is no sweep 'mani'; did you mean"),
        ("few,warm", r"^sweep 'warm' cannot start warm from itself; choose another name$"),
        (",", r"^a warm start takes 1 to 10 sweeps, got 0; name others, or 'all'$"),
        ([f"s{i}" for i in range(11)], r"^a warm start takes 1 to 10 sweeps, got 11"),
        (7, r"^warm_start must be a sweep's name, a list of names or 'all', got 7$"),
        ([3], r"^warm_start must be a sweep's name, a list of names or 'all', got \[3\]$"),
    ):
        with pytest.raises(UsageError, match=said):
            swept(store, "warm", warm_start=wanted)
    with pytest.raises(UsageError, match=r"^no trial of the source sweep 'few' has a score and lies in this space; "):
        Sweep(OTHER, store=store, name="warm", warm_start="other,few", quiet=True).run(train)
    empty = str(tmp_path / "empty.db")
    said = r"^no other sweep of the store has 2 scores in this space; drop the warm start, or name a sweep$"
    for path in (empty, empty):  # no sweep at all, and then none that fits
        with pytest.raises(UsageError, match=said):
            swept(path, "warm", warm_start="all")
        Sweep(OTHER, store=path, name="other", max_trials=2, quiet=True).run(train)
    with stores.opened(store) as opened:
        assert opened.find_sweep("warm") is None, "a mistake leaves nothing behind"


def test_equal_choices_of_different_types_are_different_configs() -> None:
    space = Space([Categorical("x", [1, True]), Float("y", 0.0, 1.0)])
    source = {
        "trials": [
            {"number": i, "params": params, "state": "complete", "score": 1.0, "cost_seconds": 1.0, "steps": 0}
            for i, params in enumerate(({"x": 1, "y": 1}, {"x": True, "y": 1}, {"x": True, "y": 1.0}))
        ]
    }
    assert num_usable_configs(source, space, None) == 2
