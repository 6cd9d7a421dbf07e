"""The budget: what running trials are expected to cost, which trials fit what is left, and why none does.

**What is left.** The remaining budget is the whole one, less what finished trials cost, less what running trials are
expected to cost (`budget_left`). A running trial is expected to cost

1. what the engine predicted for it, but at most its cap;
2. without a prediction, its cap: the trial is ended there, so the budget cannot be overspent. Only the engine's
   initial design lacks a prediction, and what starts before any cost is known;
3. without a cap either, the mean cost of the finished trials.

It is never expected to cost less than it has cost so far.

**What fits.** A trial may start when its predicted cost is within the remaining budget and within the cap on one trial.
"Predicted" means the upper end of what is likely: the 80th percentile, but at most 1.5 times the median while little is
known. Before any cost is known, no cost can be predicted. Then every trial may start as long as some budget is left. A
trial that continues another one pays only the rest of its run, but its whole run has to be within the cap. Where the
sweep is to end at a time, what is left until then is a limit, too, for the rest alone (`Budget.until_seconds`).

**What waits.** With many workers, the whole budget could be in trials that run, all chosen before any of them has shown
anything. So where the caller can wait (`Budget.can_wait`), trials that run may hold only a share of the whole budget,
spent and unspent (`EngineSettings.running_share`). Whatever the number of workers, a suggestion then knows what came of
all but this share. Four trials may always run (`always_running`): they find about as much as one. A trial that would
hold more is not started, and no cheaper one in its place: it is suggested again, or a better one, when others have
ended.

**The first trials of many workers.** A trial of the initial design is not predicted, so that its cap is set aside. With
a cap of a quarter of the budget, four of them can run. With more workers than `always_running`, they are predicted as
soon as the cost of one trial is known, and wait by the rule above.
"""

import dataclasses
import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from protein.engine.candidates import all_points
from protein.engine.continuation import rest_seconds
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array
from protein.engine.history import History
from protein.engine.joint_fit import SourceTrials
from protein.space import Space
from protein.spelling import counted
from protein.types import Budget, Estimate, Observation, Params

BUDGET_SPENT = "the budget is spent"
SPACE_EXHAUSTED = "every config of the space was tried"
_UPPER_Z = 0.8416  # the 80th percentile of a standard normal
_OPEN_BUDGET = 4.0  # without a budget, the whole is taken to be this many times what was spent so far
_MAX_LOG_MARGIN = math.log(1.5)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class RunningCost:
    """What is known about the cost of one running trial, in seconds."""

    predicted_seconds: float | None = None  # the engine's prediction, if there was one
    max_trial_seconds: float | None = None  # its cap, if it has one
    spent_seconds: float = 0.0  # so far

    def expected_seconds(self, mean_seconds: float) -> float:
        """Returns what the trial is expected to cost in all; `mean_seconds` is the mean cost of finished trials."""
        expected = self.predicted_seconds
        if expected is None:
            expected = mean_seconds if self.max_trial_seconds is None else self.max_trial_seconds
        elif self.max_trial_seconds is not None:
            expected = min(expected, self.max_trial_seconds)
        return max(expected, self.spent_seconds)


def budget_left(
    budget_seconds: float | None, finished_seconds: Sequence[float], running: Iterable[RunningCost]
) -> Budget:
    """Returns what is left of a budget, by the rule at the head of this file; below 0 when it is overspent.

    None without a budget. The costs of finished trials include failures.
    """
    spent = sum(finished_seconds)
    mean = spent / max(len(finished_seconds), 1)
    held = sum(trial.expected_seconds(mean) for trial in running)
    left = None if budget_seconds is None else budget_seconds - spent - held
    return Budget(remaining_seconds=left, running_seconds=held)


@dataclasses.dataclass(frozen=True, slots=True)
class AffordableCost:
    """What the next trial may cost.

    Attributes:
        budget: what is left, and the cap on one trial.
        model: predicts what a trial costs; None while no cost is known.
        total_seconds: the whole sweep's budget: spent, held by running trials, and left.
        slot_seconds: what is left of the budget for each trial that may still be started; 0 where their number is not
            limited.
        slowdown: how many seconds of the budget a trial takes for one second that the model predicts: a busy machine.
        beside_seconds: what it may cost beside those that run; a better one has to wait until some of them have ended.
        crowded: whether the cost is known of some trial, and there are more workers than may always run.
    """

    budget: Budget
    model: CostModel | None
    total_seconds: float
    slot_seconds: float = 0.0
    beside_seconds: float = math.inf
    slowdown: float = 1.0
    crowded: bool = False

    @classmethod
    def of(
        cls,
        space: Space,
        data: History,
        budget: Budget,
        sources: Sequence[SourceTrials] = (),
        *,
        always_running: int = 0,
        running_share: float = 1.0,
    ) -> "AffordableCost":
        """Fits the cost model, where a cost is known, with source sweeps' costs, if any.

        Args:
            space: the space.
            data: the sweep so far.
            budget: what is left.
            sources: source sweeps' costs.
            always_running, running_share: see `EngineSettings`.
        """
        model = None
        if len(data.costs):
            model = CostModel.fit(space, data.x_scored, data.costs, on_gpu=data.on_gpu, sources=sources)
            model = model.at_least(data.x_stopped, data.least_costs)
        elif len(data.least_costs) and space.cost_index is not None:  # the least that they cost is all that is known
            model = CostModel.fit(space, data.x_stopped, data.least_costs)
        if budget.remaining_seconds is None:
            return cls(budget, model, _OPEN_BUDGET * data.spent_seconds, slowdown=data.slowdown)
        predicted = 0.0
        if model is not None and len(data.x_running):
            predicted = data.slowdown * float(np.sum(np.exp(model.predict(data.x_running)[0])))
        held = predicted if budget.running_seconds is None else budget.running_seconds
        total = data.spent_seconds + held + budget.remaining_seconds
        slot = 0.0
        if budget.remaining_trials is not None:
            slot = budget.remaining_seconds / max(budget.remaining_trials, 1)
        num_running, beside = len(data.x_running), math.inf
        crowded = budget.can_wait and model is not None and num_running + budget.num_free > always_running
        if budget.can_wait and model is not None and num_running >= always_running:
            # A trial that was not predicted holds its cap; of a continuation, the model predicts the whole run.
            beside = running_share * total - min(predicted, held)
        return cls(budget, model, total, slot, beside, data.slowdown, crowded)

    def estimate(self, x: Array) -> Estimate | None:
        """Returns what a run at a point, `d`, will cost in seconds; None while no cost is known."""
        if self.model is None:
            return None
        calm = self.model.estimate(x)
        low, seconds, high = (self.slowdown * value for value in (calm.low, calm.value, calm.high))
        return Estimate(value=seconds, low=low, high=high)

    def should_wait(self, cost: Estimate | None) -> bool:
        """Whether a trial with this predicted cost should not start beside those that run."""
        return cost is not None and cost.value > self.beside_seconds

    def fits(self, x_unit: Array, behind: Array | None = None, clock_behind: Array | None = None) -> NDArray[np.bool_]:
        """Returns which of n points, `n x d`, may be started, `n`.

        Args:
            x_unit: the points.
            behind: seconds of each run that are paid already, `n`, on a machine without other programs. The rest has to
                fit the budget. None: all runs begin anew.
            clock_behind: the same seconds by the clock as it was then, `n`. With the rest, they have to fit the cap.
        """
        limit = self.budget.next_trial_seconds
        if limit <= 0:
            return np.zeros(len(x_unit), dtype=bool)
        if self.model is None or limit == math.inf:
            return np.ones(len(x_unit), dtype=bool)
        mean, sd = self.model.predict(x_unit)
        upper = mean + math.log(self.slowdown) + np.minimum(_UPPER_Z * sd, _MAX_LOG_MARGIN)
        if behind is None:
            return np.asarray(upper <= math.log(limit))
        assert clock_behind is not None, "both are given, or neither"
        cap = math.inf if self.budget.max_trial_seconds is None else self.budget.max_trial_seconds
        for_rest = dataclasses.replace(self.budget, max_trial_seconds=None).next_trial_seconds
        rest = rest_seconds(np.exp(upper), self.slowdown * behind)
        return np.asarray((clock_behind + rest <= cap) & (rest <= for_rest))


def cheapest_points(space: Space, x_unit: Array) -> Array:
    """Returns the valid ones of `n x d` points, moved to where they should cost least. This is tried before giving up.

    The cost parameter goes to its lowest value. Without a cost parameter the points are returned as they are.
    """
    if space.cost_index is None:
        return x_unit
    x = x_unit.copy()
    x[:, space.cost_index] = 0.0
    x = space.canonical(x)
    return np.asarray(x[space.valid(x)])


def limit_reached(max_trials: int) -> str:
    """Returns in a few words that no more trials are allowed."""
    return f"the limit of {counted(max_trials, 'trial')} is reached"


def why_nothing(space: Space, history: Sequence[Observation], running: Sequence[Params], budget: Budget) -> str:
    """Returns in a few words why `suggest` gave None for these arguments (see `protein.ports.Designer`).

    A limit on the number of trials is not looked at: see `limit_reached`.
    """
    if budget.remaining_seconds is not None and budget.remaining_seconds <= 0:
        return BUDGET_SPENT
    points = all_points(space)
    if points is not None and not len(History.of(space, history, running).untried(points)):
        return SPACE_EXHAUSTED
    remaining = math.inf if budget.remaining_seconds is None else budget.remaining_seconds
    cap = math.inf if budget.max_trial_seconds is None else budget.max_trial_seconds
    if remaining == cap == math.inf:
        return "no new config was found"
    limit = "what is left of the budget" if remaining <= cap else "what one trial may cost"
    return f"no new config is expected to fit {limit}"
