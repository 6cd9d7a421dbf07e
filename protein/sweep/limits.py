"""The limits of a sweep's costs: what the next trial may cost, what ends one that runs, and what cannot be true.

- `next_budget`: what is left of the budget, for a new trial or for one that goes on.
- `require_a_complete_trial`: a budget or cap that is too small for a single complete trial is an error. It says what
  one would cost.
- `trial_config`: what one trial is run with, its limits included.
- `cost_problem`: 1e300 seconds would spend any budget, and no model could learn beside it.
"""

import copy
import dataclasses
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protein.engine.budget import RunningCost, budget_left
from protein.errors import UsageError
from protein.ports import Finished, TrialProgress
from protein.run.command import SECTION
from protein.trainer.kinds import kind_of
from protein.types import (
    CUT_SHORT,
    MAX_COST_SECONDS,
    Budget,
    Params,
    SweepRecord,
    TrialEnd,
    TrialRecord,
    TrialState,
    runs_trainer,
)
from protein.units import format_at_least, format_duration

OVERSHOOT = 0.1  # of a limit; a trial ends with the step in which it reaches it
CHECKPOINT_SECONDS = 10.0  # of training between a trial's checkpoints: so much is lost when the machine dies
CAP_FRACTION = 0.25  # without a cap of its own, one trial may cost this much of the sweep's budget
_ROUGH_SECONDS = 1.0  # a start of less is mostly set-up, and its pace may be a tenth of what comes
_LARGER = 10.0  # times the budget: the next one to try where nothing tells what a trial needs
_LEAST_SECONDS = 60.0  # of that


@dataclasses.dataclass(slots=True, kw_only=True)
class Limits:
    """What ends one running trial."""

    max_trial_seconds: float | None  # its cap: the trial ends itself there ...
    at_cap: TrialEnd  # ... and this is its end
    total_steps: int | None  # the trial ends itself there, too
    steps_by_others: float | None = None  # the same, judged by other trials; None: not looked at, 0: they do not tell
    began: float = dataclasses.field(default_factory=time.monotonic)
    told_to_end: bool = False

    def ends_itself(self, trial: TrialRecord) -> bool:
        """Whether the trial has spent all that it may: it is being evaluated, and costs nothing more."""
        is_capped = self.max_trial_seconds is not None and trial.cost_seconds >= self.max_trial_seconds
        return is_capped or (self.total_steps is not None and trial.steps >= self.total_steps)


def next_budget(
    records: Mapping[int, TrialRecord],
    limits: Mapping[int, Limits],
    *,
    max_cost_seconds: float | None,
    max_trial_seconds: float | None,
    remaining_trials: int | None,
    without: int | None = None,
    num_free: int = 1,
) -> Budget:
    """Returns what the next trial may cost.

    Args:
        records: all trials by number.
        limits: of the running trials, by number.
        max_cost_seconds: the whole budget.
        max_trial_seconds: the cap on one trial.
        remaining_trials: how many trials may still be started.
        without: the number of a trial that goes on. What it has cost already is a part of what it may cost. Other
            trials that wait have no claim on the rest: their turn comes later.
        num_free: how many trials can start now.
    """
    finished, running = [], []
    for trial in records.values():
        if trial.number == without:
            continue
        if trial.state.finished:
            finished.append(trial.cost_seconds)
        elif without is not None and trial.state is TrialState.WAITING:
            running.append(RunningCost(max_trial_seconds=trial.cost_seconds, spent_seconds=trial.cost_seconds))
        else:
            predicted, own = trial.predicted_cost_seconds, limits.get(trial.number)
            cost = RunningCost(
                predicted_seconds=None if predicted is None else predicted.value,
                max_trial_seconds=max_trial_seconds if own is None else own.max_trial_seconds,
                spent_seconds=trial.cost_seconds,
            )
            running.append(cost)
    if max_cost_seconds is not None:
        max_cost_seconds -= math.fsum(trial.lost_seconds for trial in records.values())
    return dataclasses.replace(
        budget_left(max_cost_seconds, finished, running),
        max_trial_seconds=max_trial_seconds,
        remaining_trials=remaining_trials,
        can_wait=True,
        num_free=num_free,
    )


def require_a_complete_trial(
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    max_cost_seconds: float | None,
    max_trial_seconds: float | None,
) -> None:
    """Raises `UsageError` when no further trial fits the budget or the cap, and none could be trained to its end.

    A sweep over a function is not judged: what it returns says that its trials were cut short.
    """
    cut = [trial for trial in trials if trial.end in CUT_SHORT]
    if max_cost_seconds is None or not cut or any(trial.state is TrialState.COMPLETE for trial in trials):
        return
    # A larger budget raises the cap only where the cap is the budget's share.
    given_cap = None if max_trial_seconds == CAP_FRACTION * max_cost_seconds else max_trial_seconds
    if SECTION in sweep.spec.config:
        _refuse_command(trials, cut, max_cost_seconds, given_cap)
    cut = [trial for trial in cut if trial.steps]
    if not cut or not runs_trainer(sweep.spec.config):  # it is not known how many steps a trial needs
        return

    def needed_seconds(trial: TrialRecord) -> float:
        config = trial_config(sweep.spec.config, trial.params, seed=0, threads=1, max_trial_seconds=None)
        steps = total_steps(config)
        assert steps is not None
        return trial.cost_seconds + max(steps - trial.steps, 0) * _seconds_a_step(trial)

    cheapest = min(cut, key=needed_seconds)
    needed = needed_seconds(cheapest)
    budget = f"--max-cost {format_at_least(needed / CAP_FRACTION)}"
    limit, remedy = f"budget of {format_duration(max_cost_seconds)}", budget
    if cheapest.end is TrialEnd.CAPPED and given_cap is not None:
        limit = f"cap of {format_duration(given_cap)} on one trial"
        remedy = f"--max-trial-cost {format_at_least(needed)}"
        if needed > max_cost_seconds:
            remedy += f" and {budget}"
    stopped = f"trial {cheapest.number} was stopped at {format_at_least(cheapest.cost_seconds)}"
    if cheapest.cost_seconds < _ROUGH_SECONDS:
        told = f"{stopped}, too early to tell its pace; a first guess is {format_at_least(needed)}, so try {remedy}"
    else:
        told = f"{stopped} and needs about {format_at_least(needed)}; use {remedy} or more"
    raise UsageError(f"the {limit} is smaller than one trial: {told}")


def trial_seed(sweep_seed: int, number: int) -> tuple[int, int]:
    """Returns the seeds of the suggestion and of the training for one trial of a sweep, both in [0, 2^31)."""
    suggest, train = np.random.SeedSequence([sweep_seed, number]).generate_state(2)
    return int(suggest) >> 1, int(train) >> 1


def trial_config(
    config: Mapping[str, Any], params: Params, *, seed: int, threads: int, max_trial_seconds: float | None
) -> dict[str, Any]:
    """Returns a sweep's run config with one trial's dotted params, seed and limits put in.

    A sweep over a function or a command has none (see `protein.api.function_sweep`, `protein.api.command_sweep`). Its
    trials get these three as they are, and how the command is run and read.
    """
    if not runs_trainer(config):
        own = {"params": dict(params), "seed": seed, "max_seconds": max_trial_seconds}
        return own | {name: config[name] for name in ("command",) if name in config}
    result: dict[str, Any] = copy.deepcopy(dict(config))
    for name, value in params.items():
        *sections, key = name.split(".")
        section = result
        for part in sections:
            section = section[part]
        section[key] = value
    train = result["train"]
    train["seed"] = seed
    train["threads"] = train["threads"] or threads
    if train.get("checkpoint_seconds"):  # 0: the user wants none
        train["checkpoint_seconds"] = min(train["checkpoint_seconds"], CHECKPOINT_SECONDS)
    if "schedule_end" in train:  # a trial is a function of its params and its seed, and of no machine's speed
        train["schedule_end"] = "tokens"
    if max_trial_seconds is not None:
        train["max_seconds"] = min(train["max_seconds"] or max_trial_seconds, max_trial_seconds)
    return result


def total_steps(config: Mapping[str, Any]) -> int | None:
    """Returns the steps after which a trial of this config is trained to its end; None: that is not known."""
    section, key = kind_of(config).total_steps.split(".")
    steps: int | None = config.get(section, {}).get(key)
    return steps


def cost_problem(event: TrialProgress | Finished) -> str | None:
    """Returns in one line what is wrong with the costs of an event, if anything is."""
    if isinstance(event, Finished):
        costs = [event.outcome.cost_seconds]
    else:
        costs = [point.elapsed_seconds for point in event.measurements]
    worst = max(costs, default=0.0)
    if worst <= MAX_COST_SECONDS:
        return None
    return f"reported a cost of {worst:.3g} s, beyond the limit of {MAX_COST_SECONDS:g} s (31 years); report seconds"


def without_impossible_costs(event: TrialProgress) -> TrialProgress:
    """Returns an event without the points of the curve whose cost cannot be true."""
    good = tuple(point for point in event.measurements if point.elapsed_seconds <= MAX_COST_SECONDS)
    return dataclasses.replace(event, measurements=good)


def failed_by_cost(event: Finished, reason: str, cost_seconds: float) -> Finished:
    """Returns the end of a trial that has reported such a cost; `cost_seconds` is what is known of the true one."""
    outcome = dataclasses.replace(
        event.outcome, end=TrialEnd.CRASHED, score=None, reason=reason, cost_seconds=cost_seconds
    )
    return dataclasses.replace(event, outcome=outcome)


def _seconds_a_step(trial: TrialRecord) -> float:
    """Returns the pace of a trial without what its set-up and its first steps took, where its curve tells."""
    known = [point for point in trial.curve if point.steps > 0]
    if known and known[-1].steps > known[0].steps:
        first, last = known[0], known[-1]
        return (last.elapsed_seconds - first.elapsed_seconds) / (last.steps - first.steps)
    return trial.cost_seconds / trial.steps


def _refuse_command(
    trials: Sequence[TrialRecord], cut: Sequence[TrialRecord], max_cost_seconds: float, given_cap: float | None
) -> None:
    """Raises `UsageError` where every trial of a command was cut short, so nothing tells how long one takes."""
    if len(cut) < sum(trial.state.finished for trial in trials):
        return
    count = "its only trial was" if len(cut) == 1 else f"all {len(cut)} trials were"
    longest = max(trial.cost_seconds for trial in cut)
    larger = format_at_least(max(_LARGER * max_cost_seconds, _LEAST_SECONDS))
    limit, remedy = f"budget of {format_duration(max_cost_seconds)}", f"--max-cost {larger}"
    if given_cap is not None and any(trial.end is TrialEnd.CAPPED for trial in cut):
        limit, remedy = f"cap of {format_duration(given_cap)} on one trial", "a larger --max-trial-cost"
    raise UsageError(
        f"the {limit} is smaller than one trial: {count} stopped, after {format_at_least(longest)} at most;"
        f" try {remedy}"
    )
