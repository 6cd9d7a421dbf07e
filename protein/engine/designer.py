"""The designers: what to try next, in the order own config, initial design, models.

Invariants of every `suggest`, whatever the history (see `protein.ports.Designer`): the same arguments give the same
suggestion; it satisfies every constraint; it is no point that is running, and none that was tried unless it is a
re-evaluation; it fits the budget by the rule in `protein.engine.budget`; numerical trouble ends in a valid random
point whose `origin` says so, never in an exception.
"""

import logging
import math
from collections.abc import Sequence

import numpy as np

from protein.engine.budget import Allowance, cheapest_points
from protein.engine.candidates import all_points, ladders
from protein.engine.gp import Array, single_thread
from protein.engine.history import Known, keys
from protein.engine.initial_design import initial_points, interleaved, next_initial_point
from protein.engine.models import FailureModel
from protein.engine.reevaluation import reevaluation
from protein.engine.search import Search, format_seconds
from protein.engine.settings import Recipe
from protein.engine.stopping import reason_to_stop
from protein.engine.warm_start import Former
from protein.errors import UsageError
from protein.space import Space
from protein.types import Measurement, Observation, Params, Suggestion, SuggestionKind

_logger = logging.getLogger(__name__)
_NUM_RANDOM = 256  # points drawn where one random point is wanted that is new and fits the budget


class RandomDesigner:
    """The user's own config, then uniform valid points: the baseline that any search has to beat."""

    def __init__(self, space: Space, start: Params | None) -> None:
        self._space = space
        self._start = space.snap(start) if start is not None else None
        self._listed = all_points(space)

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        *,
        remaining_seconds: float | None,
        max_trial_seconds: float | None,
        seed: int,
        remaining_trials: int | None = None,
    ) -> Suggestion | None:
        """See `protein.ports.Designer`."""
        with single_thread(), np.errstate(all="ignore"):
            known = Known.of(self._space, history, running)
            if remaining_seconds is not None and remaining_seconds <= 0:
                return None
            if known.num_trials == 0 and self._start is not None:
                return Suggestion(params=self._start, kind=SuggestionKind.INITIAL_CONFIG, origin="your own config")
            allowance = Allowance.of(self._space, known, remaining_seconds, max_trial_seconds)
            x = _random_point(self._space, known, allowance, self._listed, np.random.default_rng(seed))
            return (
                None
                if x is None
                else Suggestion(params=self._space.from_unit(x), kind=SuggestionKind.RANDOM, origin="random")
            )

    def should_stop(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        params: Params,
        curve: Sequence[Measurement],
        *,
        remaining_seconds: float | None,
        seed: int,
    ) -> str | None:
        """Never stops a trial: the baseline learns from finished ones alone."""
        return None


class ProteinDesigner:
    """The engine: own config, cheap space-filling design, then cost-aware improvement of the front."""

    def __init__(
        self,
        space: Space,
        start: Params | None,
        *,
        seed: int,
        recipe: Recipe,
        prior: Sequence[Observation] = (),
    ) -> None:
        self._space, self._recipe = space, recipe
        self._start = space.snap(start) if start is not None else None
        self._start_origin = "your own config"
        if start is not None and self._start != dict(start):
            self._start_origin += ", moved into the space"
        self._x_start = space.canonical(space.to_unit(self._start)[None, :])[0] if self._start is not None else None
        self._listed = all_points(space)
        self._initial = initial_points(
            space,
            seed=seed,
            cost_share=recipe.initial_cost_share,
            start=self._x_start,
            pull=recipe.initial_pull,
        )
        with single_thread(), np.errstate(all="ignore"):
            self._former = Former.of(space, start, prior, recipe) if prior else None
        self._num_initial = recipe.num_initial
        if prior and self._former is None:
            raise UsageError(
                f"none of the {len(prior)} trials of the prior has a score and lies in this space;"
                " give another prior or none, or a start that says what parameters had that its trials lack"
            )
        if self._former is not None:
            beginnings = self._former.beginnings(recipe.former_levels)
            self._initial = interleaved(beginnings, self._initial, recipe.num_former_filling)
            self._num_initial = len(beginnings) + recipe.num_former_filling
            self._from_former = frozenset(keys(beginnings))

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        *,
        remaining_seconds: float | None,
        max_trial_seconds: float | None,
        seed: int,
        remaining_trials: int | None = None,
    ) -> Suggestion | None:
        """See `protein.ports.Designer`."""
        # Overflow in a far tail is expected and handled where it matters; a warning would be noise in the user's log.
        with single_thread(), np.errstate(all="ignore"):
            known = Known.of(self._space, history, running, max_curve_points=self._recipe.max_curve_points)
            if remaining_seconds is not None and remaining_seconds <= 0:
                return None
            if self._start is not None and known.num_trials == 0:
                return Suggestion(params=self._start, kind=SuggestionKind.INITIAL_CONFIG, origin=self._start_origin)
            rng = np.random.default_rng(seed)
            former_costs = None if self._former is None else self._former.costs
            allowance = Allowance.of(
                self._space, known, remaining_seconds, max_trial_seconds, former_costs, remaining_trials
            )
            position = known.num_trials - (self._start is not None)
            if position < self._num_initial and not self._is_small(known, allowance, remaining_seconds):
                return self._design(known, allowance, position, rng)
            if not len(known.scores):
                return self._look_for_a_score(known, allowance, rng)
            try:
                search = Search(
                    self._space, known, allowance, self._recipe, self._x_start, self._listed, rng, self._former
                )
                again = reevaluation(self._space, history, known, allowance, self._recipe, remaining_seconds)
                pick = search.pick() if again is None else search.describe(again.x_unit, again.origin)
            except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
                _logger.warning("the models failed, falling back to a random point", exc_info=True)
                x = _random_point(self._space, known, allowance, self._listed, rng)
                origin = f"random point, the models failed ({type(error).__name__}: {error})"
                return (
                    None
                    if x is None
                    else Suggestion(params=self._space.from_unit(x), kind=SuggestionKind.FALLBACK, origin=origin)
                )
            if pick is None:
                return None
            return Suggestion(
                params=self._space.from_unit(pick.x_unit) if again is None else again.params,
                kind=SuggestionKind.SEARCH if again is None else SuggestionKind.REEVALUATION,
                origin=pick.origin,
                predicted_score=pick.predicted_score,
                predicted_cost_seconds=pick.predicted_cost_seconds,
            )

    def should_stop(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        params: Params,
        curve: Sequence[Measurement],
        *,
        remaining_seconds: float | None,
        seed: int,
    ) -> str | None:
        """See `protein.ports.Designer` and `protein.engine.stopping`."""
        if not self._recipe.early_stopping:
            return None
        with np.errstate(all="ignore"):
            return reason_to_stop(self._space, history, params, curve, seed=seed)

    def _is_small(self, known: Known, allowance: Allowance, remaining_seconds: float | None) -> bool:
        """Whether the budget is too small for the whole design: see `Recipe.initial_budget_share`."""
        share = self._recipe.initial_budget_share * allowance.total_seconds
        enough = len(known.scores) >= self._recipe.num_initial_least
        return remaining_seconds is not None and enough and known.spent_seconds > share

    def _design(self, known: Known, allowance: Allowance, position: int, rng: np.random.Generator) -> Suggestion | None:
        """The next point of the initial design; where it would overrun, the same point at a lower cost."""
        kind, origin = SuggestionKind.INITIAL_DESIGN, f"initial design {position + 1} of {self._num_initial}"
        find_cheap = self._space.cost_index is None and self._former is None
        x = next_initial_point(self._initial, known, allowance, find_cheap=find_cheap)
        if self._former is not None and x is not None and keys(x[None, :])[0] in self._from_former:
            log_cost = self._former.costs.expects(x[None, :])
            if allowance.model is not None:
                log_cost, _ = allowance.model.predict(x[None, :])
            kind = SuggestionKind.WARM_START
            origin = f"from the prior sweep's front near {format_seconds(math.exp(float(log_cost[0])))}"
        if x is None:  # a small discrete space whose design points are all taken
            x = _random_point(self._space, known, allowance, self._listed, rng)
            return (
                None
                if x is None
                else Suggestion(
                    params=self._space.from_unit(x), kind=SuggestionKind.FALLBACK, origin=f"{origin}, random"
                )
            )
        if not allowance.fits(x[None, :])[0]:
            lower = ladders(self._space, x[None, :], 4 * self._recipe.num_rungs, rng)
            lower = known.untried(lower)
            lower = lower[allowance.fits(lower)] if len(lower) else lower
            if len(lower):
                assert self._space.cost_index is not None
                x = lower[int(np.argmax(lower[:, self._space.cost_index]))]
                origin += ", made cheaper to fit the budget"
            else:
                fitting = _random_point(self._space, known, allowance, self._listed, rng)
                if fitting is None:
                    return None
                x, kind, origin = fitting, SuggestionKind.FALLBACK, f"{origin}, random to fit the budget"
        return Suggestion(params=self._space.from_unit(x), kind=kind, origin=origin)

    def _look_for_a_score(self, known: Known, allowance: Allowance, rng: np.random.Generator) -> Suggestion | None:
        """Everything has failed so far: the point that looks least like the failures."""
        x = self._listed if self._listed is not None else self._space.sample(_NUM_RANDOM, rng)
        x = known.untried(x)
        x = x[allowance.fits(x)] if len(x) else x
        if not len(x):
            return None
        p_ok = FailureModel.fit(self._space, known.x_tried, known.ok).p_ok(x)
        best = x[int(np.argmax(p_ok))]
        return Suggestion(
            params=self._space.from_unit(best), kind=SuggestionKind.SEARCH, origin="no score yet, away from what failed"
        )


def _random_point(
    space: Space, known: Known, allowance: Allowance, listed: Array | None, rng: np.random.Generator
) -> Array | None:
    """Returns a uniform point that is valid, new and allowed, `d`; the cheapest where few are; None where none is."""
    x = known.untried(listed[rng.permutation(len(listed))] if listed is not None else space.sample(_NUM_RANDOM, rng))
    fitting = x[allowance.fits(x)] if len(x) else x
    if not len(fitting):
        x = known.untried(cheapest_points(space, allowance, x))
        fitting = x[allowance.fits(x)] if len(x) else x
    return np.asarray(fitting[0]) if len(fitting) else None
