"""Cancelling, `--until`, commands of the user's, failures in a row, disk and memory, and why a sweep has ended."""

import collections
import dataclasses
import json
import os
import re
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import psutil
import pytest
import sweeping

from protein import Protein, storage
from protein.engine.budget import limit_reached
from protein.engine.designer import RandomDesigner
from protein.errors import UsageError
from protein.ports import Store, SweepStatus
from protein.sweep import hooks, until, watching
from protein.sweep.lease import current_owner
from protein.sweep.trouble import Failures, shared_params
from protein.types import (
    Estimate,
    Provenance,
    Request,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    TrialEnd,
    TrialRecord,
    TrialState,
)


def opened(folder: Path) -> Store:
    return storage.open_store(f"sqlite:///{folder}/protein.db")


def found(folder: Path) -> tuple[SweepRecord, list[TrialRecord]]:
    store = opened(folder)
    try:
        record = store.find_sweep("s")
        assert record is not None
        return record, store.trials(record.id)
    finally:
        store.close()


class AtPoint(sweeping.Lines):
    """Does something once, when the last trial has a point of its curve."""

    def __init__(self, folder: Path, action: Callable[[Store, SweepStatus], None], *, number: int = 0) -> None:
        super().__init__()
        self._folder, self._action, self._number, self._done = folder, action, number, False

    def update(self, status: SweepStatus) -> None:
        super().update(status)
        if not self._done and len(status.trials) > self._number and status.trials[self._number].curve:
            self._done = True
            store = opened(self._folder)
            self._action(store, status)
            store.close()


# Cancelled trials


def test_a_running_trial_is_cancelled_from_outside_and_the_sweep_goes_on(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    listener = AtPoint(tmp_path, lambda store, status: store.cancel(status.sweep.id, [0]))
    spec = sweeping.sweep_spec(behaviour="saves")
    sweeping.sweep(tmp_path, spec=spec, listener=listener, budget_seconds=None, max_trials=2)
    sweep, [first, second] = found(tmp_path)
    assert (first.state, first.end, first.reason) == (TrialState.FAILED, TrialEnd.INTERRUPTED, "cancelled by hand")
    assert first.cost_seconds > 0 and second.end is TrialEnd.COMPLETE
    assert "trial 0 is cancelled" in listener.lines
    assert sweep.ended == limit_reached(2)


def test_a_waiting_trial_that_is_cancelled_is_not_taken_up(tmp_path: Path) -> None:
    stop = threading.Event()
    (tmp_path / "trials").mkdir()
    (tmp_path / "trials" / "hang-0000").write_text("2 saved")
    spec = sweeping.sweep_spec(behaviour="saves")
    sweeping.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    assert found(tmp_path)[1][0].state is TrialState.WAITING
    store = opened(tmp_path)
    store.cancel(1, [0])
    store.close()
    listener = sweeping.Lines()
    sweeping.sweep(tmp_path, listener=listener, budget_seconds=None, max_trials=2)
    assert [trial.number for trial in listener.begun] == [1]
    assert found(tmp_path)[1][0].reason == "cancelled by hand"


# Until


NOW = datetime(2026, 11, 22, 18, 30, tzinfo=timezone(timedelta(hours=1))).astimezone()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("08:00", NOW.replace(hour=8, minute=0) + timedelta(days=1 if NOW.hour >= 8 else 0)),
        ("2026-11-24T07:15", datetime(2026, 11, 24, 7, 15).astimezone()),
        ("2026-11-24 07:15:30", datetime(2026, 11, 24, 7, 15, 30).astimezone()),
        ("2026-11-24T07:15+05:00", datetime(2026, 11, 24, 2, 15, tzinfo=UTC)),
    ],
)
def test_a_time_is_the_next_one_of_the_clock_and_a_date_is_itself(given: str, expected: datetime) -> None:
    assert until.parse(given, "--until", NOW) == expected


def test_the_present_minute_is_tomorrows() -> None:
    moment = until.parse(f"{NOW:%H:%M}", "--until", NOW)
    assert timedelta(hours=22) < moment - NOW <= timedelta(hours=26)


@pytest.mark.parametrize("given", ["", "8", "25:00", "08:00 tomorrow", "2026-11-24", "2026-13-01T00:00", "now"])
def test_what_is_no_time_is_one_line(given: str) -> None:
    with pytest.raises(UsageError, match=r"--until .* is no time; use a time as in 08:00"):
        until.parse(given, "--until", NOW)


def test_a_date_that_has_passed_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"--until 2026-11-21T08:00 has passed: now it is"):
        until.parse("2026-11-21T08:00", "--until", NOW)


class ExpectAnHour(RandomDesigner):
    """Expects each trial but the first to cost an hour."""

    def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
        suggestion = super().suggest(history, *args, **keywords)
        cost = Estimate(value=3600.0, low=3000.0, high=4000.0)
        if suggestion is None or not history:
            return suggestion
        return dataclasses.replace(suggestion, predicted_cost_seconds=cost)


def test_no_trial_starts_that_is_not_expected_to_end_in_time(tmp_path: Path) -> None:
    end = datetime.now(UTC) + timedelta(minutes=30)
    designer = ExpectAnHour(sweeping.space(), None)
    status = sweeping.sweep(tmp_path, designer=designer, budget_seconds=None, until=end)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE]
    clock = f"{end.astimezone():%H:%M}"
    assert status.ended == f"no further trial is expected to end by {clock}, as --until says"
    assert found(tmp_path)[0].ended == status.ended and not status.trouble


def test_at_the_time_what_runs_is_stopped_and_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [datetime.now(UTC)]

    class Clock:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            return clock[0]

    monkeypatch.setattr("protein.sweep.loop.datetime", Clock)
    end = clock[0] + timedelta(hours=1)

    def set_clock(store: Store, status: SweepStatus) -> None:
        clock[0] = end

    status = sweeping.sweep(
        tmp_path,
        spec=sweeping.sweep_spec(behaviour="hang"),
        listener=AtPoint(tmp_path, set_clock),
        budget_seconds=None,
        until=end,
    )
    assert [trial.state for trial in status.trials] == [TrialState.WAITING]
    assert status.ended == f"it is {end.astimezone():%H:%M}, as --until says"


# Commands of the user's


def teller(folder: Path) -> str:
    """Returns a command that writes what it was told."""
    code = "import json, os; print(json.dumps({k: v for k, v in os.environ.items() if k.startswith('PROTEIN_')}))"
    return f'{sys.executable} -c "{code}" >> {folder}/told'


def told(folder: Path) -> list[dict[str, str]]:
    file = folder / "told"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def test_a_command_is_called_at_the_end_with_the_facts(tmp_path: Path) -> None:
    status = sweeping.sweep(
        tmp_path,
        budget_seconds=None,
        max_trials=2,
        on_finish=teller(tmp_path),
        on_trouble="false",
        store="postgresql://host/db",
    )
    best = max(status.trials, key=lambda trial: trial.score or 0.0)
    [facts] = told(tmp_path)
    spent = sum(trial.cost_seconds for trial in status.trials)
    assert facts == {
        "PROTEIN_SWEEP": "s",
        "PROTEIN_REASON": status.ended,
        "PROTEIN_BEST_SCORE": repr(best.score),
        "PROTEIN_BEST_TRIAL": str(best.number),
        "PROTEIN_TRIALS": "2",
        "PROTEIN_SPENT_SECONDS": f"{spent:.3f}",
        "PROTEIN_STORE": "postgresql://host/db",
    }


def test_trouble_calls_the_other_command_and_a_stop_by_hand_none(tmp_path: Path) -> None:
    commands: dict[str, Any] = {"on_finish": "false", "on_trouble": teller(tmp_path)}
    listener = sweeping.Lines()
    spec = sweeping.sweep_spec(behaviour="diverge")
    status = sweeping.sweep(tmp_path, spec=spec, budget_seconds=None, listener=listener, **commands)
    assert status.trouble and [facts["PROTEIN_REASON"] for facts in told(tmp_path)] == [status.ended]
    assert listener.lines == []

    stop = threading.Event()
    stop.set()
    sweeping.sweep(tmp_path, spec=spec, budget_seconds=None, stop=stop, listener=listener, **commands)
    assert len(told(tmp_path)) == 1 and listener.lines == []
    assert found(tmp_path)[0].ended == "interrupted"


def test_an_error_is_trouble_and_is_stored(tmp_path: Path) -> None:
    spec = sweeping.sweep_spec(behaviour="full disk")
    with pytest.raises(UsageError):
        sweeping.sweep(tmp_path, spec=spec, on_trouble=teller(tmp_path))
    sweep, _ = found(tmp_path)
    assert sweep.ended.startswith("error: trial 0 failed, disk: no space is left")
    assert told(tmp_path)[0]["PROTEIN_REASON"] == sweep.ended


def test_a_sweep_that_is_refused_beside_another_changes_nothing_and_calls_nothing(tmp_path: Path) -> None:
    store = opened(tmp_path)
    record = sweeping.find_or_create(store, sweeping.sweep_spec())
    store.set_ended(record.id, "before")
    suggestion = Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test")
    provenance = record.spec.provenance
    store.start_trial(
        record.id,
        suggestion,
        seed=0,
        owner=current_owner(),
        lease_seconds=60.0,
        suggest_seconds=0.0,
        provenance=provenance,
    )
    store.close()
    with pytest.raises(UsageError, match="is being run by process"):
        sweeping.sweep(tmp_path, on_trouble=teller(tmp_path), on_finish=teller(tmp_path))
    assert found(tmp_path)[0].ended == "before" and told(tmp_path) == []


def test_a_clock_that_was_set_forward_does_not_take_trials_from_a_living_process(tmp_path: Path) -> None:
    """The lease has ended by the clock, and the process that holds it lives: our parent."""
    store = opened(tmp_path)
    record = sweeping.find_or_create(store, sweeping.sweep_spec())
    parent = psutil.Process().parent()
    assert parent is not None
    owner = f"{os.uname().nodename}:{parent.pid}:{parent.create_time():.2f}"
    store.start_trial(
        record.id,
        Suggestion(params={"train.score": 0.5, "train.cost": 0.5}, kind=SuggestionKind.RANDOM, origin="test"),
        seed=0,
        owner=owner,
        lease_seconds=0.001,
        suggest_seconds=0.0,
        provenance=record.spec.provenance,
    )
    store.close()
    with pytest.raises(UsageError, match=f"is being run by process {parent.pid} "):
        sweeping.sweep(tmp_path)
    assert found(tmp_path)[1][0].state is TrialState.RUNNING


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("exit 3", "--on-finish failed with code 3: exit 3"),
        ("echo no such server >&2; false", r"failed with code 1: .* \(no such server\)"),
        ("sleep 600", "was killed after 0.2 s, its limit: sleep 600"),
        ("no-such-program", "failed with code 127"),
    ],
)
def test_a_command_that_fails_is_one_line(command: str, line: str) -> None:
    lines: list[str] = []
    hooks.call("--on-finish", command, {}, lines.append, seconds=0.2 if "sleep" in command else 30.0)
    [said] = lines
    assert re.search(line, said)


# Failures in a row


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


def test_a_success_ends_a_row_and_what_teaches_nothing_does_not_count() -> None:
    failures = Failures()
    for i in range(9):
        failures.add(record(i, TrialEnd.DIVERGED, "x"))
    for end in (TrialEnd.INTERRUPTED, TrialEnd.DISK, TrialEnd.MISTAKE):
        failures.add(record(20, end, "x"))
    assert not failures.too_many
    failures.add(record(30, TrialEnd.CAPPED))
    for i in range(9):
        failures.add(record(40 + i, TrialEnd.DIVERGED, "x"))
    assert not failures.too_many


# Costs


def test_a_cost_that_cannot_be_true_ends_the_trial_and_is_not_stored(tmp_path: Path) -> None:
    spec = sweeping.sweep_spec(behaviour="costs too much")
    status = sweeping.sweep(tmp_path, spec=spec, max_trials=1)
    [trial] = status.trials
    assert (trial.end, trial.curve) == (TrialEnd.CRASHED, ())
    assert trial.reason.startswith("reported a cost of 1e+300 s, beyond the limit of 1e+09 s (31 years)")
    assert status.spent_seconds < 600.0
    engine = Protein(sweeping.space())
    with pytest.raises(UsageError, match=r"cost_seconds must be at most 1e\+09 s"):
        engine.observe({"train.score": 0.5, "train.cost": 0.5}, score=1.0, cost_seconds=1e300)


# Disk and memory

Usage = collections.namedtuple("Usage", "free")
Memory = collections.namedtuple("Memory", "total available")


def test_too_little_disk_holds_trials_back_until_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.0)
    free = [100 << 20]
    monkeypatch.setattr(psutil, "disk_usage", lambda path: Usage(free[0]))

    class MakeRoom(sweeping.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                assert not status.trials
                free[0] = 10 << 30

    listener = MakeRoom()
    status = sweeping.sweep(tmp_path, listener=listener, budget_seconds=None, max_trials=2, on_trouble=teller(tmp_path))
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2
    first, second = listener.lines
    assert first.startswith("no trial is started: 100 MiB are free on the disk of ")
    assert first.endswith(", below the limit of 512 MiB")
    assert second == "there is room again: trials start again"
    assert len(told(tmp_path)) == 1 and not status.trouble


def test_a_stop_ends_a_sweep_that_waits_for_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(psutil, "disk_usage", lambda path: Usage(0))
    stop = threading.Event()

    class StopSoon(sweeping.Lines):
        def update(self, status: SweepStatus) -> None:
            stop.set()

    assert sweeping.sweep(tmp_path, listener=StopSoon(), stop=stop).ended == "interrupted"


def test_too_little_memory_ends_the_youngest_trial_which_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "CHECK_SECONDS", 0.0)
    available = [8 << 30]
    monkeypatch.setattr(psutil, "virtual_memory", lambda: Memory(16 << 30, available[0]))
    for number in (0, 1):
        (tmp_path / "trials").mkdir(exist_ok=True)
        (tmp_path / "trials" / f"hang-{number:04d}").write_text("2 saved")

    class Shrink(sweeping.Lines):
        def update(self, status: SweepStatus) -> None:
            if len(status.trials) == 2 and all(trial.steps == 2 for trial in status.trials):  # both hang, once
                available[0] = 1 << 20
            if any(trial.state is TrialState.WAITING for trial in status.trials):
                stop.set()

    stop, listener = threading.Event(), Shrink()
    spec = sweeping.sweep_spec(behaviour="saves")
    sweeping.sweep(tmp_path, spec=spec, listener=listener, stop=stop, workers=2, budget_seconds=None, max_trials=2)
    reasons = [trial.reason for trial in found(tmp_path)[1]]
    assert reasons[1].startswith("preempted: 1 MiB of this machine's memory are free, below the limit of ")
    ended = [line for line in listener.lines if "is ended" in line]
    assert ended[0] == "trial 1 is ended, so that the system need not kill one"
    available[0] = 8 << 30
    status = sweeping.sweep(tmp_path, spec=spec, workers=2, budget_seconds=None, max_trials=2)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE] * 2


def test_the_disk_of_a_folder_that_does_not_exist_yet_is_that_of_its_parent(tmp_path: Path) -> None:
    watch = watching.Watch([tmp_path / "a" / "b"])
    assert watch.look() and not watch.look()
    assert watch.disk == ""


# Pause


def test_a_paused_sweep_says_so_and_starts_nothing_even_of_what_waits(tmp_path: Path) -> None:
    stop = threading.Event()
    spec = sweeping.sweep_spec(behaviour="hang")
    sweeping.sweep(tmp_path, spec=spec, listener=AtPoint(tmp_path, lambda *_: stop.set()), stop=stop)
    store = opened(tmp_path)
    store.request(1, Request.PAUSE)
    store.close()
    stop.clear()

    class StopSoon(sweeping.Lines):
        def update(self, status: SweepStatus) -> None:
            super().update(status)
            if self.updates == 3:
                stop.set()

    listener = StopSoon()
    sweeping.sweep(tmp_path, spec=spec, listener=listener, stop=stop)
    assert listener.begun == []
