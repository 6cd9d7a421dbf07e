"""Which trials the remaining budget allows.

The rule: a trial may start when its predicted cost, at the upper end of what is likely (the 80th percentile, but at
most 1.5 times the median while little is known), is within both the remaining budget and the cap on one trial. Before
any cost is known there is nothing to judge by, and every trial may start as long as some budget is left.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array
from protein.engine.history import Known
from protein.engine.models import CostModel, FormerTrials
from protein.space import Space

_UPPER_Z = 0.8416  # the 80th percentile of a standard normal
_OPEN_BUDGET = 4.0  # without a budget, the whole is taken to be this many times what was spent so far
_MAX_LOG_MARGIN = math.log(1.5)


@dataclasses.dataclass(frozen=True, slots=True)
class Allowance:
    """What one trial may cost: `limit_seconds` (infinite without any limit), by `model` (None: no cost known yet).

    `total_seconds` is the whole sweep's budget, spent and left; `slot_seconds` what is left of it for each of the
    trials that may still be started, 0 where their number is not limited.
    """

    limit_seconds: float
    model: CostModel | None
    total_seconds: float
    slot_seconds: float = 0.0

    @classmethod
    def of(
        cls,
        space: Space,
        known: Known,
        remaining_seconds: float | None,
        max_trial_seconds: float | None,
        former: FormerTrials | None = None,
        remaining_trials: int | None = None,
    ) -> "Allowance":
        """Fits the cost model, where a cost is known; it leans on a former sweep's costs, where there are some."""
        limits = [limit for limit in (remaining_seconds, max_trial_seconds) if limit is not None]
        model = CostModel.fit(space, known.x_scored, known.costs, former=former) if len(known.costs) else None
        if remaining_seconds is None:
            total = _OPEN_BUDGET * known.spent_seconds
        else:
            total = known.spent_seconds + remaining_seconds
        slot = 0.0
        if remaining_seconds is not None and remaining_trials is not None:
            slot = remaining_seconds / max(remaining_trials, 1)
        return cls(min(limits, default=math.inf), model, total, slot)

    def fits(self, x_unit: Array) -> NDArray[np.bool_]:
        """Returns which of n points, `n x d`, may be started, `n`."""
        if self.limit_seconds <= 0:
            return np.zeros(len(x_unit), dtype=bool)
        if self.model is None or self.limit_seconds == math.inf:
            return np.ones(len(x_unit), dtype=bool)
        mean, sd = self.model.predict(x_unit)
        return np.asarray(mean + np.minimum(_UPPER_Z * sd, _MAX_LOG_MARGIN) <= math.log(self.limit_seconds))


def cheapest_points(space: Space, allowance: Allowance, x_unit: Array) -> Array:
    """Returns the points, `n x d`, moved to where they should cost least: what to try before giving up.

    The cost parameter goes to its lowest value; without one the points stay where they are.
    """
    if space.cost_index is None:
        return x_unit
    x = x_unit.copy()
    x[:, space.cost_index] = 0.0
    x = space.canonical(x)
    return np.asarray(x[space.valid(x)])
