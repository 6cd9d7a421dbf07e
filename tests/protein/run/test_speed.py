"""Costs of several machines in the seconds of the reference machine."""

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from protein.ports import Finished, Job, TrialProgress
from protein.run.speed import IDENTITY, find, in_reference, own_limits, speed
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
    assert speed([slow, fast], slow) == 1.0
    assert speed([slow, fast], fast) == 2.0
    assert speed([fast, slow], slow) == 0.5


@pytest.mark.parametrize("changed", IDENTITY)
def test_a_machine_that_has_changed_is_another_one(changed: str) -> None:
    known = [machine("a", 1.0)]
    assert find(known, FACTS) is known[0]
    assert find(known, {**FACTS, changed: "other"}) is None


def test_the_newest_calibration_counts_and_the_reference_stays() -> None:
    first, again = machine("a", 1.0), machine("a again", 0.8, day=1)
    assert find([first, again], FACTS) is again
    assert speed([first, again], again) == 1.25


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
    mine = own_limits(job({"params": {}, "max_seconds": 60.0}), 2.0)
    assert mine.config["max_seconds"] == 30.0
    assert own_limits(job({"params": {}, "max_seconds": None}), 2.0).config["max_seconds"] is None


def test_the_trainers_limit_stays_because_its_clock_runs_in_reference_seconds() -> None:
    assert own_limits(job(TRAINERS), 2.0).config == TRAINERS


def test_a_slow_machine_has_more_wall_clock_before_a_trial_counts_as_hung() -> None:
    assert own_limits(job(TRAINERS), 0.5).max_seconds == 1800.0
    assert own_limits(job(TRAINERS), 2.0).max_seconds == 900.0
    assert own_limits(job(TRAINERS, max_seconds=None), 0.5).max_seconds is None


def test_a_job_on_the_reference_machine_stays() -> None:
    before = job({"max_seconds": 60.0})
    assert dataclasses.asdict(own_limits(before, 1.0)) == dataclasses.asdict(before)
