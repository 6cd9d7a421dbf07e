"""Costs of several machines in the seconds of the reference machine, and when a machine is calibrated."""

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from protein.errors import TrialFailed
from protein.ports import Finished, Job, Store, TrialProgress
from protein.run import speed
from protein.run.speed import IDENTITY, find_calibration, in_reference, limits_here, speed_of
from protein.storage import open_store
from protein.types import CONTINUABLE_SECONDS, Machine, Measurement, Outcome, Trial, TrialEnd

FACTS = dict.fromkeys(IDENTITY, "same")
TRIAL = Trial(id=1, sweep_id=1, number=0, params={}, seed=0, owner="me")
TRAINERS = {"train": {"max_seconds": 60.0}}


def machine(name: str, seconds: float, *, day: int = 0, **facts: object) -> Machine:
    when = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day)
    return Machine(name=name, facts={**FACTS, "spread": 0.01, **facts}, calibration_seconds=seconds, measured_at=when)


def job(config: dict[str, Any], *, max_seconds: float | None = 900.0) -> Job:
    return Job(trial=TRIAL, config=config, directory=Path(), max_seconds=max_seconds, max_memory_bytes=None)


def test_the_first_machine_is_the_reference() -> None:
    slow, fast = machine("a", 1.0), machine("b", 0.5, host="b")
    assert speed_of([slow, fast], slow) == 1.0
    assert speed_of([slow, fast], fast) == 2.0
    assert speed_of([fast, slow], slow) == 0.5


@pytest.mark.parametrize("changed", IDENTITY)
def test_a_machine_that_has_changed_is_another_one(changed: str) -> None:
    known = [machine("a", 1.0)]
    assert find_calibration(known, FACTS) is known[0]
    assert find_calibration(known, {**FACTS, changed: "other"}) is None


def test_the_newest_calibration_counts_and_the_reference_stays() -> None:
    first, again = machine("a", 1.0), machine("a again", 0.8, day=1)
    assert find_calibration([first, again], FACTS) is again
    assert speed_of([first, again], again) == 1.25


def test_curve_and_cost_are_in_reference_seconds_and_timings_are_not() -> None:
    points = (Measurement(steps=1, elapsed_seconds=3.0, score=1.0),)
    told = in_reference(TrialProgress(trial=TRIAL, measurements=points), 2.0, 5.0)
    assert told.measurements[0].elapsed_seconds == 11.0
    outcome = Outcome(
        end=TrialEnd.COMPLETE,
        score=1.0,
        cost_seconds=4.0,
        timings={"cpu": 7.0},
        metrics={CONTINUABLE_SECONDS: 3.0, "loss": 3.0},
    )
    ended = in_reference(Finished(trial=TRIAL, outcome=outcome), 2.0).outcome
    assert (ended.cost_seconds, ended.timings) == (8.0, {"cpu": 7.0})
    assert ended.metrics == {CONTINUABLE_SECONDS: 6.0, "loss": 3.0}


def test_on_the_reference_machine_nothing_changes() -> None:
    event = TrialProgress(trial=TRIAL, measurements=())
    assert in_reference(event, 1.0) is event


def test_a_programs_limit_is_in_its_own_seconds() -> None:
    mine = limits_here(job({"params": {}, "max_seconds": 60.0}), 2.0)
    assert mine.config["max_seconds"] == 30.0
    assert limits_here(job({"params": {}, "max_seconds": None}), 2.0).config["max_seconds"] is None


def test_the_trainers_limit_stays_because_its_clock_runs_in_reference_seconds() -> None:
    assert limits_here(job(TRAINERS), 2.0).config == TRAINERS


def test_a_slow_machine_has_more_wall_clock_before_a_trial_counts_as_hung() -> None:
    assert limits_here(job(TRAINERS), 0.5).max_seconds == 1800.0
    assert limits_here(job(TRAINERS), 2.0).max_seconds == 900.0
    assert limits_here(job(TRAINERS, max_seconds=None), 0.5).max_seconds is None


def test_a_job_on_the_reference_machine_stays() -> None:
    before = job({"max_seconds": 60.0})
    assert dataclasses.asdict(limits_here(before, 1.0)) == dataclasses.asdict(before)


HERE = speed.machine_facts(threads=1, device="cpu")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/protein.db")
    yield opened
    opened.close()


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[Machine]:
    """Calibrations that take no time, so that it is known when there is one. The real one has a test below."""
    found: list[Machine] = []

    def measure(here: dict[str, Any], **_: object) -> Machine:
        found.append(calibrated("here", 0.5, here))
        return found[-1]

    monkeypatch.setattr(speed, "measure_speed", measure)
    return found


def calibrated(name: str, seconds: float, facts: dict[str, Any]) -> Machine:
    return Machine(name=name, facts=facts, calibration_seconds=seconds, measured_at=datetime.now(UTC))


def of_here(store: Store, lines: list[str], *, shared: bool, threads: int = 1) -> speed.Speed | None:
    return speed.speed_of_this_machine(store, threads=threads, device="cpu", shared=shared, log=lines.append)


def test_a_store_of_one_machine_needs_no_calibration(store: Store, measured: list[Machine]) -> None:
    lines: list[str] = []
    assert of_here(store, lines, shared=False) is None
    assert (measured, lines, store.machines()) == ([], [], [])


def test_the_first_machine_of_a_shared_store_becomes_the_reference(store: Store, measured: list[Machine]) -> None:
    lines: list[str] = []
    found = of_here(store, lines, shared=True)
    assert found is not None
    assert found.factor == 1.0
    assert len(lines) == len(measured) == 1
    assert [one.name for one in store.machines()] == ["here"]
    again = of_here(store, lines, shared=True)
    assert again is not None
    assert again.machine == found.machine
    assert len(measured) == 1, "once is enough"


def test_a_second_machine_is_calibrated_wherever_the_store_is(store: Store, measured: list[Machine]) -> None:
    store.add_machine(calibrated("other", 1.0, {**HERE, "host": "other"}))
    found = of_here(store, [], shared=False)
    assert found is not None
    assert found.factor == 2.0
    assert len(measured) == 1


def test_trials_with_other_threads_are_calibrated_anew(store: Store, measured: list[Machine]) -> None:
    of_here(store, [], shared=True)
    of_here(store, [], shared=True, threads=2)
    assert [one.facts["threads"] for one in measured] == [1, 2]


def test_facts_are_plain_and_complete() -> None:
    assert set(IDENTITY) == set(HERE)
    assert HERE["gpus"] == []
    assert HERE["torch"]


@pytest.mark.slow
def test_a_real_calibration_is_stored_and_found_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "CALIBRATION_SECONDS", 0.01)  # two rounds
    monkeypatch.setattr(speed, "NOTABLE_SPREAD", -1.0)
    lines: list[str] = []
    added = speed.calibrate(store, HERE, log=lines.append)
    assert added.calibration_seconds > 0.0
    assert added.facts["rounds"] == 2
    assert lines[0].startswith("the calibration is uncertain: its rounds differ by ")
    (kept,) = store.machines()
    assert dataclasses.replace(kept, measured_at=added.measured_at) == added
    found = of_here(store, lines, shared=False)
    assert found is not None
    assert found.machine.name == added.name


def test_a_calibration_that_fails_is_one_line(store: Store) -> None:
    with pytest.raises(TrialFailed, match=r"^the calibration of this machine failed: train\.device 'cuda:99' is not"):
        speed.calibrate(store, {**HERE, "device": "cuda:99"}, log=print)
    assert store.machines() == []
