"""Starts trials on a backend: new ones, and those that wait, each with its limits and its share of the machine."""

import dataclasses
import math
from collections.abc import Callable
from pathlib import Path

from protein.engine.pareto import MIN_COST_SECONDS
from protein.errors import UsageError
from protein.files import refuse_link
from protein.ports import Backend, Finished, Job
from protein.run.machine import Slots
from protein.sweep import provenance, resuming
from protein.sweep.limits import OVERSHOOT, Limits, total_steps, trial_config
from protein.sweep.trials import SweepTrials
from protein.types import (
    CUT_SHORT,
    Budget,
    Outcome,
    Resources,
    Suggestion,
    TrialEnd,
    TrialRecord,
    max_trial_seconds,
    runs_trainer,
)

OVERHEAD_SECONDS = 300.0  # start-up, compiling and evaluation, on top of a trial's cap, before it counts as hung
MAX_CURVE_POINTS = 200  # of a curve that a trial goes on with: they tell its pace
OVERHEAD_FACTOR = 3.0  # the wall clock may show this many times the trainer's own seconds


class Launcher:
    """Starts trials and keeps what belongs to those that run.

    Attributes:
        limits: of the running trials, by number.
    """

    def __init__(
        self,
        trials: SweepTrials,
        backend: Backend,
        slots: Slots,
        *,
        directory: Path,
        max_memory_bytes: int | None,
        speed: float | None,
    ) -> None:
        self._trials, self._backend, self._slots = trials, backend, slots
        self._directory, self._max_memory_bytes, self._speed = directory, max_memory_bytes, speed
        self._resources: dict[int, Resources] = {}
        self.limits: dict[int, Limits] = {}

    @property
    def num_free(self) -> int:
        """How many trials have a place to run in now."""
        return self._slots.num_free

    def has_lost_its_files(self, suggestion: Suggestion) -> bool:
        """Whether a trial that was to go on cannot any more: it would begin anew, at the price of the rest."""
        return suggestion.continues is not None and self._parents_state(suggestion) is None

    def again(self, cut: TrialRecord) -> Suggestion:
        """Returns the suggestion to run a cut trial's config to its end: from what that left, if it left anything."""
        place = resuming.place(self._folder(cut.number), cut, self._trials.sweep.spec.config)
        origin = f"{cut.kind.replace('_', ' ')} again, as trial {cut.number} was cut short and more is allowed now"
        if place.path is None or place.seconds is None:
            return Suggestion(params=cut.params, kind=cut.kind, origin=origin)
        behind = cut.continued_seconds + place.seconds
        return Suggestion(
            params=cut.params, kind=cut.kind, origin=origin, continues=cut.number, continued_seconds=behind
        )

    def start(self, suggestion: Suggestion, budget: Budget, *, seed: int, suggest_seconds: float) -> TrialRecord | None:
        """Stores and starts a new trial. Raises `UsageError` where none can be started here.

        Returns None where a person has queued other trials just now: they come first.
        """
        parent = None if suggestion.continues is None else self._trials.records[suggestion.continues]
        if parent is not None:  # a longer run of the same seed
            seed = parent.seed
        budget = _within_cap(budget, suggestion.continued_seconds)
        resources = self._slots.take()
        config = self._config(suggestion, budget, seed, resources)
        trial = self._trials.start(
            suggestion, seed=seed, suggest_seconds=suggest_seconds, provenance=provenance.collect(config)
        )
        if trial is None:
            self._slots.give_back(resources)
            return None
        self._launch(trial, budget, resources, None)
        return trial

    def resume(self, trial: TrialRecord, budget: Budget, log: Callable[[str], None]) -> TrialRecord | None:
        """Takes up a trial that waits. `budget` is what it may cost in all.

        Returns:
            The trial, which runs; or which has ended, where it never got further. None where it does not fit the
            budget, or another process was faster.
        """
        if trial.is_queued:
            return self._start_queued(trial, budget)
        directory = self._folder(trial.number)
        place = resuming.place(directory, trial, self._trials.sweep.spec.config)
        budget = _within_cap(_without_lost(budget, trial, place), trial.continued_seconds)
        if budget.next_trial_seconds <= (place.seconds or 0.0):
            if not runs_trainer(self._trials.sweep.spec.config):
                return None
            at_limit = to_evaluate(budget, place, others_run=bool(self._trials.running))
            if at_limit is None:
                return None
            budget = at_limit
        gone = place.path is None and trial.continues is not None and not self._parents_state(trial)
        record = self._trials.resume(trial.number, place)
        if record is None:
            return None
        attempts = resuming.attempt(directory, place.steps)
        if gone:
            return self._give_up(record, f"trial {trial.continues}, which it continues, has lost its files")
        if attempts > resuming.MAX_ATTEMPTS:
            why = f"{resuming.MAX_ATTEMPTS} attempts to get beyond step {place.steps} were cut short"
            return self._give_up(record, f"{why}, the last one with: {trial.reason}")
        where = f"step {place.steps:,}" if place.path is not None else "its beginning: it left nothing to go on from"
        if trial.continues is not None and self._parents_state(trial) is None:
            where += f"; trial {trial.continues}, which it continues, has lost its files, which it does not need now"
        log(f"trial {trial.number} goes on from {where}")
        self._launch(record, budget, self._slots.take(), place)
        return record

    def _start_queued(self, trial: TrialRecord, budget: Budget) -> TrialRecord | None:
        """Starts a trial that a person has queued, as `resume` does."""
        if budget.next_trial_seconds <= 0.0:
            return None
        resources = self._slots.take()
        config = self._config(trial, budget, trial.seed, resources)
        begins = resuming.Place(path=None, steps=0, seconds=0.0)
        record = self._trials.resume(trial.number, begins, provenance=provenance.collect(config))
        if record is None:
            self._slots.give_back(resources)
            return None
        self._launch(record, budget, resources, None)
        return record

    def forget(self, number: int) -> None:
        """Frees what belonged to a trial that runs no more."""
        self._slots.give_back(self._resources.pop(number))
        del self.limits[number]

    def _give_up(self, trial: TrialRecord, reason: str) -> TrialRecord:
        """Ends a trial that was just taken up, as interrupted."""
        outcome = Outcome(
            end=TrialEnd.INTERRUPTED,
            reason=f"{TrialEnd.INTERRUPTED.text}: {reason}",
            cost_seconds=trial.cost_seconds,
            steps=trial.steps,
        )
        return self._trials.finish(Finished(trial=self._trials.running[trial.number], outcome=outcome))

    def _launch(self, trial: TrialRecord, budget: Budget, resources: Resources, place: resuming.Place | None) -> None:
        """Starts a trial's process; `place` is where one that waited goes on."""
        self._resources[trial.number] = resources
        config = self._config(trial, budget, trial.seed, resources)
        limit, cap = _limit(budget), max_trial_seconds(config)  # the user's own config may hold a lower one
        by_budget = limit != budget.max_trial_seconds and cap == limit
        at_cap = TrialEnd.OUT_OF_BUDGET if by_budget else TrialEnd.CAPPED
        self.limits[trial.number] = Limits(max_trial_seconds=cap, at_cap=at_cap, total_steps=total_steps(config))
        spent, steps_behind = (0.0, 0) if place is None else (trial.cost_seconds, place.steps)
        continues = self._parents_state(trial)
        if continues is not None and trial.continues is not None:
            steps_behind = max(steps_behind, self._trials.records[trial.continues].steps)
        directory = self._folder(trial.number)
        job = Job(
            trial=self._trials.running[trial.number],
            config=config,
            directory=directory,
            max_seconds=None if limit is None else OVERHEAD_SECONDS + OVERHEAD_FACTOR * max(limit - spent, 0.0),
            max_memory_bytes=self._max_memory_bytes,
            continues=continues,
            at_limit=at_cap,
            resumes=None if place is None else place.path,
            spent_seconds=spent,
            steps_behind=steps_behind,
            curve_behind=self._curve_behind(trial, goes_on=place is not None),
            continued_seconds=trial.continued_seconds,
            score_behind=None if place is None else _last_score(trial),
            others_reported=any(one.score is not None for one in self._trials.records.values()),
            resources=resources,
            speed=self._speed,
        )
        try:
            refuse_link(directory)
            if place is None:
                resuming.clear(directory)
            self._backend.start(job)
        except OSError as error:  # no trial will start here: the next start of the sweep takes this one up
            raise UsageError(
                f"trial {trial.number} cannot be started in {job.directory}: {error.strerror or error};"
                " fix that, then run the same command again to resume"
            ) from error

    def _config(self, trial: Suggestion, budget: Budget, seed: int, resources: Resources) -> dict[str, object]:
        return trial_config(
            self._trials.sweep.spec.config,
            trial.params,
            seed=seed,
            threads=self._slots.threads(resources),
            max_trial_seconds=_limit(budget),
        )

    def _parents_state(self, trial: Suggestion) -> Path | None:
        """Returns what a trial goes on from that continues another one, if that is still there."""
        if trial.continues is None:
            return None
        parent = self._trials.records[trial.continues]
        if parent.end in CUT_SHORT:
            return resuming.place(self._folder(parent.number), parent, self._trials.sweep.spec.config).path
        return resuming.continuable_state(parent)

    def _curve_behind(self, trial: TrialRecord, *, goes_on: bool) -> tuple[tuple[int, float], ...]:
        """Returns steps and seconds of the run that lies behind a trial, at some points; `goes_on`: its own, too."""
        parent = None if trial.continues is None else self._trials.records[trial.continues]
        parts = [one for one in (parent, trial if goes_on else None) if one is not None]
        points = [(point.steps, one.continued_seconds + point.elapsed_seconds) for one in parts for point in one.curve]
        return tuple(points[:: -(-len(points) // MAX_CURVE_POINTS)] + points[-1:]) if points else ()

    def _folder(self, number: int) -> Path:
        return self._directory / f"{number:04d}"


def _without_lost(budget: Budget, trial: TrialRecord, place: resuming.Place) -> Budget:
    """Returns a budget that has paid for what a trial has done and has to do again."""
    lost = 0.0 if place.seconds is None else max(trial.cost_seconds - place.seconds, 0.0)
    if not lost or budget.remaining_seconds is None:
        return budget
    return dataclasses.replace(budget, remaining_seconds=budget.remaining_seconds - lost)


def to_evaluate(budget: Budget, place: resuming.Place, *, others_run: bool) -> Budget | None:
    """Returns the budget of a trial that goes on from a checkpoint at its limit.

    Only its evaluation is missing, which costs nothing. None where the budget has not paid for what the trial has done:
    it was lowered since. None, too, where the trial is below its cap while others run: they may leave it more to train.
    """
    seconds, left, cap = place.seconds, budget.remaining_seconds, budget.max_trial_seconds
    if place.path is None or seconds is None or (left is not None and left < (1.0 - OVERSHOOT) * seconds):
        return None
    is_capped = cap is not None and seconds >= cap
    if others_run and not is_capped:
        return None
    return dataclasses.replace(budget, remaining_seconds=None if is_capped else seconds)


def _last_score(trial: TrialRecord) -> float | None:
    return next((point.score for point in reversed(trial.curve) if point.score is not None), None)


def _within_cap(budget: Budget, continued_seconds: float) -> Budget:
    """Returns a budget in which the beginning of a run that a trial continues counts towards the cap."""
    if not continued_seconds or budget.max_trial_seconds is None:
        return budget
    rest = max(budget.max_trial_seconds - continued_seconds, MIN_COST_SECONDS)
    return dataclasses.replace(budget, max_trial_seconds=rest)


def _limit(budget: Budget) -> float | None:
    return None if budget.next_trial_seconds == math.inf else budget.next_trial_seconds
