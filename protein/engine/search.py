"""The model phase: fit what is known, score candidates, say why the best one is worth its cost."""

import dataclasses
import math

import numpy as np

from protein.engine.acquisition import cost_levels, front_at, log_value
from protein.engine.budget import AffordableCost, cheapest_points
from protein.engine.candidates import ladders, neighbours, spread
from protein.engine.gp import Array
from protein.engine.history import Known
from protein.engine.models import FailureModel
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.engine.score_model import score_model
from protein.engine.settings import Recipe
from protein.engine.warm_start import Former
from protein.space import Space
from protein.types import Z80, Estimate

_SAFE = 0.9  # the highest p_ok that is asked for
_UNSAFE = 1e6  # by how much a p_ok that falls short by 1 lowers a value, which is a logarithm


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pick:
    """A chosen point, `x_unit` of `d`, the reason for it, and what the models expect of it."""

    x_unit: Array
    origin: str
    predicted_score: Estimate | None
    predicted_cost_seconds: Estimate | None


class Search:
    """One suggestion's worth of models and candidates."""

    def __init__(
        self,
        space: Space,
        known: Known,
        allowance: AffordableCost,
        recipe: Recipe,
        start: Array | None,
        listed: Array | None,
        rng: np.random.Generator,
        former: Former | None = None,
    ) -> None:
        """Fits the models. `known` has at least one score; `start` is the user's own config, `d`; `listed` is every
        point of a space that has few, `n x d`; `former` a sweep to lean on."""
        assert allowance.model is not None
        self._space, self._known, self._allowance, self._recipe, self._rng = space, known, allowance, recipe, rng
        self._start, self._listed, self._former = start, listed, former
        # A trial also takes one of those that are still allowed: where many seconds are left for few of them, dear ones
        # are no worse than cheap ones.
        price = recipe.price_floor * allowance.total_seconds + recipe.slot_price * allowance.slot_seconds
        self._log_price_floor = math.log(price) if price > 0 else -math.inf
        self._cost = allowance.model
        self._score = score_model(space, known, recipe, None if former is None else former.scores)
        # Where it does not make the new scores much likelier, nothing of it counts but its costs.
        self._former = former = former if former is None or self._score.leans else None
        # A prior that misleads has to be found out cheaply: no large bets before this sweep has trials of its own.
        self._log_careful = math.inf
        if former is not None and known.num_trials < recipe.former_careful_trials and allowance.total_seconds > 0:
            self._log_careful = math.log(recipe.former_careful_share * allowance.total_seconds)
        self._failure = FailureModel(space, 1.0, None)
        if recipe.failure_model:
            former_ends = None if former is None else former.ends
            self._failure = FailureModel.fit(space, known.x_tried, known.ok, former=former_ends)
        # Where scores rise up to a cliff, the score model, which never sees one beyond it, promises more there than any
        # log p_ok takes back. So a sweep with many failures asks for points that are safer, the more of them it had.
        failed = int(np.sum(~known.ok))
        share = failed / len(known.ok)
        careful = recipe.failure_model and failed >= recipe.failures_allowed and share > recipe.failure_share
        self._least_p_ok = min(2.0 * share, _SAFE) if careful else 0.0
        x_front = np.concatenate([known.x_scored, known.x_running])
        log_cost = np.log(np.maximum(known.costs, MIN_COST_SECONDS))
        if len(known.x_running):
            # What runs is counted as if it gave what is expected of it: the next trial looks for something else.
            self._score = self._score.believe(known.x_running)
            log_cost = np.concatenate([log_cost, self._cost.predict(known.x_running)[0]])
        self._x_front, self._front_log_cost = x_front, log_cost
        self._front_mean, _ = self._score.predict(x_front)
        # What the former front surely gives counts as known: to run it again is no gain, to go beyond it is.
        self._known_mean, self._known_log_cost = self._front_mean, log_cost
        if former is not None and len(former.x_front):
            mean, sd = self._score.predict(former.x_front)
            self._known_mean = np.concatenate([self._front_mean, mean - recipe.former_doubt * sd])
            self._known_log_cost = np.concatenate([log_cost, self._cost.predict(former.x_front)[0]])

    def pick(self) -> Pick | None:
        """Returns the most valuable point that may be started, or None when none may."""
        centers = self._centers()
        x = self._listed if self._listed is not None else spread(self._space, centers, self._recipe, self._rng)
        x = self._startable(x)
        if not len(x):
            x = self._startable(cheapest_points(self._space, np.concatenate([centers, self._fresh()])))
            if not len(x):
                return None
        levels, front = self._levels(x)
        value = self._value(x, levels, front)
        for width in self._recipe.refine_widths if self._listed is None else ():
            best = x[np.argsort(-value, kind="stable")[: self._recipe.num_refined]]
            more = [neighbours(self._space, best, self._recipe.num_refinements, (width / 3.0, width), self._rng)]
            more.append(ladders(self._space, best[:2], self._recipe.num_rungs, self._rng))
            more_x = self._startable(np.concatenate(more))
            if len(more_x):
                x, value = np.concatenate([x, more_x]), np.concatenate([value, self._value(more_x, levels, front)])
        chosen = x[int(np.argmax(value))]
        return self.describe(chosen, self._reason(float(self._cost.predict(chosen[None, :])[0][0])))

    def _fresh(self) -> Array:
        return self._space.sample(64, self._rng)

    def _startable(self, x: Array) -> Array:
        x = self._known.untried(x)
        x = np.asarray(x[self._allowance.fits(x)]) if len(x) else x
        if len(x) and self._log_careful < math.inf:
            careful = x[self._cost.predict(x)[0] <= self._log_careful]
            x = careful if len(careful) else x
        return x

    def _centers(self) -> Array:
        """The front as the model sees it, the best few at any cost, the user's own config, a former sweep's best."""
        front = front_indices(self._front_mean, np.exp(self._front_log_cost))[::-1]
        top = np.argsort(-self._front_mean, kind="stable")[:5]
        chosen = list(dict.fromkeys([*front.tolist(), *top.tolist()]))[: self._recipe.num_centers]
        centers = self._x_front[chosen]
        if self._start is not None:
            centers = np.concatenate([centers, self._start[None, :]])
        return centers if self._former is None else np.concatenate([centers, self._former.x_best])

    def _levels(self, x: Array) -> tuple[Array, Array]:
        """Levels from the cheapest to the dearest cost that is known or could be chosen, and the front at them."""
        mean, _ = self._cost.predict(x)
        low = min(float(np.min(mean)), float(np.min(self._front_log_cost)))
        high = max(float(np.max(mean)), float(np.max(self._front_log_cost)))
        levels = cost_levels(low, high, self._recipe.num_levels)
        return levels, front_at(levels, self._known_mean, self._known_log_cost, self._recipe.front_floor)

    def _value(self, x: Array, levels: Array, front: Array) -> Array:
        mean, sd = self._score.predict(x)
        cost_mean, cost_sd = self._cost.predict(x)
        p_ok = self._failure.p_ok(x)
        value = log_value(
            mean,
            sd,
            cost_mean,
            cost_sd,
            p_ok,
            levels=levels,
            front=front,
            cost_exponent=self._recipe.cost_exponent,
            log_price_floor=self._log_price_floor,
        )
        return value - _UNSAFE * np.maximum(self._least_p_ok - p_ok, 0.0)

    def describe(self, x: Array, reason: str) -> Pick:
        """Returns what is expected of a point, `d`; the origin is the reason for it and what went wrong in the fits."""
        (score,) = self._score.estimates(x[None, :], measured=True, chosen=True)
        cost_mean, cost_sd = self._cost.predict(x[None, :])
        log_cost, log_spread = float(cost_mean[0]), Z80 * float(cost_sd[0])
        seconds = math.exp(log_cost)
        fallbacks = [
            f"{name}: {process.fallback}"
            for name, process in (
                ("score model", self._score.process),
                ("cost model", self._cost.process),
                ("failure model", self._failure.process),
            )
            if process is not None and process.fallback
        ]
        return Pick(
            x_unit=x,
            origin=reason + "".join(f" ({fallback})" for fallback in fallbacks),
            predicted_score=score,
            predicted_cost_seconds=Estimate(
                value=seconds, low=math.exp(log_cost - log_spread), high=math.exp(log_cost + log_spread)
            ),
        )

    def _reason(self, log_cost: float) -> str:
        seconds = format_seconds(math.exp(log_cost))
        index = front_indices(self._front_mean, np.exp(self._front_log_cost))
        cheapest, dearest = self._front_log_cost[index[0]], self._front_log_cost[index[-1]]
        if log_cost < cheapest - 0.1:
            return f"cheap probe at {seconds}"
        if log_cost > dearest + 0.1:
            return f"extending the front to {seconds}"
        return f"improving the front near {seconds}"


def format_seconds(seconds: float) -> str:
    """Returns a duration to about two digits, as in "0.4 s", "40 s", "12 min", "3.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"
