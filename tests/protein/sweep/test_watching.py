"""What is watched while trials run: disk, memory, and costs that cannot be true."""

import collections
import threading
from pathlib import Path

import psutil
import pytest
import small_sweep
from sweep_control import found, teller, told

from protein import Protein
from protein.errors import UsageError
from protein.ports import SweepStatus
from protein.sweep import trouble
from protein.types import TrialEnd, TrialState


def test_a_cost_that_cannot_be_true_ends_the_trial_and_is_not_stored(tmp_path: Path) -> None:
    spec = small_sweep.sweep_spec(behaviour="costs too much")
    status = small_sweep.sweep(tmp_path, spec=spec, max_trials=1)
    [trial] = status.trials
    assert (trial.end, trial.curve) == (TrialEnd.CRASHED, ())
    assert trial.reason.startswith("reported a cost of 1e+300 s, beyond the limit of 1e+09 s (31 years)")
    assert status.spent_seconds < 600.0
    engine = Protein(small_sweep.space())
    with pytest.raises(UsageError, match=r"cost_seconds must be at most 1e\+09 s"):
        engine.observe({"train.score": 0.5, "train.cost": 0.5}, score=1.0, cost_seconds=1e300)


Usage = collections.namedtuple("Usage", "free")
Memory = collections.namedtuple("Memory", "total available")


def test_too_little_disk_holds_trials_back_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "CHECK_SECONDS", 0.0)
    free = [100 << 20]
    monkeypatch.setattr(psutil, "disk_usage", lambda path: Usage(free[0]))

    class MakeRoom(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                assert not status.trials
                free[0] = 10 << 30

    listener = MakeRoom()
    status = small_sweep.sweep(
        tmp_path, listener=listener, budget_seconds=None, max_trials=2, on_trouble=teller(tmp_path)
    )
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2
    first, second = listener.lines
    assert first.startswith("no trial is started: 100 MiB are free on the disk of ")
    assert first.endswith(", below the limit of 512 MiB")
    assert second == "there is room again: trials start again"
    assert len(told(tmp_path)) == 1 and not status.trouble


def test_a_stop_ends_a_sweep_that_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda path: Usage(0))
    stop = threading.Event()

    class StopSoon(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            stop.set()

    assert small_sweep.sweep(tmp_path, listener=StopSoon(), stop=stop).ended == "interrupted"


def test_too_little_memory_ends_the_youngest_trial_which_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trouble, "CHECK_SECONDS", 0.0)
    available = [8 << 30]
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(16 << 30, available[0]))
    for number in (0, 1):
        (tmp_path / "trials").mkdir(exist_ok=True)
        (tmp_path / "trials" / f"hang-{number:04d}").write_text("2 saved")

    class Shrink(small_sweep.Lines):
        def update(self, status: SweepStatus) -> None:
            if len(status.trials) == 2 and all(trial.steps == 2 for trial in status.trials):  # both hang, once
                available[0] = 1 << 20
            if any(trial.state is TrialState.WAITING for trial in status.trials):
                stop.set()

    stop, listener = threading.Event(), Shrink()
    spec = small_sweep.sweep_spec(behaviour="saves")
    small_sweep.sweep(tmp_path, spec=spec, listener=listener, stop=stop, workers=2, budget_seconds=None, max_trials=2)
    reasons = [trial.reason for trial in found(tmp_path)[1]]
    assert reasons[1].startswith("preempted: 1 MiB of this machine's memory are free, below the limit of ")
    ended = [line for line in listener.lines if "is ended" in line]
    assert ended[0] == "trial 1 is ended, so that the system need not kill one"
    available[0] = 8 << 30
    status = small_sweep.sweep(tmp_path, spec=spec, workers=2, budget_seconds=None, max_trials=2)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2


def test_the_disk_of_a_folder_that_does_not_exist_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    watch = trouble.Watch([tmp_path / "a" / "b"])
    assert watch.look() and not watch.look()
    assert watch.disk == ""
