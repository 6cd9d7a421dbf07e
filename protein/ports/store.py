"""What every store keeps and answers."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Protocol

from protein.columns import CurveColumns, SweepSummary, TrialColumns
from protein.types import (
    AgentCall,
    Artifact,
    Machine,
    Measurement,
    Outcome,
    Provenance,
    Request,
    Suggestion,
    SweepRecord,
    SweepSpec,
    Trial,
    TrialRecord,
)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What people have asked of a sweep from outside: see `Store.request`, `Store.annotate` and `Store.cancel`."""

    requested: Request
    excluded: frozenset[int]  # numbers of trials
    cancelled: frozenset[int] = frozenset()  # numbers of trials that are to end as INTERRUPTED, and those that have
    num_trials: int = 0  # of the sweep, those included that people have queued


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

    def set_space(self, sweep_id: int, space: Mapping[str, Any]) -> None:
        """Replaces the space of a sweep, where its limits on measured values have changed. Its tags stay."""
        ...

    def tag_sweeps(
        self, sweep_ids: Collection[int], *, add_tags: Sequence[str] = (), remove_tags: Sequence[str] = ()
    ) -> None:
        """Adds tags to sweeps and takes others away, all or none.

        Raises:
            StoreError: a sweep does not exist; a tag is too long or cannot be stored; too many tags.
        """
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

    def queue_trials(
        self, sweep_id: int, queued: Sequence[tuple[Suggestion, int]], *, number: int, provenance: Provenance
    ) -> None:
        """Creates trials that WAIT for their first start, all of them or none. Whoever runs the sweep takes them up.

        Args:
            sweep_id: the sweep.
            queued: what each is to run, and its seed.
            number: of the first one. It is a claim: `TrialLost` unless that is the next one.
            provenance: of whoever asks for them, until they start.
        """
        ...

    def add_measurements(self, trial: Trial, measurements: Sequence[Measurement], lease_seconds: float) -> None:
        """Appends curve points (possibly none) in one write and renews the lease."""
        ...

    def renew_lease(self, trial: Trial, lease_seconds: float, cost_seconds: float) -> None:
        """Renews the lease of a RUNNING trial that is silent, and stores what it has cost by now."""
        ...

    def finish_trial(self, trial: Trial, outcome: Outcome, artifacts: Sequence[Artifact] = ()) -> None:
        """Ends a RUNNING trial."""
        ...

    def release_trial(self, trial: Trial, reason: str, cost_seconds: float | None = None) -> None:
        """Makes a RUNNING trial WAIT for somebody to take it up again. It has no owner then; its cost so far stays.

        Args:
            trial: the trial.
            reason: why it does not run any more, in words.
            cost_seconds: what it has cost until now; None: what is stored.
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
        provenance: Provenance | None = None,
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
            provenance: of a trial that has only been queued: it starts here and now. None: it has started before.

        Raises:
            TrialLost: the trial does not wait: another process has taken it up, or it was cancelled.
        """
        ...

    def interrupt_orphans(self, sweep_id: int, dead_owners: Sequence[str], waiting: Collection[int] = ()) -> list[int]:
        """Ends the RUNNING trials whose owner is listed or whose lease has ended, as INTERRUPTED.

        Those whose numbers are in `waiting` become WAITING instead, unless a person has asked for their end. Their cost
        is what is stored. Returns the numbers of both.
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

    def agent_calls(self) -> list[AgentCall]:
        """Returns the calls of agents in the order in which they were made."""
        ...

    def add_agent_call(self, call: AgentCall) -> None:
        """Adds a call. Its number is a claim: `TrialLost` unless that is the next one, so that no other was made since.

        Thus a call whose budget was compared with the calls before it stands before all others.
        """
        ...

    def end_agent_call(
        self, number: int, outcome: str, *, owner: str | None = None, sweep_id: int | None = None
    ) -> None:
        """Records what came of a call, and the process and the sweep that it has started; None: they stay."""
        ...

    def wishes(self, sweep_id: int) -> Wishes:
        """Returns what people ask of a sweep that may be running. It is cheap: the loop asks every second."""
        ...

    def close(self) -> None: ...
