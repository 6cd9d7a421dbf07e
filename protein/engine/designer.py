"""The designers: what to try next. The engine's order is initial config, initial design, then the models.

Invariants of every `suggest`, whatever the history is (see `protein.ports.Designer`):

- The same arguments give the same suggestion.
- The suggestion satisfies every constraint.
- It repeats no running trial and no finished one. The params of an interrupted trial may come again.
- It fits the budget by the rules in `protein.engine.budget`.
- After a numerical failure it is a valid random point, and its `origin` names the failure. No exception is raised.
"""

import logging
import math
from collections.abc import Sequence

import numpy as np

from protein.engine.budget import AffordableCost, cheapest_points
from protein.engine.candidates import all_points, initial_points, interleaved, ladders, middle, other_choices
from protein.engine.continuation import Continuable
from protein.engine.failure_model import FailureModel
from protein.engine.gp import Array, single_thread
from protein.engine.history import History, keys
from protein.engine.search import Search, format_seconds
from protein.engine.settings import EngineSettings
from protein.engine.stopping import reason_to_stop
from protein.engine.warm_start import SourceSweep, beginnings
from protein.errors import UsageError
from protein.space import Space
from protein.types import Budget, Measurement, Observation, Params, Suggestion, SuggestionKind

_logger = logging.getLogger(__name__)
_NUM_RANDOM = 256  # points drawn to find one random point that is new and fits the budget
_INITIAL_CONFIG = "initial config"
_NUM_LOOKED_THROUGH = 4  # next points of the design; without a cost parameter, the cheapest of them is taken
_MIN_COSTS = 3  # with fewer measured costs, a prediction without a cost parameter is a guess


class RandomDesigner:
    """The initial config, then uniform valid points: the baseline that any search has to beat."""

    def __init__(self, space: Space, start: Params | None) -> None:
        self._space = space
        self._start = space.snap(start) if start is not None else None
        self._listed = all_points(space)

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """See `protein.ports.Designer`."""
        with single_thread(), np.errstate(all="ignore"):
            data = History.of(self._space, history, running)
            if budget.spent:
                return None
            start = self._start
            if start is not None and data.begins(self._space, start):
                return Suggestion(params=start, kind=SuggestionKind.INITIAL_CONFIG, origin=_INITIAL_CONFIG)
            affordable = AffordableCost.of(self._space, data, budget)
            if start is not None and data.begins(self._space, start, affordable.fits):
                return Suggestion(params=start, kind=SuggestionKind.INITIAL_CONFIG, origin=_INITIAL_CONFIG)
            x = _random_point(self._space, data, affordable, self._listed, np.random.default_rng(seed))
            return _suggestion(self._space, x, SuggestionKind.RANDOM, "random", affordable)

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """Never stops a trial: the baseline learns from finished trials alone."""
        return None


class ProteinDesigner:
    """The engine: initial config, cheap space-filling design, then cost-aware improvement of the front."""

    def __init__(
        self,
        space: Space,
        start: Params | None,
        *,
        seed: int,
        settings: EngineSettings,
        warm_start: Sequence[Sequence[Observation]] = (),
    ) -> None:
        """See `protein.sweep.methods.make_designer`."""
        self._space, self._settings = space, settings
        if start is None:
            self._start = space.from_unit(middle(space))
            self._start_kind, self._start_origin = SuggestionKind.INITIAL_DESIGN, "the middle of every range"
        else:
            self._start = space.snap(start)
            moved = "" if self._start == dict(start) else ", moved into the space"
            self._start_kind, self._start_origin = SuggestionKind.INITIAL_CONFIG, _INITIAL_CONFIG + moved
        self._x_start = space.canonical(space.to_unit(self._start)[None, :])[0]
        self._listed = all_points(space)
        self._initial = initial_points(
            space,
            seed=seed,
            cost_share=settings.initial_cost_share,
            start=self._x_start,
            pull=0.0 if start is None else settings.initial_pull,
        )
        if start is None:
            others = other_choices(space, self._x_start)
            self._initial = interleaved(others, self._initial, settings.num_initial - len(others))
        with single_thread(), np.errstate(all="ignore"):
            found = [SourceSweep.of(space, start, trials, settings) for trials in warm_start]
        self._sources = [source for source in found if source is not None]
        self._from_source: dict[bytes, SourceSweep] = {}
        self._num_initial = settings.num_initial
        if warm_start and not self._sources:
            raise UsageError(
                f"none of the {sum(map(len, warm_start))} trials of the warm start has a score and lies in this space;"
                " begin from other trials or none, or give an initial config with values for the parameters that the"
                " trials lack"
            )
        if self._sources:
            points = list(beginnings(self._sources, settings.source_front_levels))
            self._from_source = {keys(x[None, :])[0]: source for x, source in points}
            chosen = np.array([x for x, _ in points]).reshape(-1, space.num_dims)
            self._initial = interleaved(chosen, self._initial, settings.num_beside_source)
            self._num_initial = len(self._from_source) + settings.num_beside_source

    def suggest(
        self,
        history: Sequence[Observation],
        running: Sequence[Params],
        budget: Budget,
        seed: int,
    ) -> Suggestion | None:
        """See `protein.ports.Designer`."""
        # Overflow in a far tail is expected, and handled where it matters. A warning would be noise in the user's log.
        with single_thread(), np.errstate(all="ignore"):
            data = History.of(self._space, history, running, max_curve_points=self._settings.max_curve_points)
            if budget.spent:
                return None
            if data.begins(self._space, self._start):
                return Suggestion(params=self._start, kind=self._start_kind, origin=self._start_origin)
            affordable = AffordableCost.of(
                self._space,
                data,
                budget,
                [source.costs for source in self._sources],
                always_running=self._settings.always_running,
                running_share=self._settings.running_share,
            )
            if data.begins(self._space, self._start, affordable.fits):
                return Suggestion(params=self._start, kind=self._start_kind, origin=self._start_origin)
            rng = np.random.default_rng(seed)
            position = max(data.num_trials - 1, 0)
            # With many workers the design is longer: a model needs trials that have ended, not trials that run.
            few = min(position, data.num_trials - len(data.x_running)) < self._num_initial
            if few and not self._design_is_cut_short(data, affordable, budget):
                return self._next_of_design(data, affordable, position, rng)
            if not len(data.scores):
                return self._away_from_failures(data, affordable, rng)
            return self._search(history, data, affordable, rng)

    def should_stop(
        self,
        history: Sequence[Observation],
        params: Params,
        curve: Sequence[Measurement],
        seed: int,
    ) -> str | None:
        """See `protein.ports.Designer` and `protein.engine.stopping`."""
        if not self._settings.early_stopping:
            return None
        with np.errstate(all="ignore"):
            return reason_to_stop(self._space, history, params, curve, seed=seed)

    def _design_is_cut_short(self, data: History, affordable: AffordableCost, budget: Budget) -> bool:
        """Whether the budget is too small for the whole design: see `EngineSettings.initial_budget_share`."""
        share = self._settings.initial_budget_share * affordable.total_seconds
        enough = len(data.scores) >= self._settings.min_initial_scores
        return budget.remaining_seconds is not None and enough and data.spent_seconds > share

    def _next_of_design(
        self, data: History, affordable: AffordableCost, position: int, rng: np.random.Generator
    ) -> Suggestion | None:
        """Returns the next point of the initial design; where it would cost too much, the same point made cheaper."""
        kind, origin = SuggestionKind.INITIAL_DESIGN, f"initial design {position + 1} of {self._num_initial}"
        if position >= self._num_initial:
            origin = f"initial design {position + 1}, until {self._num_initial} trials have ended"
        find_cheap = self._space.cost_index is None and not self._sources
        x = next_initial_point(self._initial, data, affordable, find_cheap=find_cheap)
        source = None if x is None else self._from_source.get(keys(x[None, :])[0])
        if source is not None and x is not None:
            log_cost = source.costs.expects(x[None, :])
            if affordable.model is not None:
                log_cost, _ = affordable.model.predict(x[None, :])
            kind = SuggestionKind.WARM_START
            origin = f"from the source sweep's front near {format_seconds(math.exp(float(log_cost[0])))}"
        if x is None:  # a small discrete space whose design points are all taken
            x = _random_point(self._space, data, affordable, self._listed, rng)
            return _suggestion(self._space, x, SuggestionKind.FALLBACK, f"{origin}, random", affordable)
        if affordable.fits(x[None, :])[0]:
            return _suggestion(self._space, x, kind, origin, affordable)
        lower = ladders(self._space, x[None, :], 4 * self._settings.num_rungs, rng)
        lower = data.untried(lower)
        lower = lower[affordable.fits(lower)] if len(lower) else lower
        if len(lower):
            assert self._space.cost_index is not None
            x = lower[int(np.argmax(lower[:, self._space.cost_index]))]
            return _suggestion(self._space, x, kind, f"{origin}, made cheaper to fit the budget", affordable)
        x = _random_point(self._space, data, affordable, self._listed, rng)
        return _suggestion(self._space, x, SuggestionKind.FALLBACK, f"{origin}, random to fit the budget", affordable)

    def _away_from_failures(
        self, data: History, affordable: AffordableCost, rng: np.random.Generator
    ) -> Suggestion | None:
        """Returns, where everything has failed so far, the point that looks least like the failures."""
        x = self._listed if self._listed is not None else self._space.sample(_NUM_RANDOM, rng)
        x = data.untried(x)
        x = x[affordable.fits(x)] if len(x) else x
        if not len(x):
            return None
        p_ok = FailureModel.fit(self._space, data.x_tried, data.ok).p_ok(x)
        best = x[int(np.argmax(p_ok))]
        return _suggestion(self._space, best, SuggestionKind.SEARCH, "no score yet, away from what failed", affordable)

    def _search(
        self,
        history: Sequence[Observation],
        data: History,
        affordable: AffordableCost,
        rng: np.random.Generator,
    ) -> Suggestion | None:
        """Returns what the models find most valuable; a random point if they fail."""
        try:
            search = Search(
                self._space,
                data,
                affordable,
                self._settings,
                start=self._x_start,
                listed=self._listed,
                sources=self._sources,
                continuable=Continuable.of(self._space, history, data.x_running),
                rng=rng,
            )
            pick = search.pick()
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            _logger.warning("the models failed, falling back to a random point", exc_info=True)
            x = _random_point(self._space, data, affordable, self._listed, rng)
            origin = f"random point, the models failed ({type(error).__name__}: {error})"
            return _suggestion(self._space, x, SuggestionKind.FALLBACK, origin, affordable)
        return None if pick is None or affordable.should_wait(pick.predicted_cost_seconds) else pick


def next_initial_point(points: Array, data: History, affordable: AffordableCost, *, find_cheap: bool) -> Array | None:
    """Returns the next point of the design, `d`, that was not tried and is not running; None when there is none.

    The position follows from the trials themselves, so an interrupted point comes again and a finished one never does.
    With `find_cheap` (there is no cost parameter) and once a few costs are known, it is the one of the next
    `_NUM_LOOKED_THROUGH` points that should cost least.
    """
    untried = data.untried(points)
    if not len(untried):
        return None
    if find_cheap and affordable.model is not None and len(data.costs) >= _MIN_COSTS:
        untried = untried[:_NUM_LOOKED_THROUGH]
        return np.asarray(untried[int(np.argmin(affordable.model.predict(untried)[0]))])
    return np.asarray(untried[0])


def _suggestion(
    space: Space, x: Array | None, kind: SuggestionKind, origin: str, affordable: AffordableCost
) -> Suggestion | None:
    """Returns a suggestion of a point, `d`, of which at most the cost is predicted; None for no point, or to wait."""
    if x is None:
        return None
    # The engine's first trials set their caps aside, so that not all are started before any cost is known; with many
    # workers only until one is (see `protein.engine.budget`). Random search has nothing to wait for.
    cost = affordable.estimate(x) if kind is SuggestionKind.RANDOM or affordable.crowded else None
    if affordable.should_wait(cost):
        return None
    return Suggestion(params=space.from_unit(x), kind=kind, origin=origin, predicted_cost_seconds=cost)


def _random_point(
    space: Space, data: History, affordable: AffordableCost, listed: Array | None, rng: np.random.Generator
) -> Array | None:
    """Returns a uniform point, `d`, that is valid, new and fits the budget.

    Where none of those drawn fits, it is one of them at the lowest cost; None where not even that fits.
    """
    x = data.untried(listed[rng.permutation(len(listed))] if listed is not None else space.sample(_NUM_RANDOM, rng))
    fitting = x[affordable.fits(x)] if len(x) else x
    if not len(fitting):
        x = data.untried(cheapest_points(space, x))
        fitting = x[affordable.fits(x)] if len(x) else x
    return np.asarray(fitting[0]) if len(fitting) else None
