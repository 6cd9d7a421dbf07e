"""What the loop asks of a backend: a job to run, and what it tells of it."""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

from protein.types import Artifact, Measurement, Outcome, Resources, Trial, TrialEnd


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a backend runs for one trial: a whole run config and the limits that the process must keep to."""

    trial: Trial
    config: Mapping[str, Any]  # nested, complete: every section and key of the run config
    directory: Path  # the trial's own folder: config, log, checkpoint
    max_seconds: float | None  # wall clock of the process, start-up and evaluation included
    max_memory_bytes: int | None  # resident
    # What the trial goes on from, where it continues an earlier one: that trial's artifact of kind "continuable".
    continues: Path | None = None
    at_limit: TrialEnd = TrialEnd.CAPPED  # the end of a trial that spends all that its config allows it
    resumes: Path | None = None  # what an interrupted run of this very trial goes on from (`protein.sweep.resuming`)
    spent_seconds: float = 0.0  # the trial's cost until there; the backend reports that of the whole trial
    # Steps of the trial that lie behind what it goes on from, its own or those of the trial that it continues.
    steps_behind: int = 0
    continued_seconds: float = 0.0  # of the run that lie behind the trial, where it continues another one
    # Steps and seconds of the whole run at some points of the curve until there, that of the other trial included.
    curve_behind: tuple[tuple[int, float], ...] = ()
    score_behind: float | None = None  # the last score there, of its own curve; to be maximised
    others_reported: bool = False  # whether any other trial of the sweep has had a score, so that reporting works
    resources: Resources = dataclasses.field(default_factory=Resources)
    # Seconds of the reference machine for one second of this machine; None: the backend finds it where the trial runs.
    speed: float | None = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress:
    """What is new of a running trial: the curve points since the last poll, and what it has cost by now."""

    trial: Trial
    measurements: tuple[Measurement, ...]
    # Where its cost is the wall clock, which also runs while it reports nothing; None: its last point tells its cost.
    cost_seconds: float | None = None


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trial's process has ended, for any reason; `outcome` describes how."""

    trial: Trial
    outcome: Outcome
    artifacts: tuple[Artifact, ...] = ()
    error: BaseException | None = None  # what ends the whole sweep, such as a mistake in how a function is written


class Backend(Protocol):
    """Runs trials, so that none can harm the sweep: each in a process of its own, or a function that has to report.

    A backend reports how each trial ended (`Outcome.end`), and the reason in words (`Outcome.reason`). A complete trial
    that left something to go on from has an artifact and a metric that say so (see `protein.sweep.resuming`).

    A trial that is lost to a dead node or process server, and not by its own fault, ends as INTERRUPTED with a reason
    that begins with `protein.types.PREEMPTED`. The loop then takes it up again if it left something to go on from.
    """

    def num_slots(self) -> int | None:
        """Returns how many trials can run at once now; None: as many as are asked for. It may change any time."""
        ...

    def start(self, job: Job) -> None: ...

    def poll(self, timeout_seconds: float) -> list[TrialProgress | Finished]:
        """Waits up to `timeout_seconds` for news. A started trial yields exactly one `Finished`, its last event."""
        ...

    def stop(self, trial: Trial, end: TrialEnd, reason: str) -> None:
        """Ends a trial in this way; its `Finished` comes from a later poll.

        With an end whose state is PRUNED, the last score of the trial's curve counts; but a trial that reports its own
        failure has failed. With any other end it has no score. Its cost is what it has spent until it ended.

        A trial that is being ended already, or that has ended by itself in the meantime, keeps its own end.
        """
        ...

    def close(self) -> None:
        """Ends whatever still runs: kills a process, interrupts a function where it reports. Safe to call twice."""
        ...
