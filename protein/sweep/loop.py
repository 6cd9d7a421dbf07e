"""The loop between designer, backend and store: it spends a cost budget on trials and keeps every fact.

The store is the only memory. A sweep that is killed at any moment goes on when it is run again: trials that were
running then are FAILED as interrupted, their cost counts once, and the designer sees the finished ones.

Costs are seconds of training on each trial's own clock, summed over trials; time that the sweep was down costs nothing.
"""

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from protein.engine.left import limit_reached, why_nothing
from protein.errors import ProteinError, StoreUnavailable, TrialFailed, UsageError
from protein.ports import Backend, Designer, Finished, Job, Listener, Store, SweepStatus, TrialProgress
from protein.space import Space
from protein.sweep import provenance
from protein.sweep.job import max_seconds, trial_config, trial_seed, usable_cores
from protein.sweep.lease import current_owner, dead_owners
from protein.sweep.too_small import CAP_FRACTION, require_a_complete_trial
from protein.types import (
    Observation,
    Outcome,
    SweepRecord,
    Trial,
    TrialEnd,
    TrialRecord,
    TrialState,
)

POLL_SECONDS = 0.25
LEASE_SECONDS = 120.0
RENEW_SECONDS = 20.0  # a silent trial's lease is renewed this often
STORE_PATIENCE_SECONDS = 600.0  # how long a store that refuses writes (disk full, server restarting) is tried again
STORE_RETRY_SECONDS = 5.0
OVERHEAD_SECONDS = 300.0  # start-up, compiling and evaluation, on top of a trial's cap, before it counts as hung
OVERHEAD_FACTOR = 3.0  # and the wall clock may be this much slower than the trainer's own
MAX_FAILURES_IN_A_ROW = 10  # then something is broken that no other params will mend

T = TypeVar("T")


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How a sweep is run here and now; none of it defines the sweep, so all may change when it is resumed."""

    directory: Path  # artefacts: one folder a trial
    workers: int = 1
    max_cost_seconds: float | None = None  # kept in the store as the sweep's budget once the loop has taken it up
    max_trial_seconds: float | None = None  # None: a quarter of the budget
    max_trials: int | None = None  # of the whole sweep, failed ones included
    max_memory_bytes: int | None = None

    def trial_cap_seconds(self) -> float | None:
        """Returns the most that one trial may cost."""
        if self.max_trial_seconds is not None or self.max_cost_seconds is None:
            return self.max_trial_seconds
        return CAP_FRACTION * self.max_cost_seconds


def run_sweep(
    sweep: SweepRecord,
    *,
    designer: Designer,
    store: Store,
    backend: Backend,
    settings: LoopSettings,
    listener: Listener,
    stop: threading.Event,
) -> SweepStatus:
    """Runs trials until the budget or their number is spent, nothing worth starting fits, or `stop` is set.

    Raises:
        UsageError: another live process runs this sweep; or the budget was too small for a single trial.
        StoreUnavailable: the store refused a write for longer than `STORE_PATIENCE_SECONDS`. What was stored stays.
        TrialLost: this process slept past its lease, and another has taken its trials.
        TrialFailed: `MAX_FAILURES_IN_A_ROW` trials failed one after the other. A single failure is a fact in the store.
    """
    loop = _Loop(sweep, designer, store, backend, settings, listener, stop)
    try:
        loop.run()
    finally:
        backend.close()
        loop.let_go()
    return loop.status()


class _Loop:
    """The state of one call of `run_sweep`: a mirror of the stored trials, and when leases were renewed."""

    def __init__(
        self,
        sweep: SweepRecord,
        designer: Designer,
        store: Store,
        backend: Backend,
        settings: LoopSettings,
        listener: Listener,
        stop: threading.Event,
    ) -> None:
        self._sweep = sweep
        self._designer = designer
        self._store = store
        self._backend = backend
        self._settings = settings
        self._listener = listener
        self._stop = stop
        self._owner = current_owner()
        self._began = time.monotonic()
        self._engine_seconds = 0.0
        self._records: dict[int, TrialRecord] = {}  # by number
        self._running: dict[int, Trial] = {}  # by number
        self._renewed: dict[int, float] = {}  # by number, on the monotonic clock
        self._caps: dict[int, float | None] = {}  # by number
        self._ending: set[int] = set()  # numbers of running trials that were told to end as hopeless
        self._failures_in_a_row = 0
        self._ended = ""
        self._hopeless: ProteinError | None = None  # why it makes no sense to start another trial

    def status(self) -> SweepStatus:
        return SweepStatus(
            sweep=self._sweep,
            trials=[self._records[number] for number in sorted(self._records)],
            elapsed_seconds=time.monotonic() - self._began,
            engine_seconds=self._engine_seconds,
            stopping=self._stop.is_set(),
            max_trial_seconds=self._settings.trial_cap_seconds(),
            ended=self._ended,
        )

    def run(self) -> None:
        self._take_up()
        exhausted = False  # nothing fits the budget; with trials running, what they really cost may leave room yet
        while True:
            while self._may_start() and not exhausted and len(self._running) < self._settings.workers:
                exhausted = not self._start_next()
            if self._stop.is_set():
                self._end_running()
            if not self._running:
                break
            for event in self._backend.poll(POLL_SECONDS):
                if isinstance(event, Finished):
                    self._on_finished(event)
                    exhausted = False
                else:
                    self._on_progress(event)
            self._renew_leases()
            self._listener.update(self.status())
        if self._hopeless is not None:
            raise self._hopeless
        self._ended = self._why(exhausted)
        if exhausted:
            require_a_complete_trial(self._sweep, list(self._records.values()), self._settings.max_cost_seconds)

    def let_go(self) -> None:
        """Marks what an error left running as interrupted: this process may live on, and run the sweep again."""
        for number, trial in self._running.items():
            record = self._records[number]
            interrupted = Outcome(
                end=TrialEnd.INTERRUPTED,
                reason=TrialEnd.INTERRUPTED.text,
                cost_seconds=record.cost_seconds,
                steps=record.steps,
            )
            with contextlib.suppress(ProteinError):  # else its lease ends, or this process
                self._store.finish_trial(trial, interrupted)

    def _may_start(self) -> bool:
        return self._hopeless is None and not self._stop.is_set() and not self._full()

    def _full(self) -> bool:
        limit = self._settings.max_trials
        return limit is not None and len(self._records) >= limit

    def _why(self, exhausted: bool) -> str:
        """Returns why the loop has ended."""
        if self._stop.is_set():
            return "interrupted"
        if not exhausted:
            assert self._full() and self._settings.max_trials is not None
            return limit_reached(self._settings.max_trials)
        return why_nothing(
            Space.from_dict(self._sweep.spec.space),
            self._history(),
            [],
            remaining_seconds=self._remaining_seconds(),
            max_trial_seconds=self._settings.trial_cap_seconds(),
        )

    def _take_up(self) -> None:
        """Reads what is stored, marks what a dead process left running as interrupted, and keeps the new budget."""
        trials = self._patiently(lambda: self._store.trials(self._sweep.id))
        owners = dead_owners(trials)
        orphans = self._patiently(lambda: self._store.interrupt_orphans(self._sweep.id, owners))
        if orphans:
            trials = self._patiently(lambda: self._store.trials(self._sweep.id))
            names = ", ".join(str(number) for number in orphans)
            self._listener.log(
                f"trial {names} was cut off when the sweep last ended: its cost counts, its params may be tried again"
            )
        for trial in trials:
            if trial.state is TrialState.RUNNING:
                name = self._sweep.spec.name
                raise UsageError(f"sweep '{name}' is being run by process {trial.owner}: wait for it, or stop it first")
        self._records = {trial.number: trial for trial in trials}
        budget = self._settings.max_cost_seconds
        if budget != self._sweep.max_cost_seconds:  # not before it is known that no other process runs the sweep
            self._patiently(lambda: self._store.set_budget(self._sweep.id, budget))
            self._sweep = dataclasses.replace(self._sweep, max_cost_seconds=budget)

    def _start_next(self) -> bool:
        """Suggests, stores and starts one trial. Returns False when nothing fits the budget."""
        remaining = self._remaining_seconds()
        if remaining is not None and remaining <= 0:
            return False
        # Not asked of the store: if another process has started one since this one read the trials, the claim fails.
        number = max(self._records, default=-1) + 1
        suggest_seed, train_seed = trial_seed(self._sweep.spec.seed, number)
        began = time.monotonic()
        suggestion = self._designer.suggest(
            self._history(),
            [trial.params for trial in self._running.values()],
            remaining_seconds=remaining,
            max_trial_seconds=self._settings.trial_cap_seconds(),
            seed=suggest_seed,
            remaining_trials=None if (limit := self._settings.max_trials) is None else limit - number,
        )
        suggest_seconds = time.monotonic() - began
        self._engine_seconds += suggest_seconds
        if suggestion is None:
            return False
        trial_cap = self._settings.trial_cap_seconds()
        cap = _smallest(trial_cap, remaining)
        threads = max(1, usable_cores() // self._settings.workers)
        config = trial_config(
            self._sweep.spec.config, suggestion.params, seed=train_seed, threads=threads, max_seconds=cap
        )
        origin = provenance.collect(config)
        trial = self._patiently(
            lambda: self._store.start_trial(
                self._sweep.id,
                suggestion,
                seed=train_seed,
                owner=self._owner,
                lease_seconds=LEASE_SECONDS,
                suggest_seconds=suggest_seconds,
                provenance=origin,
                number=number,
            )
        )
        self._running[trial.number] = trial
        self._renewed[trial.number] = time.monotonic()
        self._caps[trial.number] = cap
        self._records[trial.number] = TrialRecord.begun(
            trial, suggestion, suggest_seconds=suggest_seconds, provenance=origin
        )
        job = Job(
            trial=trial,
            config=config,
            directory=self._settings.directory / f"{trial.number:04d}",
            max_seconds=None if cap is None else OVERHEAD_SECONDS + OVERHEAD_FACTOR * cap,
            max_memory_bytes=self._settings.max_memory_bytes,
            # The user's own config may hold a lower limit than either.
            at_limit=TrialEnd.OUT_OF_BUDGET if cap != trial_cap and max_seconds(config) == cap else TrialEnd.CAPPED,
        )
        try:
            self._backend.start(job)
        except OSError as error:  # no trial will start here: the next start of the sweep finds this one interrupted
            raise UsageError(
                f"trial {trial.number} cannot be started in {job.directory}: {error.strerror or error};"
                " mend that, then run the same command again to resume"
            ) from error
        self._listener.started(self._records[trial.number])
        return True

    def _history(self) -> list[Observation]:
        return [trial.observation() for trial in self._records.values() if trial.state.finished]

    def _remaining_seconds(self) -> float | None:
        """Returns the budget left after all that was spent and all that running trials are expected to spend yet."""
        budget = self._settings.max_cost_seconds
        if budget is None:
            return None
        committed = 0.0
        for trial in self._records.values():
            committed += trial.cost_seconds if trial.state.finished else self._expected_seconds(trial)
        return budget - committed

    def _expected_seconds(self, trial: TrialRecord) -> float:
        if trial.predicted_cost_seconds is not None:
            expected = trial.predicted_cost_seconds.value
        else:
            expected = self._caps[trial.number] or 0.0
        return max(expected, trial.cost_seconds)

    def _on_progress(self, event: TrialProgress) -> None:
        number = event.trial.number
        self._patiently(lambda: self._store.add_measurements(event.trial, event.measurements, LEASE_SECONDS))
        self._renewed[number] = time.monotonic()
        if event.measurements:
            self._records[number] = self._records[number].grown(event.measurements)
            self._end_if_hopeless(self._records[number])

    def _end_if_hopeless(self, record: TrialRecord) -> None:
        """Asks the designer about a trial that has reported, unless it has been told to end already."""
        if record.number in self._ending or self._stop.is_set():
            return
        began = time.monotonic()
        reason = self._designer.should_stop(
            self._history(),
            [trial.params for number, trial in self._running.items() if number != record.number],
            record.params,
            record.curve,
            remaining_seconds=self._remaining_seconds(),
            seed=trial_seed(self._sweep.spec.seed, record.number)[0],
        )
        self._engine_seconds += time.monotonic() - began
        if reason is not None:
            self._ending.add(record.number)
            self._backend.stop_early(self._running[record.number], f"{TrialEnd.STOPPED_EARLY.text}: {reason}")

    def _on_finished(self, event: Finished) -> None:
        trial, outcome = event.trial, event.outcome
        if outcome.end is TrialEnd.DISK:  # the next trial would fail likewise
            self._hopeless = UsageError(
                f"trial {trial.number} failed, {outcome.reason}; then run the same command again to resume"
            )
        self._patiently(lambda: self._store.finish_trial(trial, outcome, event.artifacts))
        del self._running[trial.number], self._renewed[trial.number], self._caps[trial.number]
        self._ending.discard(trial.number)
        record = self._records[trial.number].ended(outcome, event.artifacts)
        self._records[trial.number] = record
        self._listener.finished(record, self.status())
        if outcome.state is not TrialState.FAILED:
            self._failures_in_a_row = 0
        elif outcome.end.teaches:
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                log = next((artifact.path for artifact in event.artifacts if artifact.kind == "log"), "its log")
                self._hopeless = TrialFailed(
                    f"{self._failures_in_a_row} trials in a row failed, the last one with: {outcome.reason}; see {log}"
                )

    def _renew_leases(self) -> None:
        now = time.monotonic()
        for number, trial in self._running.items():
            if now - self._renewed[number] >= RENEW_SECONDS:
                self._patiently(lambda trial=trial: self._store.add_measurements(trial, (), LEASE_SECONDS))  # type: ignore[misc]
                self._renewed[number] = now

    def _end_running(self) -> None:
        for trial in self._running.values():
            self._backend.interrupt(trial)

    def _patiently(self, call: Callable[[], T]) -> T:
        """Calls the store, again and again while it is unavailable: a night's work is worth waiting for."""
        began = time.monotonic()
        while True:
            tried = time.monotonic()
            try:
                result = call()
            except StoreUnavailable as error:
                if time.monotonic() - began > STORE_PATIENCE_SECONDS or self._stop.is_set():
                    raise
                self._listener.log(f"the store is unavailable, trying again in {STORE_RETRY_SECONDS:.0f} s: {error}")
                self._stop.wait(STORE_RETRY_SECONDS)
            else:
                self._engine_seconds += time.monotonic() - tried  # waiting for the store is no work of ours
                return result


def _smallest(*values: float | None) -> float | None:
    return min((value for value in values if value is not None), default=None)
