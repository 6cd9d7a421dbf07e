"""Which slot gets which trial, and what becomes of trials whose slots are lost, without other machines."""

import dataclasses
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from protein.ports import Finished, Job, TrialProgress
from protein.run.fleet import Fleet, Lost, News, RemoteSlot
from protein.run.ray import RayTransport, Wanted
from protein.run.slot import Calibrating, Close, Facts, Leaving, Ready, SlotSettings, Stop, version
from protein.run.trainer import TrainerBackend
from protein.types import Machine, Measurement, Outcome, Trial, TrialEnd


class Wire:
    """A transport to nowhere, which a test speaks for.

    Attributes:
        news: what comes next.
        sent: messages and the slots they went to.
        num_jobs: for how many jobs slots are wanted.
    """

    settings: SlotSettings

    def __init__(self) -> None:
        self.news: list[News] = []
        self.sent: list[tuple[RemoteSlot, Any]] = []
        self.num_jobs = 0

    def start(self, settings: SlotSettings, note: Callable[[str], None]) -> None:
        self.settings = settings

    def start_slots(self, num_jobs: int) -> None:
        self.num_jobs = num_jobs

    def num_slots(self) -> int:
        return 1

    def receive(self, timeout_seconds: float) -> list[News]:
        news, self.news = self.news, []
        return news

    def send(self, slot: RemoteSlot, message: Job | Stop | Close) -> None:
        self.sent.append((slot, message))

    def close(self) -> None: ...


@pytest.fixture
def wire() -> Wire:
    return Wire()


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def fleet(wire: Wire, notes: list[str], tmp_path: Path) -> Fleet:
    return Fleet(wire, SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe=""), note=notes.append)


def ready(seconds_left: float | None = None) -> Ready:
    return Ready(facts=Facts(host="n", version=version(), shares_artifacts=True), seconds_left=seconds_left)


def job(folder: Path, number: int = 0, *, cap: float | None = None, **changes: Any) -> Job:
    trial = Trial(id=100 + number, sweep_id=1, number=number, params={}, seed=0, owner="test")
    made = Job(
        trial=trial,
        config={"max_seconds": cap},
        directory=folder / f"{number:04d}",
        max_seconds=None,
        max_memory_bytes=None,
    )
    return dataclasses.replace(made, **changes)


def test_a_trial_that_is_ended_before_it_has_a_slot_keeps_what_its_runs_before_have_cost(
    fleet: Fleet, tmp_path: Path
) -> None:
    one = job(tmp_path, spent_seconds=100.0, steps_behind=7)
    fleet.start(one)
    fleet.stop(one.trial, TrialEnd.OUT_OF_BUDGET, "no budget")
    (finished,) = fleet.poll(0.0)
    assert isinstance(finished, Finished)
    assert (finished.outcome.end, finished.outcome.reason) == (TrialEnd.OUT_OF_BUDGET, "no budget")
    assert (finished.outcome.cost_seconds, finished.outcome.steps) == (100.0, 7)


def test_a_job_waits_for_a_slot_and_a_lost_slot_gives_back_its_trial_alone(
    fleet: Fleet, wire: Wire, tmp_path: Path
) -> None:
    first, second = job(tmp_path, 0), job(tmp_path, 1)
    fleet.start(first)
    fleet.start(second)
    assert (wire.sent, wire.num_jobs) == ([], 2)
    slot = RemoteSlot()
    point = Measurement(steps=3, elapsed_seconds=1.5, score=0.5)
    wire.news += [(slot, ready())]
    assert fleet.poll(0.0) == []
    assert [message.trial.number for _, message in wire.sent] == [0], "a slot runs one trial at a time"
    wire.news += [(slot, TrialProgress(trial=first.trial, measurements=(point,))), (slot, Lost(why="node n died"))]
    *_, finished = fleet.poll(0.0)
    assert isinstance(finished, Finished)
    outcome = finished.outcome
    assert (outcome.end, outcome.reason) == (TrialEnd.INTERRUPTED, "preempted: node n died")
    assert (outcome.cost_seconds, outcome.steps) == (1.5, 3)
    assert wire.num_jobs == 2, "what the transport does now may take long, or end the sweep"
    fleet.poll(0.0)
    assert wire.num_jobs == 1, "the second one still waits"
    wire.news += [(RemoteSlot(), ready())]
    fleet.poll(0.0)
    assert wire.sent[-1][1].trial.number == 1


def test_what_a_node_says_of_its_speed_is_told_once(fleet: Fleet, wire: Wire, notes: list[str]) -> None:
    facts = Facts(host="n", version=version(), shares_artifacts=True, problem="the calibration is uncertain")
    wire.news += [(None, facts), *((RemoteSlot(), Ready(facts=facts, seconds_left=None)) for _ in range(2))]
    fleet.poll(0.0)
    assert notes == ["node n: the calibration is uncertain"]


def test_reports_that_have_come_at_once_are_one_for_each_trial(fleet: Fleet, wire: Wire, tmp_path: Path) -> None:
    """Each one is a transaction of the store: a sweep with many workers writes more of them at once."""
    jobs, slots = [job(tmp_path, 0), job(tmp_path, 1)], [RemoteSlot(), RemoteSlot()]
    points = [Measurement(steps=steps, elapsed_seconds=1.0, score=0.5) for steps in range(3)]
    for slot, one in zip(slots, jobs, strict=True):
        wire.news += [(slot, ready())]
        fleet.start(one)
    fleet.poll(0.0)
    reports = [
        (slot, TrialProgress(trial=one.trial, measurements=(point,)))
        for slot, one in zip(slots, jobs, strict=True)
        for point in points
    ]
    end = Finished(trial=jobs[1].trial, outcome=Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0))
    wire.news += [*reports, (slots[1], end)]
    first, second, last = fleet.poll(0.0)
    assert first == TrialProgress(trial=jobs[0].trial, measurements=tuple(points))
    assert second == TrialProgress(trial=jobs[1].trial, measurements=tuple(points))
    assert last == end


def test_a_slot_that_leaves_ends_its_trial_and_gets_no_other(fleet: Fleet, wire: Wire, tmp_path: Path) -> None:
    slot, one = RemoteSlot(), job(tmp_path)
    wire.news += [(slot, ready())]
    fleet.start(one)
    fleet.poll(0.0)
    end = Finished(trial=one.trial, outcome=Outcome(end=TrialEnd.INTERRUPTED, reason="preempted: x", cost_seconds=0.0))
    wire.news += [(slot, Leaving()), (slot, end)]
    assert fleet.poll(0.0) == [end]
    fleet.start(job(tmp_path, 1))
    fleet.poll(0.0)
    assert len(wire.sent) == 1


def test_a_used_slot_without_the_time_for_a_trial_is_closed_and_a_fresh_one_takes_it(
    fleet: Fleet, wire: Wire, notes: list[str], tmp_path: Path
) -> None:
    used, first = RemoteSlot(name="Slurm job 3"), job(tmp_path, cap=3600.0)
    wire.news += [(used, ready(seconds_left=300.0))]
    fleet.num_slots()
    fleet.start(first)
    assert len(wire.sent) == 1, "no fresh one would have more time"
    outcome = Outcome(end=TrialEnd.COMPLETE, reason="", score=1.0, cost_seconds=1.0)
    wire.news += [(used, Finished(trial=first.trial, outcome=outcome))]
    fleet.poll(0.0)
    fleet.start(job(tmp_path, 1, cap=3600.0))
    assert wire.sent[-1] == (used, Close())
    assert notes == ["Slurm job 3 has too little time left for another trial, and ends"]
    fresh = RemoteSlot()
    wire.news += [(fresh, ready(seconds_left=300.0))]
    fleet.poll(0.0)
    assert wire.sent[-1][0] is fresh


@pytest.mark.parametrize(("speed", "has_time"), [(1.0, True), (0.25, False)])
def test_a_trial_takes_longer_on_a_slower_machine(tmp_path: Path, speed: float, has_time: bool) -> None:
    """Its cap is in seconds of the reference machine."""
    slot = RemoteSlot(speed=speed, ends_at=time.monotonic() + 1000.0)
    assert slot.has_time_for(job(tmp_path, cap=600.0)) == has_time


def test_a_job_is_told_how_fast_its_machine_is_and_a_new_machine_is_told_once(
    wire: Wire, notes: list[str], tmp_path: Path
) -> None:
    reference, fast = (
        Machine(name=name, facts={}, calibration_seconds=seconds, measured_at=datetime.now(UTC))
        for name, seconds in (("a", 10.0), ("b", 5.0))
    )
    calibrating = Calibrating(threads=1, device="cpu", known=(reference,))
    settings = SlotSettings(make_backend=TrainerBackend, artifacts=tmp_path, probe="", calibrating=calibrating)
    found: list[Machine] = []
    fleet = Fleet(wire, settings, note=notes.append, on_machine=found.append)
    facts = dataclasses.replace(ready().facts, machine=fast)
    wire.news += [(None, facts), (RemoteSlot(), dataclasses.replace(ready(), facts=facts))]
    fleet.start(job(tmp_path))
    fleet.poll(0.0)
    assert wire.sent[0][1].speed == 2.0
    assert notes == ["node n is 2.00 times as fast as the reference machine, in whose seconds costs are"]
    assert found == [fast]
    assert wire.settings == settings.knowing(fast), "slots that are made later need not measure it again"


def test_ray_is_told_anew_how_many_slots_are_wanted_after_one_was_lost() -> None:
    """Its process wants one slot less then, and would never replace it."""
    sent: list[Any] = []
    transport = RayTransport.__new__(RayTransport)
    transport._driver = SimpleNamespace(closed=False, send=sent.append)  # type: ignore[assignment]
    transport._slots, transport._wanted = {}, 0
    transport.start_slots(4)
    transport.start_slots(4)
    assert sent == [Wanted(number=4)]
    transport._read((7, Lost(why="its node is gone")))
    transport.start_slots(4)
    assert sent == [Wanted(number=4)] * 2
