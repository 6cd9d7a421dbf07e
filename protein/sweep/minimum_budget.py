"""A budget or cap that is too small for a single complete trial: what one would cost, and how large it should be."""

from collections.abc import Sequence

from protein.errors import UsageError
from protein.sweep.job import CAP_FRACTION, runs_trainer, total_steps, trial_config
from protein.types import SweepRecord, TrialEnd, TrialRecord, TrialState
from protein.units import format_at_least, format_duration


def require_a_complete_trial(
    sweep: SweepRecord,
    trials: Sequence[TrialRecord],
    max_cost_seconds: float | None,
    max_trial_seconds: float | None,
) -> None:
    """Raises `UsageError` when no further trial fits the budget or the cap, and none could be trained to its end."""
    limits = (TrialEnd.CAPPED, TrialEnd.OUT_OF_BUDGET)
    cut = [trial for trial in trials if trial.end in limits and trial.steps]
    if max_cost_seconds is None or not cut or any(trial.state is TrialState.COMPLETE for trial in trials):
        return
    if not runs_trainer(sweep.spec.config):  # it is not known how many steps a trial needs
        return

    def needed_seconds(trial: TrialRecord) -> float:
        config = trial_config(sweep.spec.config, trial.params, seed=0, threads=1, max_seconds=None)
        steps = total_steps(config)
        assert steps is not None
        return trial.cost_seconds * steps / trial.steps

    cheapest = min(cut, key=needed_seconds)
    needed = needed_seconds(cheapest)
    budget = f"--max-cost {format_at_least(needed / CAP_FRACTION)}"
    limit, remedy = f"budget of {format_duration(max_cost_seconds)}", budget
    # A larger budget raises the cap only where the cap is the budget's share.
    own_cap = None if max_trial_seconds == CAP_FRACTION * max_cost_seconds else max_trial_seconds
    if cheapest.end is TrialEnd.CAPPED and own_cap is not None:
        limit = f"cap of {format_duration(own_cap)} on one trial"
        remedy = f"--max-trial-cost {format_at_least(needed)}"
        if needed > max_cost_seconds:
            remedy += f" and {budget}"
    raise UsageError(
        f"the {limit} is smaller than one trial: trial {cheapest.number} was stopped at"
        f" {format_at_least(cheapest.cost_seconds)} and needs about {format_at_least(needed)}; use {remedy} or more"
    )
