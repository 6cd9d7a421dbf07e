"""What is left of a sweep's budget, for a new trial or for one that goes on."""

import dataclasses
import math
from collections.abc import Mapping

from protein.engine.budget import RunningCost, budget_left
from protein.sweep.launching import Limits
from protein.sweep.loop_settings import LoopSettings
from protein.types import Budget, TrialRecord, TrialState


def left(
    records: Mapping[int, TrialRecord],
    settings: LoopSettings,
    limits: Mapping[int, Limits],
    remaining_trials: int | None,
    without: int | None = None,
    num_free: int = 1,
) -> Budget:
    """Returns what the next trial may cost.

    Args:
        records: all trials by number.
        settings: the budget and the cap.
        limits: of the running trials, by number.
        remaining_trials: how many trials may still be started.
        without: the number of a trial that goes on. What it has cost already is a part of what it may cost. Other
            trials that wait have no claim on the rest: their turn comes later.
        num_free: how many trials can start now.
    """
    trials = [trial for trial in records.values() if trial.number != without]
    budget = settings.max_cost_seconds
    lost = math.fsum(trial.lost_seconds for trial in records.values())
    now = budget_left(
        None if budget is None else budget - lost,
        [trial.cost_seconds for trial in trials if trial.state.finished],
        [
            RunningCost(max_seconds=trial.cost_seconds, spent_seconds=trial.cost_seconds)
            if without is not None and trial.state is TrialState.WAITING
            else _cost(trial, settings, limits)
            for trial in trials
            if not trial.state.finished
        ],
    )
    return dataclasses.replace(
        now,
        max_trial_seconds=settings.max_trial_seconds,
        remaining_trials=remaining_trials,
        can_wait=True,
        num_free=num_free,
    )


def _cost(trial: TrialRecord, settings: LoopSettings, limits: Mapping[int, Limits]) -> RunningCost:
    predicted, own = trial.predicted_cost_seconds, limits.get(trial.number)
    return RunningCost(
        predicted_seconds=None if predicted is None else predicted.value,
        max_seconds=settings.max_trial_seconds if own is None else own.max_seconds,
        spent_seconds=trial.cost_seconds,
    )
