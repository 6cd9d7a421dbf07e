"""A budget or cap that is too small for a single complete trial: what one would cost, and how large it should be."""

from collections.abc import Sequence

from protein.errors import UsageError
from protein.run.command_settings import SECTION
from protein.run.job import CAP_FRACTION, runs_trainer, total_steps, trial_config
from protein.types import SweepRecord, TrialEnd, TrialRecord, TrialState
from protein.units import format_at_least, format_duration

_ROUGH_SECONDS = 1.0  # a start of less is mostly set-up, and its pace may be a tenth of what comes
_LARGER = 10.0  # times the budget: the next one to try where nothing tells what a trial needs
_LEAST_SECONDS = 60.0  # of that


def require_a_complete_trial(
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    max_cost_seconds: float | None,
    max_trial_seconds: float | None,
) -> None:
    """Raises `UsageError` when no further trial fits the budget or the cap, and none could be trained to its end.

    A sweep over a function is not judged: what it returns says that its trials were cut short.
    """
    limits = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)
    cut = [trial for trial in trials if trial.end in limits]
    if max_cost_seconds is None or not cut or any(trial.state is TrialState.COMPLETE for trial in trials):
        return
    # A larger budget raises the cap only where the cap is the budget's share.
    own_cap = None if max_trial_seconds == CAP_FRACTION * max_cost_seconds else max_trial_seconds
    if SECTION in sweep.spec.config:
        _refuse_command(trials, cut, max_cost_seconds, own_cap)
    cut = [trial for trial in cut if trial.steps]
    if not cut or not runs_trainer(sweep.spec.config):  # it is not known how many steps a trial needs
        return

    def needed_seconds(trial: TrialRecord) -> float:
        config = trial_config(sweep.spec.config, trial.params, seed=0, threads=1, max_seconds=None)
        steps = total_steps(config)
        assert steps is not None
        return trial.cost_seconds + max(steps - trial.steps, 0) * _seconds_a_step(trial)

    cheapest = min(cut, key=needed_seconds)
    needed = needed_seconds(cheapest)
    budget = f"--max-cost {format_at_least(needed / CAP_FRACTION)}"
    limit, remedy = f"budget of {format_duration(max_cost_seconds)}", budget
    if cheapest.end is TrialEnd.CAPPED and own_cap is not None:
        limit = f"cap of {format_duration(own_cap)} on one trial"
        remedy = f"--max-trial-cost {format_at_least(needed)}"
        if needed > max_cost_seconds:
            remedy += f" and {budget}"
    stopped = f"trial {cheapest.number} was stopped at {format_at_least(cheapest.cost_seconds)}"
    if cheapest.cost_seconds < _ROUGH_SECONDS:
        told = f"{stopped}, too early to tell its pace; a first guess is {format_at_least(needed)}, so try {remedy}"
    else:
        told = f"{stopped} and needs about {format_at_least(needed)}; use {remedy} or more"
    raise UsageError(f"the {limit} is smaller than one trial: {told}")


def _seconds_a_step(trial: TrialRecord) -> float:
    """Returns the pace of a trial without what its set-up and its first steps took, where its curve tells."""
    known = [point for point in trial.curve if point.steps > 0]
    if known and known[-1].steps > known[0].steps:
        first, last = known[0], known[-1]
        return (last.elapsed_seconds - first.elapsed_seconds) / (last.steps - first.steps)
    return trial.cost_seconds / trial.steps


def _refuse_command(
    trials: Sequence[TrialRecord], cut: Sequence[TrialRecord], max_cost_seconds: float, own_cap: float | None
) -> None:
    """Raises `UsageError` where every trial of a command was cut short, so nothing tells how long one takes."""
    if len(cut) < sum(trial.state.finished for trial in trials):
        return
    count = "its only trial was" if len(cut) == 1 else f"all {len(cut)} trials were"
    longest = max(trial.cost_seconds for trial in cut)
    larger = format_at_least(max(_LARGER * max_cost_seconds, _LEAST_SECONDS))
    limit, remedy = f"budget of {format_duration(max_cost_seconds)}", f"--max-cost {larger}"
    if own_cap is not None and any(trial.end is TrialEnd.CAPPED for trial in cut):
        limit, remedy = f"cap of {format_duration(own_cap)} on one trial", "a larger --max-trial-cost"
    raise UsageError(
        f"the {limit} is smaller than one trial: {count} stopped, after {format_at_least(longest)} at most;"
        f" try {remedy}"
    )
