"""`--until`: what a time is, and what no longer starts or waits then."""

import dataclasses
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import small_sweep
from sweep_control import AtPoint, found

from protein.engine.designer import RandomDesigner
from protein.errors import UsageError
from protein.ports import Store, SweepStatus
from protein.sweep.stop_conditions import expected_seconds, longest_cost, parse_moment
from protein.types import Budget, Estimate, Suggestion, TrialEnd, TrialState

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
    assert parse_moment(given, "--until", NOW) == expected


def test_the_present_minute_is_tomorrows() -> None:
    moment = parse_moment(f"{NOW:%H:%M}", "--until", NOW)
    assert timedelta(hours=22) < moment - NOW <= timedelta(hours=26)


@pytest.mark.parametrize(
    "given",
    [
        *("", "8", "25:00", "08:00 tomorrow", "2026-11-24", "2026-13-01T00:00", "now"),
        "0001-01-01T00:00+14:00",  # in the year 0 here
    ],
)
def test_what_is_no_time_is_one_line(given: str) -> None:
    with pytest.raises(UsageError, match=r"--until .* is no time; use a time as in 08:00"):
        parse_moment(given, "--until", NOW)


def test_a_date_that_has_passed_is_one_line() -> None:
    with pytest.raises(UsageError, match=r"--until 2026-11-21T08:00 has passed: now it is"):
        parse_moment("2026-11-21T08:00", "--until", NOW)


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
    designer = ExpectAnHour(small_sweep.space(), None)
    status = small_sweep.sweep(tmp_path, designer=designer, budget_seconds=None, until=end)
    assert [trial.end for trial in status.trials] == [TrialEnd.COMPLETE]
    clock = f"{end.astimezone():%H:%M}"
    assert status.ended == f"no further trial is expected to end by {clock}, as --until says"
    assert found(tmp_path)[0].ended == status.ended and not status.trouble


def test_a_trial_that_fits_the_time_is_chosen(tmp_path: Path) -> None:
    limits: list[float | None] = []

    class Looks(RandomDesigner):
        def suggest(self, history: Any, running: Any, budget: Budget, seed: int) -> Suggestion | None:
            limits.append(budget.until_seconds)
            found = super().suggest(history, running, budget, seed)
            return None if len(history) == 2 and budget.until_seconds is not None else found

    end = datetime.now(UTC) + timedelta(minutes=30)
    designer = Looks(small_sweep.space(), None)
    status = small_sweep.sweep(tmp_path, designer=designer, budget_seconds=1e6, max_trial_seconds=7200.0, until=end)
    assert len(limits) == 4 and all(limit is not None and 1700.0 < limit <= 1800.0 for limit in limits[:3])
    assert limits[3] is None, "asked whether it is the time that nothing fits"
    assert len(status.trials) == 2
    assert status.ended == f"no further trial is expected to end by {end.astimezone():%H:%M}, as --until says"
    assert longest_cost(60.0, list(status.trials), speed=0.5) <= 30.0


def test_the_time_is_no_reason_where_nothing_would_be_tried_with_more_of_it(tmp_path: Path) -> None:
    class Nothing(RandomDesigner):
        def suggest(self, history: Any, *args: Any, **keywords: Any) -> Suggestion | None:
            return None if history else super().suggest(history, *args, **keywords)

    end = datetime.now(UTC) + timedelta(minutes=30)
    status = small_sweep.sweep(tmp_path, designer=Nothing(small_sweep.space(), None), budget_seconds=None, until=end)
    assert len(status.trials) == 1
    assert "--until" not in status.ended


def test_a_machine_of_half_the_speed_needs_twice_the_time() -> None:
    assert expected_seconds(None, 3600.0, [], speed=0.5) == 7200.0


def test_at_the_time_what_runs_is_stopped_and_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [datetime.now(UTC)]

    class Clock:
        @staticmethod
        def now(zone: Any = None) -> datetime:
            return clock[0]

    monkeypatch.setattr("protein.sweep.stop_conditions.datetime", Clock)
    end = clock[0] + timedelta(hours=1)

    def set_clock(store: Store, status: SweepStatus) -> None:
        clock[0] = end

    status = small_sweep.sweep(
        tmp_path,
        spec=small_sweep.sweep_spec(behaviour="hang"),
        listener=AtPoint(tmp_path, set_clock),
        budget_seconds=None,
        until=end,
    )
    assert [trial.state for trial in status.trials] == [TrialState.WAITING]
    assert status.ended == f"it is {end.astimezone():%H:%M}, as --until says"
