"""What watches a sweep, and what it is told."""

import dataclasses
from collections.abc import Sequence
from typing import Protocol

from protein.types import SweepRecord, TrialEnd, TrialRecord, spent_seconds


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmationStatus:
    """How far contenders are run again.

    Attributes:
        sure: the probability that the recommended config is the best contender; None: not known.
        settled: whether that is enough, so that nothing more is run.
        runs: how many were run so far.
        spent_seconds: what they cost.
        limit_seconds: what they may cost; None: no limit.
        expected_seconds: what the runs may still cost that have not ended, about.
    """

    sure: float | None
    settled: bool
    runs: int
    spent_seconds: float
    limit_seconds: float | None
    expected_seconds: float


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """The sweep at one moment, for views: all trials by number, finished and running, with their curves."""

    sweep: SweepRecord
    trials: Sequence[TrialRecord]
    elapsed_seconds: float  # wall clock since this process took the sweep up, without pauses in which no trial ran
    engine_seconds: float  # of it, in suggest and store
    stopping: bool
    max_trial_seconds: float | None = None  # the cap on one trial's cost; None: no cap
    max_trials: int | None = None  # of the whole sweep; None: any number
    ended: str = ""  # why no more trials were started, in words; "" while some may be

    trouble: bool = False  # whether it has ended because something is wrong
    confirmation: ConfirmationStatus | None = None  # None: contenders are not run again now

    @property
    def spent_seconds(self) -> float:
        """What all trials but confirmations have cost."""
        return spent_seconds(trial for trial in self.trials if not trial.confirms)

    @property
    def never_scored(self) -> TrialRecord | None:
        """The last trial that has ended by itself, where trials have and none of the sweep ever had a score."""
        if any(trial.score is not None for trial in self.trials):
            return None
        ended = [trial for trial in self.trials if trial.state.finished and trial.end is not TrialEnd.INTERRUPTED]
        return max(ended, key=lambda trial: trial.finished_at or trial.started_at, default=None)


class Listener(Protocol):
    """What watches a sweep: a live view, or plain lines."""

    def update(self, status: SweepStatus) -> None:
        """Called after every poll, some times a second; and once a sweep with trials is taken over."""
        ...

    def started(self, trial: TrialRecord) -> None: ...

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None: ...

    def log(self, line: str) -> None:
        """Called with anything else that a person should know, as one line."""
        ...
