"""The stopwatch on a clock that the test sets: every moment in one section, pauses apart, and a bounded trace."""

import json
from pathlib import Path

import pytest
import torch
from full_disk import largest_file

from protein.trainer.machine import stopwatch
from protein.trainer.machine.stopwatch import SECTIONS, Stopwatch

CPU = torch.device("cpu")


class Clock:
    """Time stands still until `pass_`."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(stopwatch, "perf_counter", clock)
    return clock


def iterations(watch: Stopwatch, clock: Clock, count: int) -> None:
    """As a run does: switches all the time, and stops in between, where a checkpoint is written."""
    for _ in range(count):
        watch.switch("environment")
        clock.pass_(0.25)
        watch.switch("rollout_forward")
        clock.pass_(0.5)
        watch.switch("update_backward")
        clock.pass_(1.0)
        watch.stop()
        clock.pass_(8.0)


def test_every_moment_is_in_one_section_or_in_a_pause(clock: Clock) -> None:
    watch = Stopwatch(CPU)
    assert watch.seconds == dict.fromkeys(SECTIONS, 0.0)
    clock.pass_(5.0)  # before the first switch it is not running
    iterations(watch, clock, 4)
    assert {name: spent for name, spent in watch.seconds.items() if spent} == {
        "environment": 1.0,
        "rollout_forward": 2.0,
        "update_backward": 4.0,
    }
    assert sum(watch.seconds.values()) == 7.0
    assert watch.paused_seconds == 3 * 8.0  # what follows the last stop is the caller's


def test_the_running_section_is_not_yet_counted_and_may_be_entered_again(clock: Clock) -> None:
    watch = Stopwatch(CPU)
    watch.switch("copy")
    clock.pass_(2.0)
    assert sum(watch.seconds.values()) == 0.0
    watch.switch("copy")
    clock.pass_(3.0)
    watch.stop()
    watch.stop()
    assert (watch.seconds["copy"], sum(watch.seconds.values()), watch.paused_seconds) == (5.0, 5.0, 0.0)


def test_reset_forgets_what_was_no_training(clock: Clock, tmp_path: Path) -> None:
    watch = Stopwatch(CPU, trace=True)
    iterations(watch, clock, 3)
    watch.switch("copy")
    watch.reset()
    assert (sum(watch.seconds.values()), watch.paused_seconds, set(watch.seconds)) == (0.0, 0.0, set(SECTIONS))
    clock.pass_(30.0)
    iterations(watch, clock, 2)
    assert (sum(watch.seconds.values()), watch.paused_seconds) == (3.5, 8.0)
    watch.write_trace(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"][1:]
    assert (len(events), events[0]["ts"]) == (6, 0.0)


def test_a_section_that_is_none_is_refused_where_it_is_entered() -> None:
    with pytest.raises(AssertionError, match="enviroment"):
        Stopwatch(CPU).switch("enviroment")


def test_real_time_adds_up_exactly() -> None:
    watch = Stopwatch(CPU, trace=True)
    for count in range(300):
        watch.switch(SECTIONS[count % len(SECTIONS)])
    watch.stop()
    assert watch._intervals is not None
    assert sum(watch.seconds.values()) == pytest.approx(watch._intervals[-1][2] - watch._intervals[0][1], rel=1e-9)
    assert all(
        before[2] == after[1] for before, after in zip(watch._intervals, list(watch._intervals)[1:], strict=False)
    )


def test_a_trace_holds_every_interval_in_microseconds_from_the_first_switch(clock: Clock, tmp_path: Path) -> None:
    watch = Stopwatch(CPU, trace=True)
    iterations(watch, clock, 2)
    watch.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    naming, *events = trace["traceEvents"]
    assert (naming["ph"], naming["args"]) == ("M", {"name": "training"})
    assert all((event["ph"], event["pid"], event["tid"]) == ("X", naming["pid"], naming["tid"]) for event in events)
    assert [(event["name"], event["ts"], event["dur"]) for event in events[2:4]] == [
        ("update_backward", 750_000.0, 1_000_000.0),
        ("environment", 9_750_000.0, 250_000.0),
    ]
    for name in SECTIONS:
        assert sum(event["dur"] for event in events if event["name"] == name) == watch.seconds[name] * 1e6
    assert trace["otherData"] == {"dropped_intervals": 0}


def test_a_long_trace_keeps_the_last_intervals_and_says_so(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stopwatch, "TRACE_INTERVALS", 4)
    watch = Stopwatch(CPU, trace=True)
    iterations(watch, clock, 100)
    watch.write_trace(tmp_path / "trace.json")
    trace = json.loads((tmp_path / "trace.json").read_text())
    names = [event["name"] for event in trace["traceEvents"][1:]]
    assert names == ["update_backward", "environment", "rollout_forward", "update_backward"]
    assert trace["traceEvents"][-1]["ts"] == (99 * 9.75 + 0.75) * 1e6
    assert trace["otherData"] == {"dropped_intervals": 296}
    assert sum(watch.seconds.values()) == 175.0  # the sums forget nothing


def test_a_trace_that_does_not_fit_leaves_the_old_one(clock: Clock, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    Stopwatch(CPU, trace=True).write_trace(path)
    before = path.read_bytes()
    watch = Stopwatch(CPU, trace=True)
    iterations(watch, clock, 100)
    with largest_file(len(before)), pytest.raises(OSError, match="File too large"):
        watch.write_trace(path)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"trace.json": before}


def test_a_trace_without_any_interval_is_still_one(tmp_path: Path) -> None:
    Stopwatch(CPU, trace=True).write_trace(tmp_path / "trace.json")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == 1


@pytest.mark.parametrize(("kind", "exact", "waits"), [("cuda:1", True, 3), ("cuda", False, 0), ("cpu", True, 0)])
def test_only_an_exact_one_waits_for_the_device(
    kind: str, exact: bool, waits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    watch = Stopwatch(torch.device(kind), exact=exact)
    watch.switch("environment")
    watch.switch("copy")
    watch.stop()
    assert waited == [torch.device(kind)] * waits  # its own one, whichever is the current one
