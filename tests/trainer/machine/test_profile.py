"""A profile from a run's events and its stopwatch, on a clock that the test sets."""

from typing import Any

import pytest
import torch
from event_log import EventLog

from protein.trainer.machine import stopwatch
from protein.trainer.machine.stopwatch import SECTIONS, Profile, Profiler, Stopwatch


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopwatch, "perf_counter", clock)
    return clock


def event(name: str, **values: int) -> Any:
    """An event with only the keys that a profile reads."""
    return {"event": name, **values}


def train(
    watch: Stopwatch, clock: Clock, report: Profiler, *, unseen: float = 0.0, pause: float = 2.0, first_step: int = 0
) -> None:
    """A run of four iterations with a checkpoint after each, then an evaluation; `unseen` seconds before it begins."""
    clock.now += 3.0  # start-up
    report(event("start", steps=first_step))
    clock.now += unseen
    for count in range(1, 5):
        for section, seconds in (("environment", 1.0), ("update_backward", 3.0), ("logging", 0.0)):
            watch.switch(section)
            clock.now += seconds
        report(event("measurement", steps=first_step + 1000 * count))
        clock.now += 0.5  # what the report takes is part of the section that it is called in
        watch.stop()
        clock.now += pause
    clock.now += 100.0
    report(event("result", steps=first_step + 4000))


def test_the_sections_are_held_against_the_wall_clock(clock: Clock) -> None:
    watch, seen = Stopwatch(torch.device("cpu")), EventLog()
    profiler = Profiler(watch, seen.record)
    train(watch, clock, profiler)
    assert [event["event"] for event in seen] == ["start", *["measurement"] * 4, "result"]
    result = profiler.profile()
    assert {name: spent for name, spent in result.seconds.items() if spent} == {
        "environment": 4.0,
        "update_backward": 12.0,
        "logging": 1.5,  # the last report comes after the end of what is held against each other
    }
    assert (result.paused_seconds, result.wall_seconds, result.steps) == (6.0, 23.5, 4000)
    assert result.total_seconds == 17.5
    assert result.gap == pytest.approx(6.0 / 23.5)
    lines = result.lines()
    assert len(lines) == 1 + len(SECTIONS) + 3  # heading, sum, wall clock, warning
    assert lines[1].split() == ["environment", "4.000", "22.9", "%", "1,000,000.0"]
    assert lines[-3].split() == ["sum", "17.500", "100.0", "%", "4,375,000.0"]
    assert lines[-2].split() == ["wall", "clock", "23.500", "the", "sum", "is", "25.53", "%", "less"]
    assert lines[-1] == (
        "warning: sum and wall clock differ by 25.5 %, more than 2 %; reports and checkpoints took 6.000 s,"
        " the rest is in no section"
    )


@pytest.mark.parametrize(("unseen", "warned"), [(0.3, False), (0.4, True)])
def test_the_warning_begins_at_two_percent(clock: Clock, unseen: float, warned: bool) -> None:
    watch = Stopwatch(torch.device("cpu"))
    profiler = Profiler(watch, lambda event: None)
    train(watch, clock, profiler, unseen=unseen, pause=0.0)
    result = profiler.profile()
    assert result.gap == pytest.approx(unseen / (17.5 + unseen))
    assert result.lines()[-1].startswith("warning: ") is warned


def test_time_that_is_counted_twice_is_a_warning_too() -> None:
    twice = Profile(seconds={"copy": 11.0}, paused_seconds=0.0, wall_seconds=10.0, steps=5)
    *_, comparison, warning = twice.lines()
    assert comparison.endswith("the sum is 10.00 % more")
    assert warning.startswith("warning: sum and wall clock differ by 10.0 %, more than 2 %;")


def test_a_resumed_run_profiles_only_its_own_steps(clock: Clock) -> None:
    watch = Stopwatch(torch.device("cpu"))
    profiler = Profiler(watch, lambda event: None)
    train(watch, clock, profiler, first_step=7000)
    assert profiler.profile().steps == 4000


def test_a_run_that_measured_nothing_has_an_empty_profile() -> None:
    events = EventLog()
    profiler = Profiler(Stopwatch(torch.device("cpu")), events.record)
    profiler(event("start", steps=0))
    profiler(event("interrupted"))
    result = profiler.profile()
    assert (result.total_seconds, result.wall_seconds, result.steps, result.gap) == (0.0, 0.0, 0, 0.0)
    assert result.lines()[-1].endswith("the sum is 0.00 % less")
