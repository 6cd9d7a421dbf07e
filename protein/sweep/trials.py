"""The trials of a sweep as the store has them, and this process's lease on those that it runs.

The store is the only memory. Every change is written there first and mirrored here.

**An unavailable store.** A disk may be full for a while, or a server starts again. So a call is repeated for some
minutes, and a long sweep is not lost. A server that dies between a commit and its answer leaves open whether the write
is stored. So what is stored is looked at before a write is repeated.

**Late reports.** A controller may be cut off, by its network or because it was stopped, for longer than its lease
lasts. Then the same command on another machine takes its trials. When the first one is back, the store refuses whatever
it has to say of them. What that was is kept in the trial's note, for a person who wonders.

**Learning curves.** They are most of a store: of 10,000 trials with 100 points each, reading all took 13 s and 1.1 GB.
The engine looks at few of them. So a sweep of at most `MAX_WHOLE` trials is read whole, and of a larger one the curves
of some trials (`protein.engine.sample.with_curves`). The rest have one point: how many steps they made.
"""

import contextlib
import dataclasses
import functools
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn, TypeVar

from protein.engine.sample import MAX_WHOLE, with_curves
from protein.errors import ProteinError, StoreUnavailable, TrialLost
from protein.ports import Finished, Listener, Store, TrialProgress
from protein.run.lease import LEASE_SECONDS, RENEW_SECONDS, current_owner, dead_owners, living_owners
from protein.spelling import counted
from protein.sweep import resuming
from protein.sweep.ownership import being_run, refuse_owners
from protein.types import (
    MAX_NOTE_LENGTH,
    Measurement,
    Observation,
    Outcome,
    Params,
    Provenance,
    Request,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
    fields_of,
)

T = TypeVar("T")

WISHES_SECONDS = 1.0  # how often the store is asked whether a person has paused, stopped or excluded something
STORE_PATIENCE_SECONDS = 600.0  # how long an unavailable store is tried again
STORE_RETRY_SECONDS = 5.0
PAUSE_SECONDS = 0.1  # between two looks at whether the sweep is to stop, while the store is waited for
_PART = 200  # trials whose curves are read in one query


class SweepTrials:
    """The trials of one sweep. This process alone may run it from `take_over` on.

    Attributes:
        sweep: the sweep, with the budget most recently asked for.
        records: all trials by number, finished and running.
        running: those that this process runs, by number.
        cancelled: numbers of trials whose end a person has asked for.
        store_seconds: the wall clock that the store has taken, without waiting for it to be available.
    """

    def __init__(self, sweep: SweepRecord, store: Store, listener: Listener, stop: threading.Event) -> None:
        self.sweep = sweep
        self.records: dict[int, TrialRecord] = {}
        self.running: dict[int, Trial] = {}
        self.cancelled: frozenset[int] = frozenset()
        self.store_seconds = 0.0
        self._store, self._listener, self._stop = store, listener, stop
        self._owner = current_owner()
        self._behind: dict[int, int] = {}  # steps of trials that were taken up here, before they were, by number
        self._renewed: dict[int, float] = {}  # when the lease was renewed, by number, on the monotonic clock
        self._finished: set[int] = set()  # numbers of trials that were seen to have ended; they never change again
        self._observed: dict[int, Observation] = {}  # of the finished trials, by number
        self._asked_at = -math.inf  # when the store was asked for wishes, on the monotonic clock

    def take_over(self, max_cost_seconds: float | None) -> None:
        """Reads what is stored, takes over what a dead process left running, and stores the new budget.

        The trials that it left running wait from now on.

        Raises:
            UsageError: another live process runs this sweep.
        """
        self.records = {trial.number: trial for trial in self._repeat(lambda: read_trials(self._store, self.sweep.id))}
        ran = [number for number, trial in self.records.items() if trial.state is TrialState.RUNNING]
        owners = [self.records[number].owner for number in ran]
        # Before the leases are looked at: a clock that was set forward makes a living process's lease look ended.
        refuse_owners(self.sweep, living_owners(owners))
        dead = dead_owners(owners)
        self._repeat(lambda: self._store.interrupt_orphans(self.sweep.id, dead, ran))
        # Asked, and not the answer above: the first one may be lost, and the second names those of its own call alone.
        self._reread(ran)
        now = [self.records[number] for number in ran]
        orphans = [one.number for one in now if one.state is TrialState.WAITING or one.end is TrialEnd.INTERRUPTED]
        if orphans:
            self._listener.log(resuming.interrupted(orphans, resuming.goes_on(self.sweep.spec.config)))
        refuse_owners(self.sweep, [one.owner for one in self.records.values() if one.state is TrialState.RUNNING])
        self.set_ended("")
        if self.requested() is Request.STOP:  # it was meant for the process that ran the sweep before
            self.request(Request.RUN)
        if max_cost_seconds != self.sweep.max_cost_seconds:  # only now: no other process runs the sweep by it
            self._repeat(lambda: self._store.set_budget(self.sweep.id, max_cost_seconds))
            self.sweep = dataclasses.replace(self.sweep, max_cost_seconds=max_cost_seconds)

    def forget_outside(self, directory: Path) -> None:
        """Lets trials go on only from what lies in a folder, that of the sweep's artifacts."""
        self.records = {number: resuming.only_within(trial, directory) for number, trial in self.records.items()}

    @property
    def waiting(self) -> list[int]:
        """The numbers of the trials that wait to be taken up again, lowest first."""
        return sorted(n for n in self._unfinished() if self.records[n].state is TrialState.WAITING)

    @property
    def num_finished(self) -> int:
        """How many trials have ended."""
        return len(self.records) - len(self._unfinished())

    def _unfinished(self) -> set[int]:
        # The loop asks several times for each event: a look at each of 100,000 trials took longer than all else.
        unfinished = self.records.keys() - self._finished
        ended = {number for number in unfinished if self.records[number].state.finished}
        self._finished |= ended
        return unfinished - ended

    def set_ended(self, ended: str) -> None:
        """Stores why the sweep's run has ended; "": it runs."""
        if ended != self.sweep.ended:
            self._repeat(lambda: self._store.set_ended(self.sweep.id, ended))
            self.sweep = dataclasses.replace(self.sweep, ended=ended)

    def requested(self, *, fresh: bool = False) -> Request:
        """Follows what people have asked for since the last call, and returns what they ask of the sweep.

        Exclusions show in `records` from now on. Unless the answer has to be `fresh`, the store is asked again after
        `WISHES_SECONDS` at the earliest.
        """
        if not fresh and time.monotonic() - self._asked_at < WISHES_SECONDS:
            return self.sweep.requested
        wishes = self._repeat(lambda: self._store.wishes(self.sweep.id))
        self._asked_at = time.monotonic()
        self.cancelled = wishes.cancelled
        self._take_queued(wishes.num_trials)
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
        self._repeat(lambda: self._store.request(self.sweep.id, requested))
        self.sweep = dataclasses.replace(self.sweep, requested=requested)

    def _take_queued(self, num_trials: int) -> bool:
        """Takes over the trials that people have queued since the last look. Returns whether there are any."""
        new = range(self.next_number, num_trials)
        found = self._repeat(lambda: self._store.trials(self.sweep.id, numbers=new)) if new else []
        if any(trial.kind is not SuggestionKind.BY_HAND or trial.state is TrialState.RUNNING for trial in found):
            return False  # another process runs the sweep; the next claim says so
        self.records |= {trial.number: trial for trial in found}
        if waiting := [trial.number for trial in found if trial.is_queued]:
            self._listener.log(f"queued by hand: {counted(len(waiting), 'trial')}, {', '.join(map(str, waiting))}")
        return bool(found)

    @property
    def next_number(self) -> int:
        """The number of the next trial."""
        return max(self.records, default=-1) + 1

    def start(
        self, suggestion: Suggestion, *, seed: int, suggest_seconds: float, provenance: Provenance
    ) -> TrialRecord | None:
        """Stores the next trial as running and returns it. Returns None where a person has queued others just now.

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

        try:
            trial = self._claim(number, start, lambda it: it.params == suggestion.params and it.seed == seed)
        except TrialLost as error:
            if self._take_queued(self._repeat(lambda: self._store.wishes(self.sweep.id)).num_trials):
                return None
            self._lost(error)
        record = TrialRecord.begun(trial, suggestion, suggest_seconds=suggest_seconds, provenance=provenance)
        self.records[number] = record
        return record

    def resume(self, number: int, place: resuming.Place, *, provenance: Provenance | None = None) -> TrialRecord | None:
        """Makes a waiting trial run again from a place. Returns None where somebody has cancelled it.

        `provenance` is that of a trial that has only been queued: it starts here and now.

        Raises:
            TrialLost: another process runs it.
        """

        def resume() -> Trial:
            return self._store.take_up_trial(
                self.sweep.id, number, self._owner, LEASE_SECONDS, place.steps, place.seconds, provenance
            )

        try:
            self._claim(number, resume, lambda it: True)
        except TrialLost as error:
            self._reread([number])
            if self.records[number].state is TrialState.RUNNING:
                self._lost(error)
            return None
        self._reread([number])
        self._behind[number] = place.steps
        return self.records[number]

    def _lost(self, error: TrialLost) -> NoReturn:
        """Raises `TrialLost`, with the process that runs the sweep where one does."""
        owners = self._repeat(lambda: self._store.live_trials(self.sweep.id)).values()
        if others := [owner for owner in owners if owner != self._owner]:
            raise TrialLost(being_run(self.sweep, others[0])) from error
        raise error

    def release(self, event: Finished) -> TrialRecord:
        """Makes a running trial wait to be taken up again, and returns it."""
        number, outcome = event.trial.number, event.outcome
        cost = max(outcome.cost_seconds, self.records[number].cost_seconds)
        self._give_back(
            event,
            lambda: self._store.release_trial(event.trial, outcome.reason, cost),
            lambda it: it.owner == "" and it.cost_seconds == cost,  # "": nobody's, it waits or has ended
        )
        self._reread([number])  # the store ends one whose end a person has asked for
        return self.records[number]

    def _reread(self, numbers: Sequence[int]) -> None:
        """Takes over what the store knows of some trials that others may have changed."""
        if numbers:
            found = self._repeat(lambda: self._store.trials(self.sweep.id, numbers=numbers))
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
        # A trial's metric is the last value in its curve, unless its end gives another.
        last = {name: value for point in self.records[number].curve for name, value in point.metrics.items()}
        outcome = dataclasses.replace(outcome, metrics=last | dict(outcome.metrics))
        self._give_back(
            event,
            lambda: self._store.finish_trial(event.trial, outcome, event.artifacts),
            lambda it: it.owner == self._owner and _is_outcome(it, outcome),
        )
        self.records[number] = self.records[number].ended(outcome, event.artifacts)
        return self.records[number]

    def renew_leases(self) -> None:
        """Renews the leases of running trials that have been silent for a while."""
        now = time.monotonic()
        for number, trial in self.running.items():
            if now - self._renewed[number] >= RENEW_SECONDS:
                cost = self.records[number].cost_seconds
                with self._noting(TrialProgress(trial=trial, measurements=())):
                    self._repeat(functools.partial(self._store.renew_lease, trial, LEASE_SECONDS, cost))
                self._renewed[number] = time.monotonic()

    def interrupt_running(self) -> None:
        """Gives back what an error left running. This process may live on, and run the sweep again."""
        for number, trial in self.running.items():
            if number not in self.cancelled:
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

    def history(self, *, can_continue: bool = False, confirmations: bool = True) -> list[Observation]:
        """Returns what the designer learns from the finished trials, oldest first, and which it may continue.

        Without `confirmations` it is what the search has tried.
        """
        for number, trial in self.records.items():
            if trial.state.finished and number not in self._observed:
                one = trial.observation()
                if resuming.given_up(trial, self.sweep.spec.config):
                    one = dataclasses.replace(one, excluded=True)
                self._observed[number] = one
        observed = sorted(self._observed.items())
        if not confirmations:
            observed = [(number, one) for number, one in observed if not self.records[number].confirms]
        if not can_continue:
            return [one for _, one in observed]
        resumable = [resuming.resumable_seconds(self.records[number]) for number, _ in observed]
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
            self._repeat(lambda: add(event.measurements), again)
        self._renewed[event.trial.number] = time.monotonic()

    @contextlib.contextmanager
    def _noting(self, event: TrialProgress | Finished) -> Iterator[None]:
        """Keeps what the store refuses because the trial is another process's by now. `TrialLost` goes on."""
        try:
            yield
        except TrialLost:
            self._listener.log(note_late_report(self._store, self.sweep.id, event, self._owner))
            raise

    def _repeat(self, call: Callable[[], T], again: Callable[[], T] | None = None) -> T:
        """Calls the store, again and again while it is unavailable, for at most `STORE_PATIENCE_SECONDS`.

        Args:
            call: the first call, which may have been stored although its answer was lost.
            again: what is called from the second time on, where `call` must not be stored twice; None: `call`.

        Raises:
            StoreUnavailable: for too long, or when the sweep is to stop.
        """
        began = time.monotonic()
        while True:
            tried = time.monotonic()
            try:
                result = call()
            except StoreUnavailable as error:
                if time.monotonic() - began > STORE_PATIENCE_SECONDS or self._stop.is_set():
                    raise
                self._listener.log(f"the store is unavailable, trying again in {STORE_RETRY_SECONDS:.0f} s: {error}")
                until = time.monotonic() + STORE_RETRY_SECONDS
                # Not by `stop.wait`: a signal's handler may set `stop`.
                while time.monotonic() < until and not self._stop.is_set():
                    time.sleep(min(PAUSE_SECONDS, STORE_RETRY_SECONDS))
                call = again or call
            else:
                self.store_seconds += time.monotonic() - tried
                return result

    def _stored(self, number: int) -> TrialRecord | None:
        """Returns a trial as the store has it now, with the last point of its curve at most."""
        found = self._store.trials(self.sweep.id, curves=False, last_points=True, numbers=[number])
        return found[0] if found else None

    def _claim(self, number: int, claim: Callable[[], Trial], is_ours: Callable[[TrialRecord], bool]) -> Trial:
        """Makes a trial run here, by `claim`. Where the answer was lost, `is_ours` tells whether it is stored."""

        def again() -> Trial:
            stored = self._stored(number)
            if stored is None or stored.state is not TrialState.RUNNING or stored.owner != self._owner:
                return claim()
            fields = {field.name: getattr(stored, field.name) for field in dataclasses.fields(Trial)}
            return Trial(**fields) if is_ours(stored) else claim()

        self.running[number] = trial = self._repeat(claim, again)
        self._renewed[number] = time.monotonic()
        return trial

    def _give_back(self, event: Finished, write: Callable[[], None], is_stored: Callable[[TrialRecord], bool]) -> None:
        """Writes that a trial runs no more. Where the answer was lost, the write is not made again if `is_stored`."""
        number = event.trial.number

        def again() -> None:
            stored = self._stored(number)
            if stored is None or not is_stored(stored):
                write()

        with self._noting(event):
            self._repeat(write, again)
        del self.running[number], self._renewed[number]


def read_trials(store: Store, sweep_id: int, *, most: int = MAX_WHOLE) -> list[TrialRecord]:
    """Returns all trials of a sweep in their order, those of a large one with few curves; see the head of this file."""
    known = store.summaries([sweep_id])[sweep_id]
    if known.total <= most:
        return store.trials(sweep_id)
    trials = store.trials(sweep_id, curves=False)
    chosen = sorted({*with_curves(trials), *known.running})
    whole: dict[int, TrialRecord] = {}
    for first in range(0, len(chosen), _PART):
        whole |= {trial.number: trial for trial in store.trials(sweep_id, numbers=chosen[first : first + _PART])}
    for i, trial in enumerate(trials):  # in place: both forms of 100,000 trials would take twice the memory
        trials[i] = whole.get(trial.number) or _with_last_point(trial)
    return trials


def note_late_report(store: Store, sweep_id: int, event: TrialProgress | Finished, owner: str) -> str:
    """Adds a refused report to its trial's note, after what people have written there.

    Returns:
        The line for people.
    """
    host, pid, _ = owner.rsplit(":", 2)
    line = f"late report of process {pid} on {host}, refused: {_in_words(event)}"
    number = event.trial.number
    with contextlib.suppress(ProteinError):  # a note is not worth an error of its own
        for trial in store.trials(sweep_id, curves=False, numbers=[number]):
            note = f"{trial.note}\n{line}".strip()
            if len(note) <= MAX_NOTE_LENGTH:
                store.annotate(sweep_id, number, note=note)
    return f"trial {number}: {line}"


def _with_last_point(trial: TrialRecord) -> TrialRecord:
    """Returns a trial whose curve is one point without a score; the engine asks how many steps it made."""
    if not trial.steps:
        return trial
    point = Measurement(steps=trial.steps, elapsed_seconds=trial.cost_seconds, score=None)
    return TrialRecord(**{**fields_of(trial), "curve": (point,)})


def _in_words(event: TrialProgress | Finished) -> str:
    if isinstance(event, Finished):
        outcome = event.outcome
        score = "" if outcome.score is None else f" with score {outcome.score:.6g}"
        return f"it ended ({outcome.end.value}){score} after {outcome.steps:,} steps and {outcome.cost_seconds:.1f} s"
    if not event.measurements:
        return "it was still running"
    last = event.measurements[-1]
    score = "" if last.score is None else f" and score {last.score:.6g}"
    return f"it was at step {last.steps:,} with {last.elapsed_seconds:.1f} s{score}"


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
