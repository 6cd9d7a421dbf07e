"""What a former sweep lends to a new one: models to lean on, and where to begin.

A former trial is carried over into this space: parameters that this space lacks are dropped, one that the former trial
lacks takes the value of this sweep's own config, and a value a little outside its range (`_SLACK` of the range's width
on its scale) is moved to the end of the range. A trial with any other value that this space cannot hold is left out.

The former scores count only by their own scale (see `protein.engine.models.ScoreScale`), the former costs up to a
factor: the environment or the machine may be another. Both are leant on as far as they agree with the new trials (see
`protein.engine.models.FormerTrials`).
Former failures count in the same way in the model of failures.
"""

import dataclasses
from collections.abc import Sequence

import numpy as np

from protein.engine.gp import Array
from protein.engine.history import Known
from protein.engine.models import CostModel, FailureModel, FormerTrials, ScoreModel
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.engine.settings import Recipe
from protein.errors import SpaceError
from protein.space import Categorical, Parameter, Space
from protein.types import Observation, Params, ParamValue

_SLACK = 0.05


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Former:
    """A former sweep, seen from this space."""

    scores: FormerTrials
    costs: FormerTrials
    ends: FormerTrials  # +1: gave a score, -1: failed
    x_front: Array  # `k x d`, its front by posterior mean, cheapest first; valid points of this space
    x_best: Array  # `j x d`, its best few at any cost, best first; valid, too

    @classmethod
    def of(cls, space: Space, start: Params | None, prior: Sequence[Observation], recipe: Recipe) -> "Former | None":
        """Returns what former trials lend; None when none of them has a score and lies in this space."""
        known = Known.of(space, carried_over(space, start, prior), [])
        if not len(known.scores):
            return None
        x, scores, costs = known.x_scored, known.scores, known.costs
        score = ScoreModel.fit(space, x, scores, trend=recipe.cost_trend, log_noise=recipe.log_noise)
        cost = CostModel.fit(space, x, costs)
        log_costs = np.log(np.maximum(costs, MIN_COST_SECONDS))
        end = FailureModel.fit(space, known.x_tried, known.ok)
        former = {
            "scores": FormerTrials(x, score.scale.to_z(scores), lambda points: score.predict(points)[0]),
            "costs": FormerTrials(x, log_costs, lambda points: cost.predict(points)[0]),
            "ends": FormerTrials(
                known.x_tried, np.where(known.ok, 1.0, -1.0), lambda points: 2.0 * end.p_ok(points) - 1.0
            ),
        }
        mean = score.predict(x)[0]
        valid = space.valid(x)
        x, mean, costs = x[valid], mean[valid], costs[valid]
        return cls(
            **former,
            x_front=x[front_indices(mean, costs)] if len(x) else x,
            x_best=x[np.argsort(-mean, kind="stable")[: recipe.num_former_best]],
        )

    def beginnings(self, levels: Sequence[float]) -> Array:
        """Returns a point of the front near each level, `k x d`: shares of the front's range of log cost."""
        if not len(self.x_front):
            return self.x_front
        log_cost = self.costs.expects(self.x_front)
        low, high = float(np.min(log_cost)), float(np.max(log_cost))
        chosen: list[int] = []
        for level in levels:
            distance = np.abs(log_cost - (low + level * (high - low)))
            order = [int(i) for i in np.argsort(distance, kind="stable") if int(i) not in chosen]
            chosen += order[:1]
        return np.asarray(self.x_front[chosen])


def carried_over(space: Space, start: Params | None, prior: Sequence[Observation]) -> list[Observation]:
    """Returns the former trials that this space can hold, in its terms; see the head of this file."""
    found = []
    for observation in prior:
        if observation.end is None or not observation.end.teaches:
            continue
        given = {**(start or {}), **observation.params}
        values = {p.name: _moved(p, given[p.name]) for p in space.parameters if p.name in given}
        params = {name: value for name, value in values.items() if value is not None}
        if len(params) == space.num_dims:
            found.append(dataclasses.replace(observation, params=params))
    return found


def _moved(parameter: Parameter, value: ParamValue) -> ParamValue | None:
    """Returns a value as the parameter can hold it; None where it cannot."""
    if isinstance(parameter, Categorical) or isinstance(value, bool | str):
        moved: ParamValue = value
    else:
        moved = parameter.clip(value)
        if not parameter.low <= value <= parameter.high:
            with np.errstate(all="ignore"):  # a log of what is below 0 gives NaN, which is beyond the slack, too
                end, outside = parameter.encode(np.array([float(moved), float(value)]))
            if not abs(outside - end) <= _SLACK:
                return None
    try:
        parameter.check(moved)
    except SpaceError:
        return None
    return moved
