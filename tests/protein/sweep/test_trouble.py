"""Failures in a row, and what they share."""

from datetime import UTC, datetime
from typing import Any

from protein.sweep.trouble import Failures, shared_params
from protein.types import Provenance, SuggestionKind, TrialEnd, TrialRecord


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
