"""Until when a sweep may run: the moment in words, and which trials would end before it."""

import dataclasses
import statistics
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from protein.engine.pareto import MIN_COST_SECONDS
from protein.errors import UsageError
from protein.types import Budget, TrialRecord


def parse(text: str, flag: str, now: datetime) -> datetime:
    """Returns a moment: the next time that a clock here shows `text` ("08:00"), or a date with a time.

    Args:
        text: "08:00" or "08:00:30", or ISO 8601 as "2026-11-23T08:00", local time without an offset.
        flag: for the message.
        now: the present, with a time zone: that of this machine.

    Raises:
        UsageError: it is no such text, or lies in the past.
    """
    forms = "use a time as in 08:00, or a date and a time as in 2026-11-23T08:00"
    words = text.strip()
    try:
        if ":" in words and "-" not in words and "T" not in words.upper():
            clock = datetime.strptime(words, "%H:%M:%S" if words.count(":") == 2 else "%H:%M")
            moment = now.replace(hour=clock.hour, minute=clock.minute, second=clock.second, microsecond=0, fold=0)
            if moment <= now:
                moment = (moment + timedelta(days=1)).replace(fold=0)
            return moment.replace(tzinfo=None).astimezone()  # tomorrow's offset may be another one
        moment = datetime.fromisoformat(words)
        if ":" not in words:
            raise ValueError
        moment = moment.astimezone()  # not every time zone has the first and the last day of all years
    except (ValueError, OverflowError):
        raise UsageError(f"{flag} {text!r:.80} is no time; {forms}") from None
    if moment <= now:
        raise UsageError(f"{flag} {text} has passed: now it is {now:%Y-%m-%dT%H:%M}; {forms}")
    return moment


class Deadline:
    """The moment by which all trials of a sweep are to have ended, and why it holds trials back.

    Args:
        moment: None: there is none, and nothing is held back.
        speed: of the machine.
    """

    def __init__(self, moment: datetime | None, speed: float) -> None:
        self._moment = moment
        self._speed = speed
        self.reason: str | None = None  # why no trial starts, in words; None: the time does not hold any back

    def has_passed(self) -> bool:
        if self._moment is None or datetime.now(UTC) < self._moment:
            return False
        self.reason = f"it is {self._moment.astimezone():%H:%M}, as --until says"
        return True

    def allows(self, trial: TrialRecord | None, predicted_seconds: float | None, trials: Sequence[TrialRecord]) -> bool:
        """Returns whether a trial is expected to end in time. Its arguments are those of `expected_seconds`."""
        if self._moment is None:
            return True
        if self._seconds_left(self._moment) >= expected_seconds(trial, predicted_seconds, trials, self._speed):
            return True
        self.hold_back()
        return False

    def shorten(self, budget: Budget, trials: Sequence[TrialRecord]) -> Budget:
        """Returns the budget of a new trial that is to end in time."""
        if self._moment is None:
            return budget
        longest = max(longest_cost(self._seconds_left(self._moment), trials, self._speed), MIN_COST_SECONDS)
        return budget if longest >= budget.next_trial_seconds else dataclasses.replace(budget, until_seconds=longest)

    def hold_back(self) -> None:
        """Says that no further trial would end in time."""
        assert self._moment is not None
        self.reason = f"no further trial is expected to end by {self._moment.astimezone():%H:%M}, as --until says"

    @staticmethod
    def _seconds_left(moment: datetime) -> float:
        return (moment - datetime.now(UTC)).total_seconds()


def expected_seconds(
    trial: TrialRecord | None, predicted_seconds: float | None, trials: Sequence[TrialRecord], speed: float = 1.0
) -> float:
    """Returns how long a trial is expected to run from now on, of the wall clock.

    Costs are in reference seconds; what is beside them is not (`protein.run.speed`).

    Args:
        trial: one that goes on; None: a new one.
        predicted_seconds: the cost that was predicted for it; None: that of the median trial so far.
        trials: all of the sweep. They tell how much longer than its cost a trial takes, too.
        speed: of the machine.
    """
    done = [one for one in trials if one.state.finished and one.finished_at is not None and one.cost_seconds > 0]
    if predicted_seconds is None:
        predicted_seconds = statistics.median([one.cost_seconds for one in done]) if done else 0.0
    return max(predicted_seconds - (0.0 if trial is None else trial.cost_seconds), 0.0) / speed + _overhead(done)


def longest_cost(seconds_left: float, trials: Sequence[TrialRecord], speed: float = 1.0) -> float:
    """Returns the highest cost at which a new trial is expected to end in time, by the wall clock; 0: none does."""
    done = [one for one in trials if one.state.finished and one.finished_at is not None and one.cost_seconds > 0]
    return max(seconds_left - _overhead(done), 0.0) * speed


def _overhead(done: Sequence[TrialRecord]) -> float:
    """Returns how much longer than its cost the median trial took."""
    beside = [sum(one.timings.get(name, 0.0) for name in ("startup", "compile", "evaluation")) for one in done]
    return statistics.median(beside) if beside else 0.0
