"""The trials of a sweep as the store has them, and this process's lease on those that it runs.

The store is the only memory. Every change is written there first and mirrored here. While the store is unavailable, a
write is repeated (`protein.sweep.store_calls`).
"""

import contextlib
import dataclasses
import math
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from protein.errors import ProteinError, TrialLost
from protein.ports import Finished, Listener, Store, TrialProgress
from protein.run.lease import LEASE_SECONDS, RENEW_SECONDS, current_owner
from protein.sweep import continuing, late_reports, resuming
from protein.sweep.store_calls import StoreCalls
from protein.sweep.taking_over import being_run, take_over
from protein.types import (
    Measurement,
    Observation,
    Outcome,
    Params,
    Provenance,
    Request,
    Suggestion,
    SweepRecord,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
)

WISHES_SECONDS = 1.0  # how often the store is asked whether a person has paused, stopped or excluded something


class SweepTrials:
    """The trials of one sweep. This process alone may run it from `take_over` on.

    Attributes:
        sweep: the sweep, with the budget most recently asked for.
        records: all trials by number, finished and running.
        running: those that this process runs, by number.
        can_wait: whether interrupted trials of this sweep are taken up again.
        cancelled: numbers of trials whose end a person has asked for.
    """

    def __init__(self, sweep: SweepRecord, store: Store, listener: Listener, stop: threading.Event) -> None:
        self.sweep = sweep
        self.records: dict[int, TrialRecord] = {}
        self.running: dict[int, Trial] = {}
        self.can_wait = resuming.can_wait(sweep.spec.config)
        self._store, self._listener = store, listener
        self._calls = StoreCalls(listener, stop)
        self._owner = current_owner()
        self._behind: dict[int, int] = {}  # steps of trials that were taken up here, before they were, by number
        self._renewed: dict[int, float] = {}  # when the lease was renewed, by number, on the monotonic clock
        self._observed: dict[int, Observation] = {}  # of the finished trials, by number
        self.cancelled: frozenset[int] = frozenset()
        self._asked_at = -math.inf  # when the store was asked for wishes, on the monotonic clock

    @property
    def store_seconds(self) -> float:
        """The wall clock that the store has taken, without waiting for it to be available."""
        return self._calls.seconds

    def take_over(self, max_cost_seconds: float | None) -> None:
        """Reads what is stored, takes over what a dead process left running, and stores the new budget.

        The trials that it left running wait from now on, or end as interrupted where they cannot go on
        (`protein.sweep.resuming.can_wait`).

        Raises:
            UsageError: another live process runs this sweep.
        """
        self.records = take_over(self.sweep, self._store, self._calls, can_wait=self.can_wait, log=self._listener.log)
        self.set_ended("")
        if self.requested() is Request.STOP:  # it was meant for the process that ran the sweep before
            self.request(Request.RUN)
        if max_cost_seconds != self.sweep.max_cost_seconds:  # only now: no other process runs the sweep by it
            self._calls.repeat(lambda: self._store.set_budget(self.sweep.id, max_cost_seconds))
            self.sweep = dataclasses.replace(self.sweep, max_cost_seconds=max_cost_seconds)

    def forget_outside(self, directory: Path) -> None:
        """Lets trials go on only from what lies in a folder, that of the sweep's artifacts."""
        self.records = {number: continuing.only_within(trial, directory) for number, trial in self.records.items()}

    @property
    def waiting(self) -> list[int]:
        """The numbers of the trials that wait to be taken up again, lowest first."""
        return sorted(number for number, trial in self.records.items() if trial.state is TrialState.WAITING)

    def set_ended(self, ended: str) -> None:
        """Stores why the sweep's run has ended; "": it runs."""
        if ended != self.sweep.ended:
            self._calls.repeat(lambda: self._store.set_ended(self.sweep.id, ended))
            self.sweep = dataclasses.replace(self.sweep, ended=ended)

    def requested(self, *, fresh: bool = False) -> Request:
        """Follows what people have asked for since the last call, and returns what they ask of the sweep.

        Exclusions show in `records` from now on. Unless the answer has to be `fresh`, the store is asked again after
        `WISHES_SECONDS` at the earliest.
        """
        if not fresh and time.monotonic() - self._asked_at < WISHES_SECONDS:
            return self.sweep.requested
        wishes = self._calls.repeat(lambda: self._store.wishes(self.sweep.id))
        self._asked_at = time.monotonic()
        self.cancelled = wishes.cancelled
        self._reread([number for number in self.waiting if number in wishes.cancelled])  # the store has ended these
        before = {number for number, trial in self.records.items() if trial.excluded}
        for number in sorted(before ^ wishes.excluded):
            if number in self.records:
                excluded = number in wishes.excluded
                self.records[number] = dataclasses.replace(self.records[number], excluded=excluded)
                self._observed.pop(number, None)
                now = "is excluded: the engine ignores it" if excluded else "counts again: the engine learns from it"
                self._listener.log(f"trial {number} {now} from the next suggestion on")
        if wishes.requested is not self.sweep.requested:
            self.sweep = dataclasses.replace(self.sweep, requested=wishes.requested)
        return wishes.requested

    def request(self, requested: Request) -> None:
        """Stores what is asked of the sweep from now on."""
        self._calls.repeat(lambda: self._store.request(self.sweep.id, requested))
        self.sweep = dataclasses.replace(self.sweep, requested=requested)

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return max(self.records, default=-1) + 1

    def start(
        self, suggestion: Suggestion, *, seed: int, suggest_seconds: float, provenance: Provenance
    ) -> TrialRecord:
        """Stores the next trial as running and returns it.

        Raises:
            TrialLost: another process has started a trial since this one read them.
        """
        number = self.next_number  # a claim: the store is not asked for the next number

        def start() -> Trial:
            return self._store.start_trial(
                self.sweep.id,
                suggestion,
                seed=seed,
                owner=self._owner,
                lease_seconds=LEASE_SECONDS,
                suggest_seconds=suggest_seconds,
                provenance=provenance,
                number=number,
            )

        def again() -> Trial:
            stored = self._stored(number)
            ours = stored is not None and stored.params == suggestion.params and stored.seed == seed
            return self._handle(stored) if stored is not None and ours and self._runs_here(stored) else start()

        try:
            trial = self._calls.repeat(start, again)
        except TrialLost as error:
            self._lost(error)
        record = TrialRecord.begun(trial, suggestion, suggest_seconds=suggest_seconds, provenance=provenance)
        self.records[number], self.running[number] = record, trial
        self._renewed[number] = time.monotonic()
        return record

    def take_up(self, number: int, place: resuming.Place) -> TrialRecord | None:
        """Makes a waiting trial run again from a place. Returns None where somebody has cancelled it.

        Raises:
            TrialLost: another process runs it.
        """

        def take_up() -> Trial:
            return self._store.take_up_trial(
                self.sweep.id, number, self._owner, LEASE_SECONDS, place.steps, place.seconds
            )

        def again() -> Trial:
            stored = self._stored(number)
            return self._handle(stored) if stored is not None and self._runs_here(stored) else take_up()

        try:
            trial = self._calls.repeat(take_up, again)
        except TrialLost as error:
            self._reread([number])
            if self.records[number].state is TrialState.RUNNING:
                self._lost(error)
            return None
        self.running[number] = trial
        self._renewed[number] = time.monotonic()
        self._reread([number])
        self._behind[number] = place.steps
        return self.records[number]

    def _lost(self, error: TrialLost) -> NoReturn:
        """Raises `TrialLost`, with the process that runs the sweep where one does."""
        owners = self._calls.repeat(lambda: self._store.live_trials(self.sweep.id)).values()
        if others := [owner for owner in owners if owner != self._owner]:
            raise TrialLost(being_run(self.sweep, others[0])) from error
        raise error

    def release(self, event: Finished) -> TrialRecord:
        """Makes a running trial wait to be taken up again, and returns it."""
        number, outcome = event.trial.number, event.outcome
        cost = max(outcome.cost_seconds, self.records[number].cost_seconds)

        def release() -> None:
            self._store.release_trial(event.trial, outcome.reason, cost)

        def again() -> None:
            stored = self._stored(number)
            if (
                stored is None or stored.owner != "" or stored.cost_seconds != cost
            ):  # "": nobody's, it waits or has ended
                release()

        with self._noting(event):
            self._calls.repeat(release, again)
        del self.running[number], self._renewed[number]
        self._reread([number])  # the store ends one whose end a person has asked for
        return self.records[number]

    def _reread(self, numbers: Sequence[int]) -> None:
        """Takes over what the store knows of some trials that others may have changed."""
        if numbers:
            found = self._calls.repeat(lambda: self._store.trials(self.sweep.id, numbers=numbers))
            self.records |= {trial.number: trial for trial in found}

    def add(self, event: TrialProgress) -> TrialRecord:
        """Stores further points of a running trial's curve, which renews its lease. Returns the trial.

        A program that goes on from a checkpoint may repeat what it had told before: such points are left out, but what
        they cost counts. What a trial has cost since its last point is stored with the next renewal of its lease.
        """
        number = event.trial.number
        if (behind := self._behind.get(number)) and event.measurements:
            further = tuple(point for point in event.measurements if point.steps > behind)
            cost = max(event.measurements[-1].elapsed_seconds, event.cost_seconds or 0.0)
            event = dataclasses.replace(event, measurements=further, cost_seconds=cost)
        if event.measurements:
            self._write_measurements(event)
            self.records[number] = self.records[number].grown(event.measurements)
        trial = self.records[number]
        if event.cost_seconds is not None and event.cost_seconds > trial.cost_seconds:
            trial = self.records[number] = dataclasses.replace(trial, cost_seconds=event.cost_seconds)
        return trial

    def finish(self, event: Finished) -> TrialRecord:
        """Stores how a running trial ended and returns it."""
        number, outcome = event.trial.number, event.outcome
        if outcome.end is TrialEnd.INTERRUPTED:  # whoever says so may know no more than its last point
            cost = max(outcome.cost_seconds, self.records[number].cost_seconds)
            outcome = dataclasses.replace(outcome, cost_seconds=cost)

        def finish() -> None:
            self._store.finish_trial(event.trial, outcome, event.artifacts)

        def again() -> None:
            stored = self._stored(number)
            if stored is None or stored.owner != self._owner or not _is_outcome(stored, outcome):
                finish()

        with self._noting(event):
            self._calls.repeat(finish, again)
        del self.running[number], self._renewed[number]
        self.records[number] = self.records[number].ended(outcome, event.artifacts)
        return self.records[number]

    def renew_leases(self) -> None:
        """Renews the leases of running trials that have been silent for a while."""
        now = time.monotonic()
        for number, trial in self.running.items():
            if now - self._renewed[number] >= RENEW_SECONDS:
                self._renew_lease(trial)

    def interrupt_running(self) -> None:
        """Gives back what an error left running. This process may live on, and run the sweep again."""
        for number, trial in self.running.items():
            if self.can_wait and number not in self.cancelled:
                with contextlib.suppress(ProteinError):
                    self._store.release_trial(trial, TrialEnd.INTERRUPTED.text, self.records[number].cost_seconds)
                continue
            interrupted = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=TrialEnd.INTERRUPTED.text,
                cost_seconds=self.records[number].cost_seconds,
                steps=self.records[number].steps,
            )
            with contextlib.suppress(ProteinError):  # then it is interrupted when its lease or this process has ended
                self._store.finish_trial(trial, interrupted)

    def history(self, *, can_continue: bool = False) -> list[Observation]:
        """Returns what the designer learns from the finished trials, oldest first, and which it may continue."""
        for number, trial in self.records.items():
            if trial.state.finished and number not in self._observed:
                one = trial.observation()
                # What could have waited was cancelled or given up: it is not tried again.
                if trial.end is TrialEnd.INTERRUPTED and (self.can_wait or number in self.cancelled):
                    one = dataclasses.replace(one, excluded=True)
                self._observed[number] = one
        observed = sorted(self._observed.items())
        if not can_continue:
            return [one for _, one in observed]
        resumable = [continuing.resumable_seconds(self.records[number]) for number, _ in observed]
        return [
            one if seconds is None else dataclasses.replace(one, resumable_seconds=seconds)
            for (_, one), seconds in zip(observed, resumable, strict=True)
        ]

    def running_params(self) -> list[Params]:
        """Returns the params of the trials that have not finished."""
        return [self.records[number].params for number in (*self.running, *self.waiting)]

    def _write_measurements(self, event: TrialProgress) -> None:
        def add(measurements: Sequence[Measurement]) -> None:
            self._store.add_measurements(event.trial, measurements, LEASE_SECONDS)

        def again() -> None:
            # With the whole curve: seconds may go down, and then its last point has not the most of both.
            found = self._store.trials(self.sweep.id, numbers=[event.trial.number])
            stored = found[0] if found else None
            is_stored = stored is not None and _is_last_point(stored, event.measurements[-1])
            add(() if is_stored else event.measurements)  # without points it renews the lease

        with self._noting(event):
            self._calls.repeat(lambda: add(event.measurements), again)
        self._renewed[event.trial.number] = time.monotonic()

    def _renew_lease(self, trial: Trial) -> None:
        cost = self.records[trial.number].cost_seconds
        with self._noting(TrialProgress(trial=trial, measurements=())):
            self._calls.repeat(lambda: self._store.renew_lease(trial, LEASE_SECONDS, cost))
        self._renewed[trial.number] = time.monotonic()

    @contextlib.contextmanager
    def _noting(self, event: TrialProgress | Finished) -> Iterator[None]:
        """Keeps what the store refuses because the trial is another process's by now. `TrialLost` goes on."""
        try:
            yield
        except TrialLost:
            self._listener.log(late_reports.keep(self._store, self.sweep.id, event, self._owner))
            raise

    def _stored(self, number: int) -> TrialRecord | None:
        """Returns a trial as the store has it now, with the last point of its curve at most."""
        found = self._store.trials(self.sweep.id, curves=False, last_points=True, numbers=[number])
        return found[0] if found else None

    def _runs_here(self, stored: TrialRecord) -> bool:
        return stored.state is TrialState.RUNNING and stored.owner == self._owner

    def _handle(self, stored: TrialRecord) -> Trial:
        return Trial(**{field.name: getattr(stored, field.name) for field in dataclasses.fields(Trial)})


def _is_outcome(stored: TrialRecord, outcome: Outcome) -> bool:
    """Whether a stored trial has ended with this very outcome."""
    same_end = stored.state is outcome.state and stored.end is outcome.end
    same = stored.score == outcome.score and stored.cost_seconds == outcome.cost_seconds
    return same_end and same and stored.steps == outcome.steps


def _is_last_point(stored: TrialRecord, point: Measurement) -> bool:
    """Whether a point ends the stored curve of a trial."""
    return any(
        last.steps == point.steps and last.elapsed_seconds == point.elapsed_seconds for last in stored.curve[-1:]
    )
