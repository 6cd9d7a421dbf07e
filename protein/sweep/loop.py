"""The loop between designer, backend and store: it spends a cost budget on trials and keeps every fact.

The store is the only memory. A sweep that was killed at any moment is resumed when it is run again.
`SweepTrials.take_over` (in `protein.sweep.trials`) does this: the trials that were running then end as interrupted, and
their cost counts once. The designer sees the finished trials.

Costs are seconds of training on each trial's own clock, summed over trials. Time while the sweep did not run costs
nothing.

How the budget is kept: a trial may cost the cap on one trial, or what is left of the budget if that is less, and it
ends itself there. What running trials are expected to cost is subtracted from what is left. If trials that run side by
side cost more than expected, all of them are ended as soon as they have spent the budget together.

People may ask for things from outside, through the store (`protein.ports.Wishes`). While the sweep is paused, no trial
starts, and the loop waits. A stop ends the sweep as a first Ctrl-C does. The engine ignores excluded trials.
"""

import dataclasses
import math
import shlex
import threading
import time
from pathlib import Path

from protein.engine.budget import RunningCost, limit_reached, remaining_seconds, why_nothing
from protein.engine.pareto import MIN_COST_SECONDS
from protein.errors import ProteinError, TrialFailed, UsageError
from protein.ports import Backend, Designer, Finished, Job, Listener, Store, SweepStatus, TrialProgress
from protein.space import Space
from protein.sweep import continuing, provenance
from protein.sweep.job import CAP_FRACTION, max_seconds, total_steps, trial_config, trial_seed
from protein.sweep.minimum_budget import require_a_complete_trial
from protein.sweep.stop_when import StopWhen
from protein.sweep.trials import SweepTrials
from protein.trainer.machine.cores import usable_cores
from protein.types import Budget, Request, SweepRecord, TrialEnd, TrialRecord, TrialState

POLL_SECONDS = 0.25
OVERHEAD_SECONDS = 300.0  # start-up, compiling and evaluation, on top of a trial's cap, before it counts as hung
OVERHEAD_FACTOR = 3.0  # the wall clock may show this many times the trainer's own seconds
MAX_FAILURES_IN_A_ROW = 10  # then something is broken that other params will not fix


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How a sweep is run here and now; none of it defines the sweep, so all may change when it is resumed."""

    directory: Path  # artifacts: one folder a trial
    workers: int = 1
    max_cost_seconds: float | None = None  # stored as the sweep's budget once the loop has taken the sweep over
    max_trial_seconds: float | None = None  # the cap on one trial's cost; None becomes a quarter of the budget
    max_trials: int | None = None  # of the whole sweep, failed ones included
    max_memory_bytes: int | None = None
    speed: float | None = 1.0  # of this machine (`protein.sweep.speed`); None: trials run elsewhere
    can_continue: bool = False  # finished trials may go on to more steps, where they left something to go on from
    stop_when: StopWhen | None = None  # no trial is started once this holds; those that run may finish

    def __post_init__(self) -> None:
        if self.max_trial_seconds is None and self.max_cost_seconds is not None:
            object.__setattr__(self, "max_trial_seconds", CAP_FRACTION * self.max_cost_seconds)


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
    """Runs trials until the budget or their number is spent, nothing worth starting fits, too little gain is expected
    (`settings.stop_when`), or `stop` is set.

    Raises:
        UsageError: another live process runs this sweep; or the budget was too small for a single trial.
        StoreUnavailable: the store refused a write for too long (see `protein.sweep.trials`). What was stored stays.
        TrialLost: this process slept past its lease, and another has taken its trials.
        TrialFailed: `MAX_FAILURES_IN_A_ROW` trials failed one after the other. A single failure is a fact in the store.
    """
    trials = SweepTrials(sweep, store, listener, stop)
    loop = _Loop(trials, designer, backend, settings, listener, stop)
    try:
        loop.run()
    finally:
        backend.close()
        trials.interrupt_running()
    return loop.status()


@dataclasses.dataclass(slots=True, kw_only=True)
class _Limits:
    """What ends one running trial."""

    max_seconds: float | None  # of its cost; the trial ends itself there
    total_steps: int | None  # the trial ends itself there, too
    told_to_end: bool = False

    def ends_itself(self, trial: TrialRecord) -> bool:
        """Whether the trial has spent all that it may: it is being evaluated, and costs nothing more."""
        at_cap = self.max_seconds is not None and trial.cost_seconds >= self.max_seconds
        return at_cap or (self.total_steps is not None and trial.steps >= self.total_steps)


class _Loop:
    """The state of one call of `run_sweep`."""

    def __init__(
        self,
        trials: SweepTrials,
        designer: Designer,
        backend: Backend,
        settings: LoopSettings,
        listener: Listener,
        stop: threading.Event,
    ) -> None:
        self._trials = trials
        self._designer = designer
        self._backend = backend
        self._settings = settings
        self._listener = listener
        self._stop = stop
        self._began = time.monotonic()
        self._designer_seconds = 0.0
        self._limits: dict[int, _Limits] = {}  # of the running trials, by number
        self._failures_in_a_row = 0
        self._ended = ""
        self._enough: str | None = None  # why too little gain is expected to go on
        self._asked_after = -1  # how many trials had finished when that was last asked
        self._no_more_trials: ProteinError | None = None  # why it makes no sense to start another one
        self._paused = self._stopped_from_outside = False

    def status(self) -> SweepStatus:
        records = self._trials.records
        return SweepStatus(
            sweep=self._trials.sweep,
            trials=[records[number] for number in sorted(records)],
            elapsed_seconds=time.monotonic() - self._began,
            engine_seconds=self._designer_seconds + self._trials.store_seconds,
            stopping=self._stop.is_set(),
            max_trial_seconds=self._settings.max_trial_seconds,
            max_trials=self._settings.max_trials,
            ended=self._ended,
        )

    def run(self) -> None:
        self._trials.take_over(self._settings.max_cost_seconds)
        exhausted = False  # nothing fits the budget now; it may fit later, when running trials have ended
        while True:
            self._follow_requests()
            while self._may_start() and not exhausted and len(self._trials.running) < self._settings.workers:
                self._follow_requests(fresh=True)
                if self._paused or self._stop.is_set():
                    break
                exhausted = not self._start_next()
            if self._stop.is_set():
                for trial in self._trials.running.values():
                    self._backend.stop(trial, TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text)
            if not self._trials.running:
                if not (self._paused and self._may_start() and not exhausted):
                    break
                time.sleep(POLL_SECONDS)
                self._listener.update(self.status())
                continue
            for event in self._backend.poll(POLL_SECONDS):
                if isinstance(event, Finished):
                    self._on_finished(event)
                    exhausted = False
                else:
                    self._on_progress(event)
            self._trials.renew_leases()
            self._listener.update(self.status())
        if self._no_more_trials is not None:
            raise self._no_more_trials
        if self._stopped_from_outside:
            self._trials.request(Request.RUN)  # it was followed; the next start of the sweep is to run
        self._ended = self._why_ended(exhausted=exhausted)
        if exhausted:
            require_a_complete_trial(
                self._trials.sweep,
                list(self._trials.records.values()),
                self._settings.max_cost_seconds,
                self._settings.max_trial_seconds,
            )

    def _follow_requests(self, *, fresh: bool = False) -> None:
        """Pauses, goes on or stops as people ask from outside."""
        requested = self._trials.requested(fresh=fresh)
        if requested is Request.STOP and not self._stop.is_set():
            self._stopped_from_outside = True
            self._listener.log("the sweep was asked to stop from outside: running trials are interrupted")
            self._stop.set()
        if self._paused != (requested is Request.PAUSE):
            self._paused = not self._paused
            name = self._trials.sweep.spec.name
            now = "goes on: trials start again"
            if self._paused:
                now = f"is paused: trials that run go on, and none starts until protein resume {shlex.quote(name)}"
            self._listener.log(f"sweep '{name}' {now}")

    def _may_start(self) -> bool:
        if self._no_more_trials is not None or self._stop.is_set() or self._remaining_trials() == 0:
            return False
        return not self._is_enough()

    def _is_enough(self) -> bool:
        """Whether `stop_when` holds. That is asked once after each finished trial, and when the sweep is resumed."""
        finished = sum(trial.state.finished for trial in self._trials.records.values())
        if self._settings.stop_when is not None and self._enough is None and finished != self._asked_after:
            self._asked_after, began = finished, time.monotonic()
            space = Space.from_dict(self._trials.sweep.spec.space)
            self._enough = self._settings.stop_when.reason(space, self._trials.history())
            self._designer_seconds += time.monotonic() - began
        return self._enough is not None

    def _remaining_trials(self) -> int | None:
        """Returns how many trials may still be started; None: any number."""
        limit = self._settings.max_trials
        return None if limit is None else max(limit - self._trials.next_number, 0)

    def _why_ended(self, *, exhausted: bool) -> str:
        if self._stop.is_set():
            return "interrupted"
        if self._enough is not None:
            return self._enough
        if not exhausted:
            assert self._settings.max_trials is not None
            return limit_reached(self._settings.max_trials)
        space = Space.from_dict(self._trials.sweep.spec.space)
        return why_nothing(space, self._trials.history(), [], self._budget())

    def _start_next(self) -> bool:
        """Suggests, stores and starts one trial. Returns False when nothing fits the budget or should start now."""
        budget = self._budget()
        if budget.spent:
            return False
        suggest_seed, train_seed = trial_seed(self._trials.sweep.spec.seed, self._trials.next_number)
        began = time.monotonic()
        history = self._trials.history(can_continue=self._settings.can_continue)
        suggestion = self._designer.suggest(history, self._trials.running_params(), budget, suggest_seed)
        suggest_seconds = time.monotonic() - began
        self._designer_seconds += suggest_seconds
        if suggestion is None:
            return False
        parent = None if suggestion.continues is None else self._trials.records[suggestion.continues]
        if parent is not None:  # a longer run of the same seed, whose beginning counts towards the cap
            train_seed = parent.seed
            if (cap := budget.max_trial_seconds) is not None:
                rest = max(cap - suggestion.continued_seconds, MIN_COST_SECONDS)
                budget = dataclasses.replace(budget, max_trial_seconds=rest)
        limit = None if budget.next_trial_seconds == math.inf else budget.next_trial_seconds
        config = trial_config(
            self._trials.sweep.spec.config,
            suggestion.params,
            seed=train_seed,
            threads=max(1, usable_cores() // self._settings.workers),
            max_seconds=limit,
        )
        own_limit = max_seconds(config)  # the user's own config may hold a lower one
        trial = self._trials.start(
            suggestion, seed=train_seed, suggest_seconds=suggest_seconds, provenance=provenance.collect(config)
        )
        self._limits[trial.number] = _Limits(max_seconds=own_limit, total_steps=total_steps(config))
        by_budget = limit != budget.max_trial_seconds and own_limit == limit
        job = Job(
            trial=self._trials.running[trial.number],
            config=config,
            directory=self._settings.directory / f"{trial.number:04d}",
            max_seconds=None if limit is None else OVERHEAD_SECONDS + OVERHEAD_FACTOR * limit,
            max_memory_bytes=self._settings.max_memory_bytes,
            continues=None if parent is None else continuing.state(parent),
            at_limit=TrialEnd.OUT_OF_BUDGET if by_budget else TrialEnd.CAPPED,
            speed=self._settings.speed,
        )
        try:
            self._backend.start(job)
        except OSError as error:  # no trial will start here: the next start of the sweep finds this one interrupted
            raise UsageError(
                f"trial {trial.number} cannot be started in {job.directory}: {error.strerror or error};"
                " fix that, then run the same command again to resume"
            ) from error
        self._listener.started(trial)
        return True

    def _budget(self) -> Budget:
        """Returns what the next trial may cost."""
        trials = self._trials.records.values()
        return Budget(
            remaining_seconds=remaining_seconds(
                self._settings.max_cost_seconds,
                [trial.cost_seconds for trial in trials if trial.state.finished],
                [self._running_cost(trial) for trial in trials if not trial.state.finished],
            ),
            max_trial_seconds=self._settings.max_trial_seconds,
            remaining_trials=self._remaining_trials(),
            can_wait=True,
        )

    def _running_cost(self, trial: TrialRecord) -> RunningCost:
        predicted = trial.predicted_cost_seconds
        return RunningCost(
            predicted_seconds=None if predicted is None else predicted.value,
            max_seconds=self._limits[trial.number].max_seconds,
            spent_seconds=trial.cost_seconds,
        )

    def _on_progress(self, event: TrialProgress) -> None:
        trial = self._trials.add(event)
        if event.measurements and not self._stop.is_set():
            self._end_all_if_budget_is_spent()
            self._stop_early_if_advised(trial)

    def _end_all_if_budget_is_spent(self) -> None:
        """Ends the running trials that have spent the budget together, while each alone may spend more."""
        budget = self._settings.max_cost_seconds
        if budget is None or sum(trial.cost_seconds for trial in self._trials.records.values()) < budget:
            return
        for number in self._trials.running:
            if not self._limits[number].ends_itself(self._trials.records[number]):
                self._end(number, TrialEnd.OUT_OF_BUDGET, TrialEnd.OUT_OF_BUDGET.text)

    def _stop_early_if_advised(self, trial: TrialRecord) -> None:
        """Asks the designer about a trial that has reported, unless that trial is being ended already.

        One that continues another is not asked about: the rule compares runs from their first step on.
        """
        if self._limits[trial.number].told_to_end or trial.continues is not None:
            return
        began = time.monotonic()
        reason = self._designer.should_stop(
            self._trials.history(),
            trial.params,
            trial.curve,
            trial_seed(self._trials.sweep.spec.seed, trial.number)[0],
        )
        self._designer_seconds += time.monotonic() - began
        if reason is not None:
            self._end(trial.number, TrialEnd.STOPPED_EARLY, f"{TrialEnd.STOPPED_EARLY.text}: {reason}")

    def _end(self, number: int, end: TrialEnd, reason: str) -> None:
        if not self._limits[number].told_to_end:
            self._limits[number].told_to_end = True
            self._backend.stop(self._trials.running[number], end, reason)

    def _on_finished(self, event: Finished) -> None:
        trial = self._trials.finish(event)
        del self._limits[trial.number]
        self._listener.finished(trial, self.status())
        outcome = event.outcome
        if outcome.end is TrialEnd.DISK:  # the next trial would fail in the same way
            self._no_more_trials = UsageError(
                f"trial {trial.number} failed, {outcome.reason}; then run the same command again to resume"
            )
        elif outcome.state is not TrialState.FAILED:
            self._failures_in_a_row = 0
        elif outcome.end.teaches:
            self._failures_in_a_row += 1
            if self._failures_in_a_row >= MAX_FAILURES_IN_A_ROW:
                log = trial.artifact("log") or "its log"
                self._no_more_trials = TrialFailed(
                    f"{self._failures_in_a_row} trials in a row failed, the last one with: {outcome.reason}; see {log}"
                )
