"""The loop between designer, backend and store: it spends a cost budget on trials and keeps every fact.

The store is the only memory. A sweep that was killed at any moment is resumed when it is run again
(`protein.sweep.trials`): the trials that were running then wait, and are taken up again before any new one is suggested
(`protein.sweep.resuming`). Their cost counts once, and what they have to do again counts as lost. The
designer sees the finished trials, and the params of the others.

Costs are seconds of training on each trial's own clock, summed over trials. Time while the sweep did not run costs
nothing.

How the budget is kept: a trial may cost the cap on one trial, or what is left of the budget if that is less, and it
ends itself there. What running trials are expected to cost is subtracted from what is left. If trials that run side by
side cost more than expected, all of them are ended as soon as they have spent the budget together. A program that
reports nothing costs its wall clock meanwhile (`TrialProgress.cost_seconds`).

People may ask for things from outside, through the store (`protein.ports.Wishes`). While the sweep is paused, no trial
starts, and the loop waits. A stop ends the sweep as a first Ctrl-C does. The engine ignores excluded trials, and
cancelled ones end.

What else holds trials back: too little disk or memory and failures in a row (`protein.sweep.trouble`), and the time at
which the user wants the machine back (`LoopSettings.until`).
"""

import contextlib
import dataclasses
import math
import shlex
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from protein.direction import shown_score
from protein.engine.budget import limit_reached, why_nothing
from protein.errors import ProteinError, TrialLost, in_words
from protein.ports import Backend, ConfirmationStatus, Designer, Finished, Listener, Store, SweepStatus, TrialProgress
from protein.run.machine import Slots
from protein.space import Space
from protein.sweep import hooks
from protein.sweep.confirming import AT_LIMIT, Confirm, Confirmer, has_contender
from protein.sweep.ending import Ending, cut_initial
from protein.sweep.launching import Launcher
from protein.sweep.limits import (
    CAP_FRACTION,
    cost_problem,
    failed_by_cost,
    next_budget,
    require_a_complete_trial,
    trial_seed,
    without_impossible_costs,
)
from protein.sweep.stop_conditions import Deadline, Met, StopWhen
from protein.sweep.trials import SweepTrials
from protein.sweep.trouble import MIN_FREE_DISK_BYTES, Failures, Preemptions, Watch, fatal, shortened
from protein.types import (
    Budget,
    Request,
    Suggestion,
    SuggestionKind,
    SweepRecord,
    TrialEnd,
    TrialRecord,
    TrialState,
    spent_seconds,
    unreported,
)

POLL_SECONDS = 0.25
NEWS_SECONDS = 1.0  # for which reports from other machines may wait while trials are started


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class LoopSettings:
    """How a sweep is run here and now; none of it defines the sweep, so all may change when it is resumed."""

    directory: Path  # artifacts: one folder a trial
    workers: int = 1
    slots: Slots | None = None  # the places where trials run; None: one for each worker, without cores of its own
    max_cost_seconds: float | None = None  # stored as the sweep's budget once the loop has taken the sweep over
    max_trial_seconds: float | None = None  # the cap on one trial's cost; None becomes a quarter of the budget
    max_trials: int | None = None  # of the whole sweep, failed ones included
    max_memory_bytes: int | None = None
    min_free_disk_bytes: int = MIN_FREE_DISK_BYTES  # no trial starts while less is free
    speed: float | None = 1.0  # of this machine (`protein.run.speed`); None: trials run elsewhere
    confirm: Confirm | None = (
        None  # contenders are run again: after the search, or at once (`protein.sweep.confirming`)
    )
    can_continue: bool = False  # finished trials may go on to more steps, where they left something to go on from
    stop_when: StopWhen | Met | None = None  # no trial is started once this holds; those that run may finish
    until: datetime | None = None  # no trial starts that is not expected to end by then; those that run wait then
    on_trial: str | Callable[[TrialRecord], object] | None = None  # the same, or a function, after each trial
    on_finish: str | None = None  # a line for the shell (`protein.sweep.hooks`), called when it has ended by itself
    on_trouble: str | None = None  # the same, when something is wrong
    store: str = ""  # as messages name it, without a password
    watched: Sequence[Path] = ()  # where there must be room on the disk, beside `directory`

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
    (`settings.stop_when`), the time has come (`settings.until`), too many trials fail in a row, or `stop` is set.

    Why it has ended is stored (`SweepRecord.ended`) and is in the answer. `SweepStatus.trouble` says whether that is
    because something is wrong, such as the failures in a row. It is trouble for the user's commands, too, where no
    trial ever had a score (`SweepStatus.never_scored`).

    Raises:
        UsageError: another live process runs this sweep; or the budget was too small for a single trial; or a disk is
            full; or a mistake in the function or the command makes every trial fail.
        StoreUnavailable: the store refused a write for too long (`protein.sweep.trials`). What was stored stays.
        TrialLost: this process slept past its lease, and another has taken its trials.
    """
    trials = SweepTrials(sweep, store, listener, stop)
    loop = _Loop(trials, designer, backend, settings, listener, stop)
    try:
        try:
            loop.run()
        finally:
            backend.close()
            trials.interrupt_running()
    except BaseException as error:
        loop.conclude(error)
        raise
    loop.conclude(None)
    return loop.status()


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
        self._polled = time.monotonic()  # when the backend was asked for news last
        self._idle_seconds = 0.0  # in which no trial ran or could start, as in a pause
        self._designer_seconds = 0.0
        slots = settings.slots or Slots(workers=settings.workers)
        self._launcher = Launcher(
            trials,
            backend,
            slots,
            directory=settings.directory,
            max_memory_bytes=settings.max_memory_bytes,
            speed=settings.speed,
        )
        self._ending = Ending(trials, self._launcher, designer, backend, listener, is_spent=self._is_spent)
        self._watch = Watch((settings.directory, *settings.watched), settings.min_free_disk_bytes)
        self._short = ""  # of disk or memory, in words
        self._failures, self._preemptions = Failures(), Preemptions()
        self._told_of_range = False
        self._taken_over = False
        self._ended = ""
        self._in_trouble = self._without_any_score = False
        self._failed: str | None = None  # what the failures or preemptions in a row have in common
        self._enough: str | None = None  # why too little gain is expected to go on
        self._asked_after = -1  # how many trials had finished when that was last asked
        self._deadline = Deadline(settings.until, settings.speed or 1.0)
        self._no_more_trials: BaseException | None = None  # why it makes no sense to start another one
        self._mistake = False  # that is because of how the program is written, so those that run are in vain
        self._exhausted = False  # nothing fits the budget now; it may fit later, when running trials have ended
        self._paused = self._stopped_from_outside = False
        confirm = settings.confirm or Confirm(share=0.0)
        self._confirm, self._confirmer = confirm, Confirmer(trials.sweep.spec, confirm)
        self._confirms = False  # contenders are run again now
        self._searched = ""  # why the search before that has ended, in words
        self._limit: float | None = confirm.search_seconds(settings.max_cost_seconds)  # of trials of the kind that runs
        self._num_confirmations = 0  # in all
        self._confirmed_before: Mapping[int, TrialRecord] = {}  # confirmations as they were before this call
        self._hooks: list[threading.Thread] = []
        self._limits = trials.sweep.spec.limits  # of which it is not told yet whether their metrics are reported
        on_trial = settings.on_trial
        self._after_trials = None if on_trial is None else hooks.AfterTrials(on_trial, settings.store, listener.log)
        self._told_of_metrics = False
        self._began_again = False  # the initial config, which an earlier limit had cut short

    def status(self) -> SweepStatus:
        records = self._trials.records
        return SweepStatus(
            sweep=self._trials.sweep,
            trials=[records[number] for number in sorted(records)],
            elapsed_seconds=time.monotonic() - self._began - self._idle_seconds,
            engine_seconds=self._designer_seconds + self._ending.designer_seconds + self._trials.store_seconds,
            stopping=self._stop.is_set(),
            max_trial_seconds=self._settings.max_trial_seconds,
            max_trials=self._settings.max_trials,
            ended=self._ended,
            trouble=self._in_trouble,
            confirmation=self._confirmation_status() if self._confirms else None,
        )

    def run(self) -> None:
        self._trials.take_over(self._settings.max_cost_seconds)
        self._trials.forget_outside(self._settings.directory)
        self._taken_over = True
        self._num_confirmations = sum(trial.confirms for trial in self._all_trials())
        if self._confirm.share is None:
            self._begin_confirming()
        if self._trials.records:  # the first suggestion may take a while
            self._listener.update(self.status())
        while True:
            self._follow_requests()
            self._watch_machine()
            more_may_start = self._start_what_may()
            if self._stop.is_set() or self._deadline.has_passed() or self._mistake:
                for trial in self._trials.running.values():
                    self._backend.stop(trial, TrialEnd.INTERRUPTED, TrialEnd.INTERRUPTED.text)
            if not self._trials.running:
                if self._nothing_to_start() or (self._exhausted and not self._held_back()):
                    if self._is_over() or self._confirms or not self._is_to_confirm():
                        break
                    self._searched = self._why_ended()
                    self._begin_confirming()
                    continue
                idle_since = time.monotonic()
                time.sleep(POLL_SECONDS)
                self._idle_seconds += time.monotonic() - idle_since
                self._listener.update(self.status())
                continue
            events = self._backend.poll(0.0 if more_may_start else POLL_SECONDS)
            self._polled = time.monotonic()
            for event in events:
                if isinstance(event, Finished):
                    self._on_finished(event)
                    self._exhausted = False
                else:
                    self._on_progress(event)
            self._trials.renew_leases()
            self._listener.update(self.status())
        if self._stopped_from_outside:
            self._trials.request(Request.RUN)  # it was followed; the next start of the sweep is to run
        if self._no_more_trials is not None:
            raise self._no_more_trials
        self._ended = self._why_ended() + self._still_queued() + self._without_score()
        if self._exhausted and self._deadline.reason is None and not self._confirms:
            require_a_complete_trial(
                self._trials.sweep,
                self._all_trials(),
                self._settings.max_cost_seconds,
                self._settings.max_trial_seconds,
            )

    def conclude(self, error: BaseException | None) -> None:
        """Stores why the run has ended, and calls the user's commands. Trials have ended, or wait."""
        if not self._taken_over:  # another process runs the sweep: nothing of it is ours to change
            return
        by_hand = isinstance(error, KeyboardInterrupt) or (error is None and self._stop.is_set())
        if self._after_trials is not None:  # before the commands of the end, one of which may stop the machine
            with contextlib.suppress(KeyboardInterrupt):
                self._after_trials.close(hooks.BY_HAND_SECONDS if by_hand else hooks.HOOK_SECONDS)
        if isinstance(error, TrialLost):  # another process runs the sweep by now, and says why it ends
            self._call("--on-trouble", self._settings.on_trouble, f"error: {error}")
        else:
            self._say_why(error, by_hand=by_hand)
        for thread in self._hooks:
            thread.join()

    def _say_why(self, error: BaseException | None, *, by_hand: bool) -> None:
        if error is not None:
            self._ended = "killed by a second Ctrl-C" if by_hand else f"error: {in_words(error)}"
            self._in_trouble = not by_hand
        try:
            self._trials.set_ended(" ".join(self._ended.split()))
        except ProteinError as problem:
            self._listener.log(f"why the sweep ended could not be stored: {problem}")
        if self._in_trouble or self._without_any_score:
            self._call("--on-trouble", self._settings.on_trouble, self._ended)
        elif not by_hand:
            self._call("--on-finish", self._settings.on_finish, self._ended)

    def _call(self, flag: str, command: str | None, reason: str) -> None:
        """Calls a command of the user's beside the loop."""
        if command is not None:
            self._hooks.append(hooks.begin(flag, command, self.status(), reason, self._settings.store, self._listener))

    def _follow_requests(self, *, fresh: bool = False) -> None:
        """Pauses, goes on, stops or cancels as people ask from outside."""
        known = self._trials.next_number
        requested = self._trials.requested(fresh=fresh)
        if self._trials.next_number > known:  # a person has queued some, which may fit where nothing else does
            self._exhausted = False
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
        self._ending.end_cancelled()

    def _watch_machine(self) -> None:
        """Holds trials back while disk or memory is short, and ends the youngest one for memory."""
        if not self._watch.look():
            return
        short = self._watch.disk or self._watch.memory
        if bool(short) != bool(self._short):
            now = f"no trial is started: {short}" if short else "there is room again: trials start again"
            self._listener.log(now)
            if short:
                self._call("--on-trouble", self._settings.on_trouble, short)
        self._short = short
        if self._watch.memory:
            self._ending.end_youngest(self._watch.memory)

    def _held_back(self) -> bool:
        """Whether trials do not start now, and may start later without that a trial ends before."""
        return self._paused or bool(self._short) or self._backend.num_slots() == 0

    def _nothing_to_start(self) -> bool:
        if self._is_over():
            return True
        return not self._waiting() and (self._exhausted or self._remaining_trials() == 0 or self._is_enough())

    def _is_over(self) -> bool:
        """Whether no trial is started any more, not even one that waits."""
        over = self._stop.is_set() or self._no_more_trials is not None or self._failed is not None
        return over or self._deadline.has_passed()

    def _num_free(self) -> int:
        """Returns how many trials can start now."""
        possible = self._backend.num_slots()
        workers = 1 if self._confirms else self._settings.workers  # each confirmation decides on the next one
        places = workers if possible is None else min(workers, possible)
        return min(places - len(self._trials.running), self._launcher.num_free)

    def _start_what_may(self) -> bool:
        """Starts trials. Returns whether more of them may start, but first it is to be looked for news."""
        while not self._exhausted and not self._nothing_to_start() and self._num_free() > 0:
            self._follow_requests(fresh=True)
            if self._held_back() or self._is_over():
                return False
            if self._resume_next():
                continue
            if self._waiting() and (self._remaining_trials() == 0 or self._is_enough()):
                self._exhausted = True  # what waits does not fit, and nothing new is wanted
            else:
                self._exhausted = not self._start_next()
            is_long_ago = self._trials.running and self._polled < time.monotonic() - NEWS_SECONDS
            if is_long_ago and self._backend.num_slots() is not None:
                return True  # where many slots are free at once, reports would wait for all starts
        return False

    def _resume_next(self) -> bool:
        """Takes up a trial that waits. Returns False when none fits the budget and the time, or none waits."""
        for number in self._waiting():
            trial = self._trials.records[number]
            expected = None if (cost := trial.predicted_cost_seconds) is None else cost.value
            if not self._deadline.allows(trial, expected, self._all_trials()):
                continue
            if (record := self._launcher.resume(trial, self._budget(without=number), self._listener.log)) is not None:
                if record.state.finished:
                    self._tell_of(record)
                else:
                    self._listener.started(record)
                return True
            if self._trials.records[number].state.finished:  # it was cancelled just now
                return True
        return False

    def _is_enough(self) -> bool:
        """Whether `stop_when` holds. That is asked once after each finished trial, and when the sweep is resumed."""
        if self._confirms:
            return False
        finished = self._trials.num_finished
        if self._settings.stop_when is not None and self._enough is None and finished != self._asked_after:
            self._asked_after, began = finished, time.monotonic()
            space = Space.from_dict(self._trials.sweep.spec.space)
            condition, limits = self._settings.stop_when, self._trials.sweep.spec.limits
            if isinstance(condition, Met):
                self._enough = condition.reason([one for one in self._all_trials() if not one.confirms])
            else:
                history = self._trials.history(confirmations=False)
                self._enough = condition.reason(space, history, limits)
            self._designer_seconds += time.monotonic() - began
        return self._enough is not None

    def _all_trials(self) -> list[TrialRecord]:
        return list(self._trials.records.values())

    def _remaining_trials(self) -> int | None:
        """Returns how many trials may still be started; None: any number."""
        limit = self._settings.max_trials
        if limit is None or self._confirms:
            return None
        return max(limit - (self._trials.next_number - self._num_confirmations), 0)

    def _waiting(self) -> list[int]:
        """Returns the numbers of the trials that wait and are of the kind that runs now."""
        return [n for n in self._trials.waiting if self._trials.records[n].confirms == self._confirms]

    def _counted(self) -> dict[int, TrialRecord]:
        """Returns the trials whose cost counts against the limit of the kind that runs now."""
        records = self._trials.records
        if not self._num_confirmations and not self._confirms:
            return records
        return {n: trial for n, trial in records.items() if trial.confirms == self._confirms}

    def _is_spent(self) -> bool:
        """Whether trials have spent together what they may."""
        return self._limit is not None and spent_seconds(self._counted().values()) >= self._limit

    def _is_to_confirm(self) -> bool:
        """Whether contenders are run again, now that the search has ended by itself."""
        has_share = bool(self._confirm.share) and self._settings.max_cost_seconds is not None
        return has_share and has_contender(self._trials.records)

    def _begin_confirming(self) -> None:
        """Begins to run contenders again, and says what that costs."""
        self._confirms, self._exhausted, self._deadline.reason = True, False, None
        self._confirmed_before = dict(self._counted())
        began, history = time.monotonic(), self._trials.history()
        found = self._confirmer.ask(history, math.inf)
        self._limit = self._confirm.limit(self._settings.max_cost_seconds, self._trials.records, found)
        self._confirmer.ask(history, self._budget().next_trial_seconds)
        if (price := self._confirmer.price()) is not None:  # else the last line says why nothing is run
            self._listener.log(price)
        self._designer_seconds += time.monotonic() - began

    def _confirmed_now(self) -> tuple[int, float]:
        """Returns how many confirmations this call has run, those that it took up again included, and their cost."""
        before, now = self._confirmed_before, self._counted()
        waited = [n for n, one in before.items() if not one.state.finished and now[n].state is not TrialState.WAITING]
        return len(now) - len(before) + len(waited), spent_seconds(now.values()) - spent_seconds(before.values())

    def _confirmation_status(self) -> ConfirmationStatus:
        (number, seconds), found = self._confirmed_now(), self._confirmer.question
        before = spent_seconds(self._confirmed_before.values())
        return ConfirmationStatus(
            sure=None if found is None else found.sure,
            settled=found is not None and found.settled,
            runs=number,
            spent_seconds=seconds,
            limit_seconds=None if self._limit is None else max(self._limit - before, 0.0),
            expected_seconds=self._confirmer.expected_seconds,
        )

    def _verdict(self) -> str:
        """Returns what the confirmations have shown so far."""
        self._confirmer.ask(self._trials.history(), self._budget().next_trial_seconds)
        return self._confirmer.verdict(*self._confirmed_now())

    def _why_ended(self) -> str:
        if self._failed is not None:
            self._in_trouble = True
            return f"{self._failed}; run the sweep again to go on"
        if self._stop.is_set():
            stopped = "stopped from outside" if self._stopped_from_outside else "interrupted"
            return f"{stopped}; {self._verdict()}" if self._confirms else stopped
        if self._confirms:
            parts = (self._searched, self._verdict(), self._deadline.reason or "")
            return "; ".join(part for part in parts if part)
        if self._enough is not None:
            return self._enough
        if self._deadline.reason is not None:
            return self._deadline.reason
        if not self._exhausted:
            assert self._settings.max_trials is not None
            return limit_reached(self._settings.max_trials)
        space = Space.from_dict(self._trials.sweep.spec.space)
        return why_nothing(space, self._trials.history(), [], self._budget())

    def _still_queued(self) -> str:
        """Returns what is added to why the sweep has ended where trials that a person has queued did not run."""
        left = [number for number in self._trials.waiting if self._trials.records[number].is_queued]
        if not left:
            return ""
        one = f"trial {left[0]}, queued by hand, has not run, and waits"
        which = one if len(left) == 1 else f"{len(left)} trials queued by hand have not run, and wait"
        return f"; {which} for the next run of the sweep"

    def _without_score(self) -> str:
        """Returns what is added to why the sweep has ended where no trial ever had a score: then something is wrong."""
        last = None if self._stop.is_set() or self._failed is not None else self.status().never_scored
        if last is None:
            return ""
        self._without_any_score = True
        return f"; no trial has had a score, the last one, trial {last.number}, ended with: {shortened(last)}"

    def _start_next(self) -> bool:
        """Suggests, stores and starts one trial. Returns False when nothing fits the budget or should start now."""
        if not self._waiting():  # else that may be why one of these is not taken up
            self._deadline.reason = None
        budget = self._budget()
        if budget.spent:
            return False
        suggest_seed, train_seed = trial_seed(self._trials.sweep.spec.seed, self._trials.next_number)
        began = time.monotonic()
        in_time = self._deadline.shorten(budget, self._all_trials())
        cut = self._cut_initial(in_time)
        suggestion = self._suggest(in_time, suggest_seed) if cut is None else self._launcher.again(cut)
        suggest_seconds = time.monotonic() - began
        self._designer_seconds += suggest_seconds
        if suggestion is None:
            # Where nothing would be tried with more time either, the time is not the reason.
            if in_time != budget and self._suggest(budget, suggest_seed) is not None:
                self._deadline.hold_back()
            return False
        if self._launcher.has_lost_its_files(suggestion):
            lost = f"trial {suggestion.continues} has lost its files while it was chosen to go on"
            self._listener.log(f"{lost}: something else is tried")
            return self._start_next()  # what is left cannot be chosen again
        expected = suggestion.predicted_cost_seconds
        if expected is not None and not self._deadline.allows(None, expected.value, self._all_trials()):
            return False
        trial = self._launcher.start(suggestion, budget, seed=train_seed, suggest_seconds=suggest_seconds)
        if trial is not None:  # else others were queued just now, and come first
            self._num_confirmations += self._confirms
            self._began_again |= cut is not None
            self._listener.started(trial)
        return True

    def _cut_initial(self, budget: Budget) -> TrialRecord | None:
        """Returns the run of the initial config that goes on now, once in a run of the sweep; see `cut_initial`."""
        if self._confirms or self._began_again:
            return None
        return cut_initial(self._trials.sweep.spec, self._all_trials(), self._trials.history, budget.next_trial_seconds)

    def _suggest(self, budget: Budget, seed: int) -> Suggestion | None:
        """Asks the designer. The search begins with the initial config, whatever was tried by hand before."""
        trials = self._trials.records.values()
        if trials and all(one.kind is SuggestionKind.BY_HAND for one in trials) and not self._confirms:
            space = Space.from_dict(self._trials.sweep.spec.space)
            first = self._designer.suggest([], [], budget, seed)
            if first is not None and space.key(first.params) not in [space.key(one.params) for one in trials]:
                return first
        history = self._trials.history(can_continue=self._settings.can_continue)
        designer = self._confirmer if self._confirms else self._designer
        return designer.suggest(history, self._trials.running_params(), budget, seed)

    def _budget(self, *, without: int | None = None) -> Budget:
        """Returns what the next trial may cost, or the one that waits `without` whose own cost this is."""
        return next_budget(
            self._counted(),
            self._launcher.limits,
            max_cost_seconds=self._limit,
            # A contender has kept the cap once. A run of it that chance makes a little longer is not to be cut there.
            max_trial_seconds=None if self._confirms else self._settings.max_trial_seconds,
            remaining_trials=self._remaining_trials(),
            without=without,
            num_free=max(self._num_free(), 0),
        )

    def _on_progress(self, event: TrialProgress) -> None:
        if event.measurements:
            self._preemptions.end_row()
        if (wrong := cost_problem(event)) is not None:
            event = without_impossible_costs(event)
            self._ending.end(event.trial.number, TrialEnd.CRASHED, wrong)
        trial = self._trials.add(event)
        if self._stop.is_set():
            return
        self._ending.end_all_if_budget_is_spent()
        if event.measurements:
            self._ending.end_if_too_slow(trial)
            self._ending.stop_early_if_advised(trial)

    def _on_finished(self, event: Finished) -> None:
        number = event.trial.number
        if (wrong := cost_problem(event)) is not None:
            event = failed_by_cost(event, wrong, self._trials.records[number].cost_seconds)
        if self._confirms and event.outcome.end is TrialEnd.OUT_OF_BUDGET:  # what is spent is not the sweep's budget
            reason = event.outcome.reason.replace(TrialEnd.OUT_OF_BUDGET.text, AT_LIMIT)
            event = dataclasses.replace(event, outcome=dataclasses.replace(event.outcome, reason=reason))
        outcome = event.outcome
        self._preemptions.add(outcome, len(self._trials.running))
        if self._preemptions.too_many:
            self._failed = self._preemptions.explanation()
        self._launcher.forget(number)
        if (error := fatal(event, self._trials.sweep.spec, self._all_trials())) is not None:
            self._no_more_trials = self._no_more_trials or error
            self._mistake = self._mistake or outcome.end is not TrialEnd.DISK
        if outcome.end is TrialEnd.INTERRUPTED and number not in self._trials.cancelled:
            trial = self._trials.release(event)
            if not trial.state.finished:
                self._listener.log(f"trial {number} waits to be taken up again: {outcome.reason}")
                return
        else:
            trial = self._trials.finish(event)
        self._failures.add(trial)
        self._tell_of(trial)
        self._tell_of_an_impossible_score(trial)
        self._tell_of_unknown_limits(trial)
        if self._failures.too_many and self._no_more_trials is None:
            self._failed = self._failures.explanation(self._all_trials())

    def _tell_of_unknown_limits(self, trial: TrialRecord) -> None:
        """Says so, once, where a trial has ended well and no trial has reported what is limited."""
        if self._limits and trial.state is TrialState.COMPLETE:
            if line := unreported(self._limits, (one.metrics for one in self._all_trials())):
                self._listener.log(line)
            self._limits = ()

    def _tell_of_an_impossible_score(self, trial: TrialRecord) -> None:
        """Says once that a score lies outside the range that the user gave. The trial counts with it all the same."""
        spec = self._trials.sweep.spec
        score, possible = shown_score(trial.score, spec.direction), spec.score_range
        if self._told_of_range or score is None or possible is None or possible[0] <= score <= possible[1]:
            return
        self._told_of_range = True
        self._listener.log(
            f"trial {trial.number} scored {score:.3g}, outside the score range {possible[0]:g} to {possible[1]:g}: it"
            " counts, and predictions stay inside; is the range right?"
        )

    def _tell_of(self, trial: TrialRecord) -> None:
        """Tells people, and what they call after each trial, of one that has ended and is stored."""
        status = self.status()
        self._listener.finished(trial, status)
        condition = self._settings.stop_when
        if isinstance(condition, Met) and not self._told_of_metrics and (line := condition.unreported(trial)):
            self._told_of_metrics = True
            self._listener.log(line)
        if self._after_trials is not None:
            self._after_trials.add(trial, status)
