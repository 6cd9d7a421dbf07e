"""What is due when in a run of any kind, and when the step size begins to fall."""

import dataclasses
import math
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from protein.trainer.config import TrainConfig
from protein.trainer.machine.checkpoint import Checkpoint
from protein.trainer.machine.distributed import World
from protein.trainer.machine.precision import Arithmetic
from protein.trainer.machine.stopwatch import Stopwatch
from protein.trainer.progress import Progress, RunContext
from protein.trainer.settings import LRSchedule


@pytest.mark.parametrize(("steps", "is_next"), [(0, False), (60, False), (70, True), (80, False), (90, False)])
def test_the_decay_begins_in_the_step_whose_middle_is_past_it(
    steps: int, is_next: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It begins after 75 of 100 steps: the batch of 70 to 80 has its middle there."""
    for schedule, extends in (("wsd", True), ("wsd", False), ("cosine", True)):
        settings = {"lr_schedule": schedule, "decay_fraction": 0.26}
        progress = make_progress(False, [0.0], monkeypatch, extends=extends, **settings)
        progress.steps = steps
        assert progress.decay_is_next(10) is (is_next and schedule == "wsd" and extends)


@pytest.mark.parametrize(
    ("schedule", "fraction", "stays"),
    [("constant", 1.0, True), ("wsd", 0.7, True), ("wsd", 0.8, False), ("cosine", 0.1, False), ("linear", 0.1, False)],
)
def test_a_longer_run_goes_on_from_where_the_rate_has_not_fallen(
    schedule: LRSchedule, fraction: float, stays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for extends in (True, False):
        progress = make_progress(False, [0.0], monkeypatch, extends=extends, lr_schedule=schedule)
        progress.steps = round(100 * fraction) - 1
        progress.advance(2)  # its middle
        assert progress.can_go_on is (stays and extends)


def make_progress(
    by_time: bool, clock: list[float], monkeypatch: pytest.MonkeyPatch, *, extends: bool = True, **settings: Any
) -> Progress:
    """Of a run of 100 steps and 50 seconds on a clock that a test sets; `wsd` falls over the last quarter."""
    monkeypatch.setattr("protein.trainer.progress.time.perf_counter", lambda: clock[0])
    train = TrainConfig(**{"max_seconds": 50.0, "lr_schedule": "wsd", "decay_fraction": 0.25, **settings})
    context = make_context()
    options = {"total_steps": 100, "steps_name": "train.total_tokens", "by_time": by_time, "extends": extends}
    return Progress(train, context, **options)  # type: ignore[arg-type]


def make_context(processes: int = 1) -> RunContext:
    return RunContext(
        device=torch.device("cpu"),
        threads=1,
        arithmetic=Arithmetic(torch.device("cpu"), 1, "fp32"),
        directory=None,
        report=lambda event: None,
        stop=threading.Event(),
        stopwatch=Stopwatch(torch.device("cpu")),
        world=World(size=processes),
        speed=1.0,
    )


def test_checkpoints_are_due_by_their_interval_and_lie_further_apart_where_they_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a clock that a checkpoint sets forward by .3 seconds: at most 1 % of the time is every 30 seconds."""
    clock = [0.0]

    def write(path: Path) -> None:
        clock[0] += 0.3

    def due_at(seconds: float) -> bool:
        progress.elapsed = seconds
        return progress.checkpoint_due

    for processes, interval, next_at in ((1, 10.0, 45.0), (2, 10.0, 25.0), (1, 0.0, math.inf)):
        train = TrainConfig(checkpoint_seconds=interval, total_timesteps=100)
        monkeypatch.setattr("protein.trainer.progress.time.perf_counter", lambda: clock[0])
        context = dataclasses.replace(make_context(processes), directory=tmp_path)
        progress = Progress(train, context, total_steps=100, steps_name="train.total_timesteps")
        progress.elapsed = 5.0
        monkeypatch.setattr(progress, "_agree", lambda: None)  # there is no other process
        progress.begin()
        assert not due_at(14.9) and due_at(15.0) is bool(interval)
        progress.between_steps(write, 10)
        assert not due_at(min(next_at - 0.1, 1e9)) and due_at(min(next_at, 1e9)) is bool(interval)


def test_reports_are_due_by_the_share_that_is_done_and_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = make_progress(False, [0.0], monkeypatch)
    progress.begin()

    def due_at(steps: int, seconds: float) -> bool:
        progress.steps, progress.elapsed = steps, seconds
        return progress.report_due

    assert not due_at(1, 5.0) and due_at(2, 5.0)
    assert not due_at(2, 0.4) and due_at(1, 10.0)
    assert progress.unreported
    due_at(2, 5.0)
    progress.report(None, {})
    assert not progress.unreported and not due_at(3, 9.0) and due_at(4, 9.0)


def make_steps(progress: Progress, clock: list[float], number: int, seconds: float) -> list[tuple[float, bool]]:
    """Makes steps of 2; returns the progress of each, and whether the fall begins with it."""
    made = []
    for _ in range(number):
        made.append((progress.fraction(2), progress.decay_is_next(2)))
        progress.begin_step()
        clock[0] += seconds
        progress.advance(2)
        progress.end_step()
    return made


@pytest.mark.parametrize(("seconds", "first_falling"), [(2.0, 19), (0.5, 38)])
def test_the_schedule_ends_at_the_nearer_limit(
    seconds: float, first_falling: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of 2 s: time ends the run after 25 of 50 steps; the fall begins after 37.5 s. Of .5 s: its steps do."""
    clock = [0.0]
    progress = make_progress(True, clock, monkeypatch)
    made = make_steps(progress, clock, 24, seconds) if seconds == 2.0 else make_steps(progress, clock, 50, seconds)
    assert [number for number, (_, falls) in enumerate(made) if falls] == [first_falling]
    assert [progress for progress, _ in made] == sorted(progress for progress, _ in made)
    assert made[0][0] == 0.01 and made[-1][0] == (46 / 50 if seconds == 2.0 else 0.99)
    assert not progress.can_go_on
    tokens = make_progress(False, clock, monkeypatch)
    found = [progress for progress, _ in make_steps(tokens, clock, 24, seconds)]
    assert found == pytest.approx([0.02 * n + 0.01 for n in range(24)])


def test_a_resumed_run_goes_on_at_its_share_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    straight = make_steps(make_progress(True, clock, monkeypatch), clock, 24, 2.0)
    for cut in (5, 19, 22):
        saved = Checkpoint(
            kind="language", subject="x", config={}, steps=2 * cut, elapsed_seconds=2.0 * cut, score=None, tensors={}
        )
        resumed = make_progress(True, clock, monkeypatch)
        resumed.resume(Path("none"), {Path("none"): saved}.__getitem__)
        assert resumed.done == 2.0 * cut / 50.0
        assert make_steps(resumed, clock, 24 - cut, 2.0)[1:] == straight[cut + 1 :]


def test_a_stop_ends_no_step_and_costs_no_more_than_the_longest_step(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, stops = [0.0], [0]
    monkeypatch.setattr("protein.trainer.progress.pauses.count", lambda: stops[0])
    progress = make_progress(False, clock, monkeypatch)
    make_steps(progress, clock, 3, 2.0)
    progress.begin_step()
    clock[0] += 43.9
    assert not progress.time_is_up() and progress.spent_seconds == 6.0 + 43.9
    clock[0] += 1800.0
    assert progress.time_is_up(), "it was in that step all the time"
    stops[0] += 1
    assert not progress.time_is_up() and progress.spent_seconds == 8.0, "it was stopped"
    progress.end_step()
    assert progress.elapsed == progress.spent_seconds == 8.0 and progress.ended() is None
    make_steps(progress, clock, 20, 2.0)
    progress.begin_step()
    clock[0] += 1800.0
    stops[0] += 1
    assert progress.time_is_up(), "no other step fits"


def test_without_a_limit_of_time_the_schedule_ends_with_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    progress = make_progress(True, clock, monkeypatch, max_seconds=0.0)
    make_steps(progress, clock, 10, 1e6)
    assert progress.done == 0.2 and progress.can_go_on


def test_a_last_step_beyond_the_end_still_has_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run of 100 steps in one of 1,024 goes by its middle, too: at its end, the step size would be 0."""
    progress = make_progress(False, [0.0], monkeypatch, decay_fraction=0.0)
    assert progress.fraction(1024) == 0.5
    assert not progress.decay_is_next(1024), "without a decay the step size never falls"
