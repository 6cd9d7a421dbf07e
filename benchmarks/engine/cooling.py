"""Expected improvement per weakened second, the exponent cooling from 1 to 0 as the budget is spent.

Notation
    a = remaining / (total - cost of the initial design)
    value(x) = log EI(x; best posterior mean so far) - a E ln c(x)

The models of score and cost and the candidates are this project's own, without the engine's additions: no prior rise
over the cost parameter, no levels of cost, no failure model (a failed run counts as the worst score so far), no rule
about which trials fit the budget. So the difference to the engine comes from the acquisition and the initial design.

    ei-cooling        10 Sobol points over the whole box first
    ei-cooling-cheap  the same 10 with the cost parameter in its lowest 30 %

Source: Lee et al., Cost-aware Bayesian Optimization (2020), section 4.2.
"""

import numpy as np
from engine.protocol import Peer

from protein.engine.acquisition import log_expected_improvement
from protein.engine.candidates import all_points, initial_points, ladders, neighbours, spread
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array, single_thread
from protein.engine.history import keys
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import Budget, Observation, Params

_NUM_INITIAL = 10
_CHEAP_SHARE = 0.3
_NUM_CENTERS = 8
_RECIPE = EngineSettings()


class Cooling(Peer):
    """One run."""

    budget_free = False

    def __init__(self, space: Space, start: Params | None, seed: int, *, cheap: bool) -> None:
        self._space, self._seed = space, seed
        share = _CHEAP_SHARE if cheap else 1.0
        design = initial_points(space, seed=seed, cost_share=share, start=None, pull=0.0)
        self._first = [*([] if start is None else [start]), *space.from_unit_many(design[:_NUM_INITIAL])]
        self._listed = all_points(space)
        self._total_seconds = 0.0

    def ask(self, history: list[Observation], budget: Budget) -> Params | None:
        assert budget.remaining_seconds is not None
        if not history:
            self._total_seconds = budget.remaining_seconds
        if len(history) < len(self._first):
            return self._first[len(history)]
        rng = np.random.default_rng([self._seed, len(history)])
        scores = [o.score for o in history if o.score is not None]
        if not scores:
            return self._space.from_unit(self._space.sample(1, rng)[0])
        initial_seconds = sum(o.cost_seconds for o in history[: len(self._first)])
        exponent = budget.remaining_seconds / max(self._total_seconds - initial_seconds, 1e-9)
        with single_thread(), np.errstate(all="ignore"):
            return self._space.from_unit(self._best(history, min(scores), exponent, rng))

    def _best(self, history: list[Observation], worst: float, exponent: float, rng: np.random.Generator) -> Array:
        space = self._space
        x_tried = space.canonical(space.to_unit_many([o.params for o in history]))
        score = ScoreModel.fit(space, x_tried, np.array([worst if o.score is None else o.score for o in history]))
        cost = CostModel.fit(space, x_tried, np.array([o.cost_seconds for o in history]))
        tried_mean, _ = score.predict(x_tried)
        best = np.asarray(np.max(tried_mean))
        taken = set(keys(x_tried))

        def value(x: Array) -> Array:
            mean, sd = score.predict(x)
            gain = log_expected_improvement(mean, sd, best) - exponent * cost.predict(x)[0]
            return np.where([key in taken for key in keys(x)], -np.inf, gain)

        centers = x_tried[np.argsort(-tried_mean, kind="stable")[:_NUM_CENTERS]]
        x = self._listed if self._listed is not None else spread(space, centers, _RECIPE, rng)
        values = value(x)
        for width in _RECIPE.refine_widths if self._listed is None else ():
            top = x[np.argsort(-values, kind="stable")[: _RECIPE.num_refined]]
            more = neighbours(space, top, _RECIPE.num_refinements, (width / 3.0, width), rng)
            more = np.concatenate([more, ladders(space, top[:2], _RECIPE.num_rungs, rng)])
            x, values = np.concatenate([x, more]), np.concatenate([values, value(more)])
        return np.asarray(x[int(np.argmax(values))])
