"""Failures in a row and what they share; and what is watched while trials run: disk, memory, impossible costs."""

import collections
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import pytest
import small_sweep
from sweep_control import found, teller, told

from protein import Protein
from protein.errors import UsageError
from protein.ports import Finished, SweepStatus
from protein.sweep import trouble
from protein.sweep.trouble import Failures, fatal, shared_params
from protein.types import Outcome, Provenance, SuggestionKind, Trial, TrialEnd, TrialRecord, TrialState


def record(number: int, end: TrialEnd, reason: str = "", machine: str = "host", **params: Any) -> TrialRecord:
    return TrialRecord(
        id=number,
        sweep_id=1,
        number=number,
        params=params,
        seed=0,
        owner="",
        kind=SuggestionKind.SEARCH,
        origin="",
        state=end.state,
        end=end,
        score=1.0 if end is TrialEnd.COMPLETE else None,
        reason=reason,
        suggest_seconds=0.0,
        provenance=Provenance(version="", git_commit="", machine=machine, config_hash=""),
        started_at=datetime.now(UTC),
    )


def test_what_failed_trials_share_and_successes_do_not_is_named() -> None:
    good = [record(i, TrialEnd.COMPLETE, lr=0.01 * i, layers=2, kind="relu", width=64) for i in range(3)]
    bad = [record(i, TrialEnd.DIVERGED, lr=0.5 + i, layers=2, kind="tanh", width=64 + i) for i in range(3, 6)]
    assert shared_params(bad, good) == [
        "all have lr >= 3.5, successes at most 0.02",
        "all have kind = tanh, no success has",
        "all have width >= 67, successes at most 64",
    ]
    assert shared_params(bad, []) == []


def test_the_explanation_names_reason_machine_and_log() -> None:
    good = [record(0, TrialEnd.COMPLETE, machine="first", lr=0.1)]
    failures = Failures()
    for i in range(1, 11):
        assert not failures.too_many
        failures.add(record(i, TrialEnd.OUT_OF_MEMORY, "memory: out of memory", "second", lr=0.1))
    assert failures.too_many
    text = failures.explanation(good)
    assert text == (
        "10 trials in a row failed, the last one with: memory: out of memory; all have the same reason;"
        " all ran on second, where no trial has succeeded"
    )


def test_a_program_that_is_gone_is_a_failure_each_time() -> None:
    failures = Failures()
    for i in range(10):
        failures.add(record(i, TrialEnd.MISTAKE, "'train' cannot be started: no such file"))
    assert failures.too_many


def test_a_program_that_cannot_be_loaded_ends_a_sweep_when_it_says_the_same_twice() -> None:
    spec = small_sweep.sweep_spec()
    trial = Trial(id=1, sweep_id=1, number=1, params={}, seed=0, owner="")

    def why(reason: str, *earlier: TrialRecord) -> str:
        outcome = Outcome(end=TrialEnd.USER_ERROR, reason=reason)
        return str(fatal(Finished(trial=trial, outcome=outcome), spec, earlier) or "")

    lacks = "exited with code 1: ModuleNotFoundError: No module named 'lion'"
    failed = record(0, TrialEnd.USER_ERROR, lacks)
    assert why(lacks, failed) == f"trials 0 and 1 failed in the same words: {lacks}. Correct it and run the sweep again"
    assert why(lacks) == "", "only some configs may need the module"
    assert why(lacks, record(0, TrialEnd.USER_ERROR, "ImportError: other")) == ""
    assert why(lacks, failed, record(2, TrialEnd.COMPLETE)) == ""
    diverged = "ValueError: the loss is nan"
    assert why(diverged, record(0, TrialEnd.USER_ERROR, diverged)) == ""


def test_a_success_ends_a_row_and_what_teaches_nothing_does_not_count() -> None:
    failures = Failures()
    for i in range(9):
        failures.add(record(i, TrialEnd.DIVERGED, "x"))
    for end in (TrialEnd.INTERRUPTED, TrialEnd.DISK):
        failures.add(record(20, end, "x"))
    assert not failures.too_many
    failures.add(record(30, TrialEnd.CAPPED))
    for i in range(9):
        failures.add(record(40 + i, TrialEnd.DIVERGED, "x"))
    assert not failures.too_many


# What is watched while trials run: disk, memory, and costs that cannot be true.


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


def test_how_much_disk_must_be_free_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda path: Usage(100 << 20))

    def short(least: int) -> str:
        watch = trouble.Watch([tmp_path], least)
        assert watch.look()
        return watch.disk

    assert short(trouble.MIN_FREE_DISK_OF_STORE_BYTES) == short(100 << 20) == ""
    assert short(101 << 20).endswith(", below the limit of 101 MiB")


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
    watch = trouble.Watch([tmp_path / "a" / "b"], 1)
    assert watch.look() and not watch.look()
    assert watch.disk == ""


def test_only_what_all_failed_trials_and_some_successes_have_is_compared() -> None:
    good = [record(0, TrialEnd.COMPLETE, model="svc", C=1.0, sizes=[64]), record(1, TrialEnd.COMPLETE, model="tree")]
    bad = [record(i, TrialEnd.DIVERGED, model="mlp", lr=0.1, sizes=None, C=9.0) for i in range(2, 4)]
    assert shared_params(bad, good) == [
        "all have model = mlp, no success has",
        "all have sizes = null, no success has",
        "all have C >= 9, successes at most 1",
    ]
    assert shared_params([*bad, record(4, TrialEnd.DIVERGED, model="mlp")], good) == [
        "all have model = mlp, no success has"
    ]
