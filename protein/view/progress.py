"""How far a sweep is: what it has spent of its budget, what is left, and when budget or trials will be used up."""

import dataclasses
from datetime import datetime, timedelta

from protein.ports import SweepStatus
from protein.types import TrialState
from protein.view import text

_MAX_CLOCK_SECONDS = 86_400e4  # a time of day much later says nothing, and far later there is none
MIN_SPENT_SECONDS = 1.0  # a rate over less is noise


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class BudgetProgress:
    """Costs are seconds of training; the ETA is wall clock."""

    spent_seconds: float
    budget_seconds: float | None
    eta_seconds: float | None  # None: no limit, or too early for an estimate

    @property
    def left_seconds(self) -> float | None:
        return None if self.budget_seconds is None else max(self.budget_seconds - self.spent_seconds, 0.0)

    def line(self, *, clock: bool = False) -> str:
        """Returns the progress as a phrase; `clock` adds the time of day at which the sweep will be done."""
        if self.budget_seconds is None or self.left_seconds is None:
            parts = [f"{text.seconds(self.spent_seconds)} spent", "no budget set"]
        else:
            parts = [
                f"{text.seconds(self.spent_seconds)} of {text.seconds(self.budget_seconds)} spent",
                f"{text.seconds(self.left_seconds)} left",
            ]
        if self.eta_seconds is not None and self.eta_seconds > 0:
            soon = clock and self.eta_seconds < _MAX_CLOCK_SECONDS
            when = f" ({datetime.now() + timedelta(seconds=self.eta_seconds):%H:%M})" if soon else ""
            parts.append(f"done in about {text.seconds(self.eta_seconds)}{when}")
        return ", ".join(parts)


def spent_at_start(status: SweepStatus) -> float:
    """Returns what had been spent before this process began, from the first status that it tells.

    That is what all trials have cost that do not run, waiting ones and what was lost included.
    """
    before = (trial for trial in status.trials if trial.state is not TrialState.RUNNING)
    return sum(trial.cost_seconds + trial.lost_seconds for trial in before)


def progress(status: SweepStatus, spent_before: float) -> BudgetProgress:
    """Returns the progress of a sweep.

    Args:
        status: the sweep now.
        spent_before: what had been spent when this process began; the ETA uses the rate since then.
    """
    spent, budget = status.spent_seconds, status.sweep.max_cost_seconds
    eta = None
    gained = spent - spent_before
    lefts = [] if budget is None else [budget - spent]
    costs = [trial.cost_seconds for trial in status.trials if trial.state.finished]
    if status.max_trials is not None and costs:
        lefts.append(status.max_trials * sum(costs) / len(costs) - spent)
    if lefts and gained >= MIN_SPENT_SECONDS and status.elapsed_seconds > 0:
        eta = max(min(lefts), 0.0) * status.elapsed_seconds / gained
    return BudgetProgress(spent_seconds=spent, budget_seconds=budget, eta_seconds=eta)
