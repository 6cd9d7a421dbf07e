"""Ends running trials before their own end, each once: for the budget, early stopping, memory, or as people ask.

A trial that is too slow for its cap is ended long before it. Notation of its pace:

    steps   what a trial's curve counts
    total   steps of a trial that is trained to its end
    pace    seconds a step since the first point of the curve; what comes before it is compiling, or filling caches

The same pace tells whether the initial config, which a limit of cost has cut short, would fit a larger one.

Our own trainer's configs say how many steps a trial makes. Of any other program it is known once some trials are
complete and agree on it (`protein.engine.history`).
"""

import math
import time
from collections.abc import Callable, Sequence

from protein.engine.history import amount_asked, steps_per_unit
from protein.ports import Backend, Designer, Listener
from protein.space import Space
from protein.sweep.launching import Launcher
from protein.sweep.limits import OVERSHOOT, total_steps, trial_config, trial_seed
from protein.sweep.trials import SweepTrials
from protein.types import (
    CANCELLED,
    CUT_SHORT,
    PREEMPTED,
    Measurement,
    Observation,
    Params,
    SuggestionKind,
    SweepSpec,
    TrialEnd,
    TrialRecord,
    TrialState,
)

_TOO_SLOW = 1.25  # times its limit: a pace that was measured at the beginning of a run may be wrong by that
_LEAST_LIMIT = 1.0  # seconds; below it there is little to save
_LOOKED_AT = 0.05  # of its limit: before that, a trial's pace is not worth looking at
_MIN_COMPLETE = 3  # trials that tell how long another one is; one alone could have counted other steps


class Ending:
    """Ends the running trials of one sweep.

    Attributes:
        designer_seconds: the wall clock that the designer has taken to decide on early stopping.
    """

    def __init__(
        self,
        trials: SweepTrials,
        launcher: Launcher,
        designer: Designer,
        backend: Backend,
        listener: Listener,
        *,
        is_spent: Callable[[], bool],
    ) -> None:
        """`is_spent`: whether trials have spent together what they may."""
        self.designer_seconds = 0.0
        self._trials, self._launcher = trials, launcher
        self._designer, self._backend, self._listener = designer, backend, listener
        self._is_spent = is_spent
        self._space = Space.from_dict(trials.sweep.spec.space)

    def end(self, number: int, end: TrialEnd, reason: str) -> bool:
        """Tells a running trial to end. Returns False where it was told already."""
        if self._launcher.limits[number].told_to_end:
            return False
        self._launcher.limits[number].told_to_end = True
        self._backend.stop(self._trials.running[number], end, reason)
        return True

    def end_cancelled(self) -> None:
        """Ends the trials whose end a person has asked for."""
        for number in sorted(self._trials.cancelled.intersection(self._trials.running)):
            if self.end(number, TrialEnd.INTERRUPTED, CANCELLED):
                self._listener.log(f"trial {number} is cancelled")

    def end_youngest(self, short: str) -> None:
        """Ends the youngest trial because of what is `short`, unless one that was told to end still runs."""
        running = self._trials.running
        if running and not any(self._launcher.limits[one].told_to_end for one in running):
            youngest = max(running, key=lambda number: (self._launcher.limits[number].began, number))
            self._listener.log(f"trial {youngest} is ended, so that the system need not kill one")
            self.end(youngest, TrialEnd.INTERRUPTED, f"{PREEMPTED}{short}")

    def end_all_if_budget_is_spent(self) -> None:
        """Ends the running trials that have spent the budget together, while each alone may spend more."""
        if not self._is_spent():
            return
        for number in self._trials.running:
            if not self._launcher.limits[number].ends_itself(self._trials.records[number]):
                self.end(number, TrialEnd.OUT_OF_BUDGET, TrialEnd.OUT_OF_BUDGET.text)

    def end_if_too_slow(self, trial: TrialRecord) -> None:
        """Ends a trial that has reported, where its pace shows that it would reach its cap long before its last step.

        At the cap it would be stopped anyway, and its config is not recommended. So all that it costs until then is
        lost. That may be a quarter of the budget.
        """
        limits = self._launcher.limits[trial.number]
        cap = limits.max_trial_seconds
        if limits.told_to_end or cap is None or cap < _LEAST_LIMIT or limits.ends_itself(trial):
            return
        if trial.cost_seconds < _LOOKED_AT * cap:
            return
        if limits.total_steps is None and limits.steps_by_others is None:
            by_others = steps_by_others(self._space, self._trials.history(), trial.params)
            limits.steps_by_others = by_others or 0.0
        expected = expected_seconds(trial.curve, limits.total_steps or limits.steps_by_others or 0.0)
        if expected > _TOO_SLOW * cap:
            at = "before its cost cap" if limits.at_cap is TrialEnd.CAPPED else "before the budget was spent"
            reason = f"stopped {at}: at its pace it would take {expected:.0f} s, and its limit is {cap:.0f} s"
            self.end(trial.number, limits.at_cap, reason)

    def stop_early_if_advised(self, trial: TrialRecord) -> None:
        """Asks the designer about a trial that has reported, unless that trial is being ended already.

        One that continues another is not asked about: the rule compares runs from their first step on. Nor is a
        confirmation: a run that was cut short confirms nothing.
        """
        if self._launcher.limits[trial.number].told_to_end or trial.continues is not None or trial.confirms:
            return
        began = time.monotonic()
        reason = self._designer.should_stop(
            self._trials.history(),
            trial.params,
            trial.curve,
            trial_seed(self._trials.sweep.spec.seed, trial.number)[0],
        )
        self.designer_seconds += time.monotonic() - began
        if reason is not None:
            self.end(trial.number, TrialEnd.STOPPED_EARLY, f"{TrialEnd.STOPPED_EARLY.text}: {reason}")


def cut_initial(
    spec: SweepSpec,
    trials: Sequence[TrialRecord],
    history: Callable[[], Sequence[Observation]],
    limit_seconds: float,
) -> TrialRecord | None:
    """Returns the longest run of the initial config, where it is to go on: it is what all else is compared with.

    That is where limits of cost have cut each run of it, and a run may cost clearly more now: as much as it is expected
    to need, where its pace tells that. None: it is not to go on.

    Args:
        spec: of the sweep.
        trials: all of it.
        history: returns what is known of the finished ones.
        limit_seconds: what one run may cost now, from its first step on.
    """
    first = next((one for one in trials if one.kind is SuggestionKind.INITIAL_CONFIG), None)
    if first is None or first.end is TrialEnd.COMPLETE:
        return None
    same = [one for one in trials if one.params == first.params]
    told = [one for one in same if one.end is not None and one.end.teaches]
    others_wait = any(one.end is None or one.excluded for one in same)
    if others_wait or not told or any(one.end not in CUT_SHORT for one in told):
        return None
    longest = max(told, key=lambda one: (one.run_seconds, one.number))
    if limit_seconds <= (1.0 + OVERSHOOT) * longest.run_seconds:
        return None
    config = trial_config(spec.config, longest.params, seed=0, threads=1, max_trial_seconds=None)
    steps = total_steps(config) or steps_by_others(Space.from_dict(spec.space), history(), longest.params)
    needed = longest.continued_seconds + expected_seconds(longest.curve, steps or 0.0)
    return longest if needed <= limit_seconds else None


def expected_seconds(curve: Sequence[Measurement], total_steps: float) -> float:
    """Returns what a run costs in all at the pace of its curve; 0 while the curve does not tell."""
    if len(curve) < 2 or not 0 < curve[0].steps < curve[-1].steps <= total_steps:
        return 0.0
    pace = (curve[-1].elapsed_seconds - curve[0].elapsed_seconds) / (curve[-1].steps - curve[0].steps)
    expected = curve[-1].elapsed_seconds + pace * (total_steps - curve[-1].steps)
    return expected if math.isfinite(expected) else 0.0


def steps_by_others(space: Space, history: Sequence[Observation], params: Params) -> float | None:
    """Returns the steps that a trial with these params makes, judged by complete trials; None where they do not tell.

    Args:
        space: its cost parameter says how long a trial is meant to be; without one, all have the same length.
        history: finished trials.
        params: those of the trial.
    """
    complete = [o for o in history if o.state is TrialState.COMPLETE and o.curve and not o.excluded]
    if len(complete) < _MIN_COMPLETE:
        return None
    unit, asked = steps_per_unit(space, complete), amount_asked(space, params)
    return None if unit is None or asked is None else unit * asked
