"""The seams of the sweep: what the loop asks of a designer, a store and a backend, and what it tells a listener.

The loop knows only these protocols, so an algorithm never learns where a trial runs or where it is stored. Each
protocol is a written contract; `tests/contracts/` holds every implementation to it.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from protein.columns import CurveColumns, SweepSummary, TrialColumns
from protein.types import (
    Artifact,
    Budget,
    Machine,
    Measurement,
    Observation,
    Outcome,
    Params,
    Provenance,
    Request,
    Resources,
    Suggestion,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialEnd,
    TrialRecord,
)


class Designer(Protocol):
    """Proposes trials. A pure function of its arguments: no state survives a call."""

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """Returns the next trial, or None when nothing worth starting fits the budget, or should not start yet.

        It is a point that was not tried before. It may be to continue a trial whose `resumable_seconds` are given.

        Args:
            history: finished trials, oldest first. The models ignore those whose `end` does not teach, and excluded
                ones; the params of excluded ones count as tried.
            running: params of trials that have not finished; the suggestion differs from them.
            budget: what the next trial may cost. What running trials are expected to cost is subtracted already.
            seed: the only source of randomness.
        """
        ...

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """Returns why a running trial is not worth finishing, or None to let it run on. Asked at each new curve point.

        Args:
            history: finished trials, oldest first; excluded ones are ignored.
            params: those of the running trial.
            curve: its points so far.
            seed: the only source of randomness; the same at every point of one trial.
        """
        ...


class Store(Protocol):
    """Keeps every fact. One public method is one transaction; all times are the store's, in UTC.

    Writes to a trial are fenced by its owner: a writer that is not the trial's owner, or whose trial has finished, gets
    a `TrialLost` and changes nothing. What cannot be stored (NaN, infinity, more than 64 bits, a failure without a
    reason) is a `StoreError`, too; a database that may work again later (full, locked, gone) a `StoreUnavailable`.
    """

    def create_sweep(self, spec: SweepSpec, max_cost_seconds: float | None) -> SweepRecord:
        """Stores a new sweep. Raises `StoreError` when the name is taken."""
        ...

    def find_sweep(self, name: str) -> SweepRecord | None: ...

    def list_sweeps(self) -> list[SweepRecord]:
        """Returns all sweeps, oldest first."""
        ...

    def set_budget(self, sweep_id: int, max_cost_seconds: float | None) -> None:
        """Records the budget that the sweep now runs under."""
        ...

    def set_config(self, sweep_id: int, config: Mapping[str, Any]) -> None:
        """Replaces the config of a sweep, where the user has accepted that it changes."""
        ...

    def start_trial(
        self,
        sweep_id: int,
        suggestion: Suggestion,
        *,
        seed: int,
        owner: str,
        lease_seconds: float,
        suggest_seconds: float,
        provenance: Provenance,
        number: int | None = None,
    ) -> Trial:
        """Creates the next trial (numbers count up from 0 without gaps), RUNNING and owned until its lease ends.

        With a `number` it is a claim: `TrialLost` unless that is the next one, so that only one of two processes that
        do not know of each other starts a trial.
        """
        ...

    def add_measurements(self, trial: Trial, measurements: Sequence[Measurement], lease_seconds: float) -> None:
        """Appends curve points (possibly none) in one write and renews the lease."""
        ...

    def finish_trial(self, trial: Trial, outcome: Outcome, artifacts: Sequence[Artifact] = ()) -> None:
        """Ends a RUNNING trial."""
        ...

    def release_trial(self, trial: Trial, reason: str, cost_seconds: float | None = None) -> None:
        """Makes a RUNNING trial WAIT for somebody to take it up again. It has no owner then; its cost so far stays.

        Args:
            trial: the trial.
            reason: why it does not run any more, in words.
            cost_seconds: what it has cost until now; None: that of its last measurement.
        """
        ...

    def take_up_trial(
        self,
        sweep_id: int,
        number: int,
        owner: str,
        lease_seconds: float,
        from_steps: int,
        from_seconds: float | None = None,
    ) -> Trial:
        """Makes a WAITING trial RUNNING again, under a new owner, from where it left something to go on from.

        The points of its curve beyond that place are dropped. What they cost counts as lost
        (`TrialRecord.lost_seconds`).

        Args:
            sweep_id: the sweep.
            number: of the trial.
            owner: who runs it from now on.
            lease_seconds: of the new lease.
            from_steps: the steps that lie behind that place.
            from_seconds: the trial's own cost there; None: that of the last point that is kept.

        Raises:
            TrialLost: the trial does not wait: another process has taken it up, or it was cancelled.
        """
        ...

    def interrupt_orphans(self, sweep_id: int, dead_owners: Sequence[str], waiting: Collection[int] = ()) -> list[int]:
        """Ends the RUNNING trials whose owner is listed or whose lease has ended, as INTERRUPTED.

        Those whose numbers are in `waiting` become WAITING instead, unless a person has asked for their end. Their cost
        is that of their last measurement. Returns the numbers of both.
        """
        ...

    def live_trials(self, sweep_id: int) -> dict[int, str]:
        """Returns the owners of the running trials whose lease has not ended, by number. Changes nothing."""
        ...

    def trials(
        self,
        sweep_id: int,
        *,
        curves: bool = True,
        last_points: bool = False,
        numbers: Collection[int] | None = None,
    ) -> list[TrialRecord]:
        """Returns all trials by number.

        Args:
            sweep_id: the sweep.
            curves: whether each has its whole curve; without, the curves are empty. A reader that needs none should
                say so: curves are most of a store.
            last_points: without `curves`, each curve has one point at least, at the most steps that the whole one has.
                That is all that the engine's recommendation reads of it. The point has no score.
            numbers: those of the wanted trials; None: all. Numbers that no trial has are left out.
        """
        ...

    def same_params(self, sweep_id: int, numbers: Collection[int]) -> list[int]:
        """Returns the numbers of all trials whose params are those of one of these trials, these included."""
        ...

    def trial(self, sweep_id: int, number: int) -> TrialRecord:
        """Returns one trial with its whole curve. Raises `StoreError` where the sweep has none of this number."""
        ...

    def columns(
        self, sweep_id: int, since: str | None = None, *, fields: Collection[str] | None = None
    ) -> TrialColumns:
        """Returns the trials as columns, without their curves.

        Args:
            sweep_id: the sweep.
            since: the cursor of an earlier answer: only the trials that are new or have changed since, in any of the
                columns. None: all.
            fields: the columns that are read (names in `TrialColumns`), `number` always; None: all. Params, metrics,
                timings and texts take most of the time.

        Raises:
            StoreError: `since` is no cursor of this sweep, a field is unknown, or a stored value is damaged.
        """
        ...

    def curves(
        self, sweep_id: int, numbers: Collection[int], max_points: int, *, metric: str | None = None
    ) -> dict[int, CurveColumns]:
        """Returns learning curves by the trial's number, each thinned to at most `max_points` points.

        Args:
            sweep_id: the sweep.
            numbers: at most `protein.columns.MAX_CURVES`. Numbers that no trial has are left out.
            max_points: 4 to `protein.columns.MAX_CURVE_POINTS`.
            metric: name of the metric that is returned in place of the score.

        Raises:
            StoreError: too many curves or points are asked for, or too few.
        """
        ...

    def summaries(self, sweep_ids: Collection[int] | None = None) -> dict[int, SweepSummary]:
        """Returns each sweep's trials in a few numbers, by the sweep's id; None: of all sweeps."""
        ...

    def annotate(
        self,
        sweep_id: int,
        numbers: int | Collection[int],
        *,
        tags: Sequence[str] | None = None,
        add_tags: Sequence[str] = (),
        remove_tags: Sequence[str] = (),
        note: str | None = None,
        excluded: bool | None = None,
    ) -> None:
        """Changes the annotations of one or several trials, running or finished ones; all of them or none.

        It works while another process runs the sweep, which follows an exclusion with its next suggestion.

        Args:
            sweep_id: the sweep.
            numbers: of the trials.
            tags: these replace the trial's tags; None: its own stay.
            add_tags: tags that are added after that.
            remove_tags: tags that are taken away after that.
            note: replaces the trial's note; None: it stays.
            excluded: see `protein.types.Annotation`; None: it stays as it is.

        Raises:
            StoreError: a trial does not exist; a tag or the note is too long or cannot be stored; too many tags.
        """
        ...

    def request(self, sweep_id: int, requested: Request) -> None:
        """Stores what is asked of the sweep; the process that runs it follows within seconds."""
        ...

    def cancel(self, sweep_id: int, numbers: Collection[int]) -> None:
        """Asks for the end of trials that have not finished; all of them or none.

        The process that runs them follows within seconds (`Wishes.cancelled`). Those that wait end at once, as
        INTERRUPTED with the reason `protein.types.CANCELLED`.

        Raises:
            StoreError: a trial does not exist, or has finished.
        """
        ...

    def set_ended(self, sweep_id: int, ended: str) -> None:
        """Records why the sweep's last run ended, in words (`SweepRecord.ended`); "": it runs."""
        ...

    def machines(self) -> list[Machine]:
        """Returns the machines of this store in the order in which they were added. The first one is the reference."""
        ...

    def add_machine(self, machine: Machine) -> None:
        """Adds a machine. One whose name is known stays as it was: costs were stored by its calibration."""
        ...

    def wishes(self, sweep_id: int) -> "Wishes":
        """Returns what people ask of a sweep that may be running. It is cheap: the loop asks every second."""
        ...

    def close(self) -> None: ...


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What people have asked of a sweep from outside: see `Store.request`, `Store.annotate` and `Store.cancel`."""

    requested: Request
    excluded: frozenset[int]  # numbers of trials
    cancelled: frozenset[int] = frozenset()  # numbers of trials that are to end as INTERRUPTED, and those that have


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
    resources: Resources = dataclasses.field(default_factory=Resources)
    # Seconds of the reference machine for one second of this machine; None: the backend finds it where the trial runs.
    speed: float | None = 1.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class TrialProgress:
    """Curve points that a running trial has reported since the last poll (an empty tuple is a sign of life)."""

    trial: Trial
    measurements: tuple[Measurement, ...]


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A trial's process has ended, for any reason; `outcome` describes how."""

    trial: Trial
    outcome: Outcome
    artifacts: tuple[Artifact, ...] = ()


class Backend(Protocol):
    """Runs trials, so that none can harm the sweep: each in a process of its own, or a function that has to report.

    A backend reports how each trial ended (`Outcome.end`), and the reason in words (`Outcome.reason`). A complete trial
    that left something to go on from has an artifact and a metric that say so (see `protein.sweep.continuing`).

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


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """The sweep at one moment, for views: all trials by number, finished and running, with their curves."""

    sweep: SweepRecord
    trials: Sequence[TrialRecord]
    elapsed_seconds: float  # wall clock since this process took the sweep up
    engine_seconds: float  # of it, in suggest and store
    stopping: bool
    max_trial_seconds: float | None = None  # the cap on one trial's cost; None: no cap
    max_trials: int | None = None  # of the whole sweep; None: any number
    ended: str = ""  # why no more trials were started, in words; "" while some may be

    trouble: bool = False  # whether it has ended because something is wrong

    @property
    def spent_seconds(self) -> float:
        return sum(trial.cost_seconds + trial.lost_seconds for trial in self.trials)


class Listener(Protocol):
    """What watches a sweep: a live view, or plain lines."""

    def update(self, status: SweepStatus) -> None:
        """Called after every poll, some times a second."""
        ...

    def started(self, trial: TrialRecord) -> None: ...

    def finished(self, trial: TrialRecord, status: SweepStatus) -> None: ...

    def log(self, line: str) -> None:
        """Called with anything else that a person should know, as one line."""
        ...
