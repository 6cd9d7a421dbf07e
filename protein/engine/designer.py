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
from numpy.typing import NDArray

from protein.engine.acquisition import cost_levels, front_at, log_value
from protein.engine.beliefs import Beliefs
from protein.engine.budget import AffordableCost, cheapest_points
from protein.engine.candidates import (
    all_points,
    believed,
    initial_points,
    interleaved,
    ladders,
    middle,
    neighbours,
    other_choices,
    spread,
)
from protein.engine.continuation import LEAST_GROWTH, Continuable, rest_seconds
from protein.engine.failure_model import FailureModel
from protein.engine.gp import Array, single_thread
from protein.engine.history import History, keys
from protein.engine.limit_model import LimitModel
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.engine.score_model import fit_score_model
from protein.engine.settings import EngineSettings
from protein.engine.stopping import reason_to_stop
from protein.engine.warm_start import SourceSweep, beginnings
from protein.errors import UsageError
from protein.space import Space
from protein.spelling import counted
from protein.types import Budget, Estimate, Limit, Measurement, Observation, Params, Suggestion, SuggestionKind

_logger = logging.getLogger(__name__)
_NUM_RANDOM = 256  # points drawn to find one random point that is new and fits the budget
_INITIAL_CONFIG = "initial config"
_NUM_LOOKED_THROUGH = 4  # next points of the design; without a cost parameter, the cheapest of them is taken
_MIN_COSTS = 3  # with fewer measured costs, a prediction without a cost parameter is a guess
_FADED = 0.05  # with the default fade after 200 trials; below this, beliefs are no longer looked at
_MAX_LEAST_P_OK = 0.9  # the highest p_ok that is required
_UNSAFE_PENALTY = 1e6  # penalty on the log value for each unit by which p_ok is too low


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
        limits: Sequence[Limit] = (),
    ) -> None:
        """See `protein.sweep.methods.make_designer`."""
        self._space, self._settings, self._limits = space, settings, tuple(limits)
        if start is None:
            self._start = space.from_unit(middle(space))
            self._start_kind, self._start_origin = SuggestionKind.INITIAL_DESIGN, "the middle of every range"
        else:
            self._start = space.snap(start)
            moved = "" if self._start == dict(start) else ", moved into the space"
            self._start_kind, self._start_origin = SuggestionKind.INITIAL_CONFIG, _INITIAL_CONFIG + moved
        self._x_start = space.canonical(space.to_unit(self._start)[None, :])[0]
        self._listed = all_points(space)
        self._beliefs = Beliefs.of(space, settings.belief_doubt)
        self._initial = initial_points(
            space,
            seed=seed,
            cost_share=settings.initial_cost_share,
            start=self._x_start,
            pull=0.0 if start is None else settings.initial_pull,
            beliefs=self._beliefs,
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
                f"of the {counted(sum(map(len, warm_start)), 'trial')} of the warm start none has a score and lies in"
                " this space;"
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
            origin = (
                f"initial design {position + 1}, until {counted(self._num_initial, 'trial has', 'trials have')} ended"
            )
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
                beliefs=self._beliefs,
                continuable=Continuable.of(self._space, history, data.x_running),
                limits=self._limits,
                rng=rng,
            )
            pick = search.pick()
        except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
            _logger.warning("the models failed, falling back to a random point", exc_info=True)
            x = _random_point(self._space, data, affordable, self._listed, rng)
            origin = f"random point, the models failed ({type(error).__name__}: {error})"
            return _suggestion(self._space, x, SuggestionKind.FALLBACK, origin, affordable)
        return None if pick is None or affordable.should_wait(pick.predicted_cost_seconds) else pick


class Search:
    """The model phase of one suggestion: fits the models, rates candidates, and chooses the most valuable one."""

    def __init__(
        self,
        space: Space,
        data: History,
        affordable: AffordableCost,
        settings: EngineSettings,
        *,
        start: Array,
        listed: Array | None,
        sources: Sequence[SourceSweep],
        beliefs: Beliefs | None,
        continuable: Continuable,
        limits: Sequence[Limit] = (),
        rng: np.random.Generator,
    ) -> None:
        """Fits the models.

        Args:
            space: the space.
            data: the sweep so far, with at least one score.
            affordable: what the next trial may cost.
            settings: the engine's settings.
            start: the initial config, or where the sweep began without one, `d`.
            listed: every point of a space that has few, `n x d`, or None.
            sources: the source sweeps.
            beliefs: of the user; None: there are none.
            continuable: the finished trials that can be continued.
            limits: on what trials measure beside the score.
            rng: source of randomness.
        """
        assert affordable.model is not None
        self._space, self._data, self._affordable, self._settings, self._rng = space, data, affordable, settings, rng
        self._start, self._listed = start, listed
        self._cost = affordable.model
        self._score = fit_score_model(space, data, settings, [source.scores for source in sources])
        # Every second suggestion ignores beliefs. Without results from elsewhere, nothing could contradict them.
        self._belief_power = settings.belief_fade / max(data.num_trials - len(data.x_running), 1)
        follows = self._belief_power >= _FADED and data.num_trials % settings.belief_every == 0
        self._beliefs = (
            beliefs.tested(self._score, data.x_scored, settings) if beliefs is not None and follows else None
        )
        # Where no source sweep makes the new scores much likelier, only costs of them are used.
        self._source = None if self._score.source is None else sources[self._score.source]
        self._failure, self._least_p_ok = self._failures()
        self._limits = LimitModel.fit(space, limits, data.x_scored, data.metrics)
        self._slowdown = affordable.slowdown  # models, levels and prices are in seconds of a calm machine
        self._log_price_floor, self._log_cautious_seconds = self._prices()
        self._x_front, self._front_mean, self._front_log_cost = self._known_points()
        self._keeps = self._limits.keeps(self._x_front)
        self._beaten_mean, self._beaten_log_cost = self._to_beat()
        self._able, self._x_longer, self._which_longer = self._longer_runs(continuable)

    def _failures(self) -> tuple[FailureModel, float]:
        """Returns the model of failures, and the least probability of a score that a new trial needs.

        Where scores rise up to a cliff, the score model never sees a score beyond it. There it predicts more than any
        log p_ok can outweigh. So a sweep with many failures requires safer points: the more failures, the safer.
        """
        settings, ok = self._settings, self._data.ok
        if not settings.failure_model:
            return FailureModel(self._space, 1.0, None), 0.0
        source_ends = None if self._source is None else self._source.ends
        model = FailureModel.fit(self._space, self._data.x_tried, ok, source=source_ends)
        failed = int(np.sum(~ok))
        share = failed / len(ok)
        many = failed >= settings.failures_allowed and share > settings.failure_share
        return model, min(2.0 * share, _MAX_LEAST_P_OK) if many else 0.0

    def _prices(self) -> tuple[float, float]:
        """Returns ln of what is added to the price of every trial, and ln of the most that one may cost for now.

        A trial also takes one of the trials that are still allowed. Where many seconds are left for few of them,
        expensive trials are no worse than cheap ones. A misleading source sweep must be recognised cheaply. So no trial
        may be expensive before this sweep has trials of its own.
        """
        settings = self._settings
        total = self._affordable.total_seconds / self._slowdown
        price = settings.price_floor * total + settings.slot_price * self._affordable.slot_seconds / self._slowdown
        log_cautious = math.inf
        if self._source is not None and self._data.num_trials < settings.cautious_trials and total > 0:
            log_cautious = math.log(settings.cautious_share * total)
        return math.log(price) if price > 0 else -math.inf, log_cautious

    def _known_points(self) -> tuple[Array, Array, Array]:
        """Returns the points of trials that gave a score or run, `n x d`, their mean score and ln of their cost, `n`.

        Running trials count as if they had the outcome that the model expects, so that the next trial looks elsewhere.
        """
        data = self._data
        log_cost = np.log(np.maximum(data.costs, MIN_COST_SECONDS))
        if self._cost.busy:  # a trial that was lucky with the machine is no cheaper than its config
            log_cost = self._cost.predict(data.x_scored)[0]
        if len(data.x_running):
            self._score = self._score.fantasize(data.x_running)
            log_cost = np.concatenate([log_cost, self._cost.predict(data.x_running)[0]])
        x = np.concatenate([data.x_scored, data.x_running])
        return x, self._score.mean(x), log_cost

    def _to_beat(self) -> tuple[Array, Array]:
        """Returns the mean score and ln cost, `m` each, of what has to be beaten.

        That is this sweep's trials, and the scores that the source sweep's front almost surely gives. Running that
        front again is no gain. Going beyond it is one. What breaks a limit need not be beaten. As long as everything
        does, the lowest score is to be beaten: any config that keeps the limits is a gain.
        """
        scores, log_cost, keeps = self._front_mean, self._front_log_cost, self._keeps
        if self._source is not None and len(self._source.x_front):
            mean, sd = self._score.predict(self._source.x_front)
            scores = np.concatenate([scores, mean - self._settings.source_front_margin * sd])
            log_cost = np.concatenate([log_cost, self._cost.predict(self._source.x_front)[0]])
            keeps = np.concatenate([keeps, self._limits.keeps(self._source.x_front)])
        if not keeps.any():
            keeps = np.arange(len(scores)) == int(np.argmin(scores))
        return scores[keeps], log_cost[keeps]

    def pick(self) -> Suggestion | None:
        """Returns the most valuable point that may be started, or None when none may."""
        centers = self._centers()
        x = self._listed if self._listed is not None else spread(self._space, centers, self._settings, self._rng)
        if self._beliefs is not None and self._listed is None:
            num_points = self._settings.num_believed
            x = np.concatenate([x, believed(self._space, self._beliefs, centers, num_points, self._rng)])
        x = self._startable(x)
        if not len(x):
            fresh = self._space.sample(64, self._rng)
            x = self._startable(cheapest_points(self._space, np.concatenate([centers, fresh])))
            if not len(x):
                return self._continuation(*self._levels(x), -math.inf)
        levels, front = self._levels(x)
        value = self._value(x, levels, front)
        for width in self._settings.refine_widths if self._listed is None else ():
            best = x[np.argsort(-value, kind="stable")[: self._settings.num_refined]]
            more = [neighbours(self._space, best, self._settings.num_refinements, (width / 3.0, width), self._rng)]
            more.append(ladders(self._space, best[:2], self._settings.num_rungs, self._rng))
            more_x = self._startable(np.concatenate(more))
            if len(more_x):
                x, value = np.concatenate([x, more_x]), np.concatenate([value, self._value(more_x, levels, front)])
        chosen = x[int(np.argmax(value))]
        swayed = self._beliefs is not None and int(np.argmax(value - self._sway(x))) != int(np.argmax(value))
        better = self._continuation(levels, front, float(np.max(value)))
        return better or self._suggestion(chosen, self._space.from_unit(chosen), self._reason(chosen, swayed))

    def _longer_runs(self, able: Continuable) -> tuple[Continuable, Array, NDArray[np.intp]]:
        """Returns trials that may go on, valid longer runs of them, `m x d`, and which trial each continues, `m`."""
        if self._settings.num_continued == 0 or not len(able.trials):
            return able, np.empty((0, self._space.num_dims)), np.empty(0, dtype=np.intp)
        promise = self._score.predict(able.x_unit)[0]
        if self._limits.models:
            promise = np.where(self._limits.keeps(able.x_unit), promise, float(np.min(promise)))
        able = able.most_promising(promise, self._settings.num_continued)
        # A generator of its own: what new trials are drawn does not depend on which trials may go on.
        x, which = able.ladders(self._settings.num_rungs, self._rng.spawn(1)[0])
        fresh = np.array([key not in self._data.taken for key in keys(x)], dtype=bool)
        x, which = x[fresh], which[fresh]
        if len(x):
            whole, behind = np.exp(self._cost.predict(x)[0]), able.behind[which]
            fits = self._affordable.fits(x, behind, able.clock_behind[which])
            fits &= np.log(rest_seconds(whole, behind)) <= self._log_cautious_seconds
            fits &= whole >= LEAST_GROWTH * able.paid[which]
            x, which = x[fits], which[fits]
        return able, x, which

    def _continuation(self, levels: Array, front: Array, value_of_new: float) -> Suggestion | None:
        """Returns the most valuable longer run of a finished trial, where it is worth more than the best new trial."""
        able, x, which = self._able, self._x_longer, self._which_longer
        if not len(x):
            return None
        value = self._value(x, levels, front, able.behind[which])
        best = int(np.argmax(value))
        if value[best] <= value_of_new:
            return None
        position, behind = int(which[best]), float(able.behind[which[best]])
        trial = able.trials[position]
        reason = f"{able.words(position, x[best])}: {self._reason(x[best])}"
        return self._suggestion(x[best], able.params(position, x[best]), reason, trial, behind)

    def _suggestion(
        self, x: Array, params: Params, reason: str, continued: Observation | None = None, behind: float = 0.0
    ) -> Suggestion:
        """Returns a point, `d`, with what is predicted for it; its origin is the reason and what went wrong in fits.

        Of its cost, the seconds that lie `behind`, on a machine without other programs, are paid already. They are
        those of the trial that is `continued`.
        """
        (score,) = self._score.estimates(x[None, :], measured=True, chosen=True)
        whole = self._affordable.estimate(x)
        assert whole is not None
        low, seconds, high = rest_seconds(
            np.array([whole.low, whole.value, whole.high]), np.array(self._slowdown * behind)
        ).tolist()
        fallbacks = [
            f"{name}: {process.fallback}"
            for name, process in (
                ("score model", self._score.process),
                ("cost model", self._cost.process),
                ("failure model", self._failure.process),
                *(("model of a limit", one.process) for one in self._limits.models),
            )
            if process is not None and process.fallback
        ]
        return Suggestion(
            params=params,
            kind=SuggestionKind.SEARCH if continued is None else SuggestionKind.CONTINUATION,
            origin=reason + "".join(f" ({fallback})" for fallback in fallbacks),
            predicted_score=score,
            predicted_cost_seconds=Estimate(value=seconds, low=low, high=high),
            continues=None if continued is None else continued.number,
            continued_seconds=0.0 if continued is None else continued.resumable_seconds or 0.0,
        )

    def _startable(self, x: Array) -> Array:
        x = self._data.untried(x)
        x = np.asarray(x[self._affordable.fits(x)]) if len(x) else x
        if len(x) and self._log_cautious_seconds < math.inf:
            cautious = x[self._cost.predict(x)[0] <= self._log_cautious_seconds]
            x = cautious if len(cautious) else x
        return x

    def _centers(self) -> Array:
        """The front as the model sees it, the best few at any cost, the initial config, the source sweep's best.

        With limits, front and best are of those that keep them. Beside these are the best few of all, because the best
        that keeps a limit often lies where it begins to hold, and those that most likely keep the limits.
        """
        kept = np.flatnonzero(self._keeps)
        front = kept[front_indices(self._front_mean[kept], np.exp(self._front_log_cost[kept]))][::-1]
        top = kept[np.argsort(-self._front_mean[kept], kind="stable")[:5]]
        near: list[int] = []
        if not self._keeps.all():
            near = np.argsort(-self._front_mean, kind="stable")[:2].tolist()
            near += np.argsort(-self._limits.p_holds(self._x_front), kind="stable")[:2].tolist()
        num_own = self._settings.num_centers - len(set(near))
        chosen = list(dict.fromkeys([*list(dict.fromkeys([*front.tolist(), *top.tolist()]))[:num_own], *near]))
        centers = np.concatenate([self._x_front[chosen], self._start[None, :]])
        return centers if self._source is None else np.concatenate([centers, self._source.x_best])

    def _levels(self, x: Array) -> tuple[Array, Array]:
        """Levels from the lowest to the highest cost that was measured or could be chosen, and the front at them."""
        mean, _ = self._cost.predict(np.concatenate([x, self._x_longer]))
        log_cost = np.concatenate([mean, self._front_log_cost])
        levels = cost_levels(float(np.min(log_cost)), float(np.max(log_cost)), self._settings.num_levels)
        return levels, front_at(levels, self._beaten_mean, self._beaten_log_cost, self._settings.front_floor)

    def _value(self, x: Array, levels: Array, front: Array, behind: Array | None = None) -> Array:
        mean, sd = self._score.predict(x)
        cost_mean, cost_sd = self._cost.predict(x)
        p_ok = self._failure.p_ok(x)
        value = log_value(
            mean,
            sd,
            cost_mean,
            cost_sd,
            p_ok * self._limits.p_holds(x) if self._limits.models else p_ok,
            levels=levels,
            front=front,
            top=float(np.max(self._beaten_mean)),
            cost_exponent=self._settings.cost_exponent,
            log_price_floor=self._log_price_floor,
            best_share=self._settings.best_share,
            highest=self._score.highest_z,
            log_price=None if behind is None else np.log(rest_seconds(np.exp(cost_mean), behind)),
        )
        value = value - _UNSAFE_PENALTY * np.maximum(self._least_p_ok - p_ok, 0.0)
        return value if self._beliefs is None else value + self._sway(x)

    def _sway(self, x: Array) -> Array:
        """Returns what the beliefs add to the value of candidates, `m`; 0 at their centres, below 0 elsewhere."""
        if self._beliefs is None:
            return np.zeros(len(x))
        return self._belief_power * self._beliefs.log_weight(x)

    def _reason(self, x: Array, swayed: bool = False) -> str:
        dropped = [] if self._beliefs is None else self._beliefs.dropped
        words = ", near what is believed" if swayed else ""
        words += f" (results contradict the belief about {', '.join(dropped)})" if dropped else ""
        return self._aim(x) + words

    def _aim(self, x: Array) -> str:
        log_cost = float(self._cost.predict(x[None, :])[0][0])
        seconds = format_seconds(self._slowdown * math.exp(log_cost))
        if not self._keeps.any():
            return f"no trial keeps the limits so far, towards them at {seconds}"
        means, log_costs = self._front_mean[self._keeps], self._front_log_cost[self._keeps]
        index = front_indices(means, np.exp(log_costs))
        cheapest, most_expensive = log_costs[index[0]], log_costs[index[-1]]
        if log_cost < cheapest - 0.1:
            return f"cheap probe at {seconds}"
        if log_cost > most_expensive + 0.1:
            return f"extending the front to {seconds}"
        return f"improving the front near {seconds}"


def format_seconds(seconds: float) -> str:
    """Returns a duration to about two digits, as in "0.4 s", "40 s", "12 min", "3.5 h"."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2.0 * size:
            return f"{float(f'{seconds / size:.2g}'):g} {unit}"
    return f"{float(f'{seconds:.2g}'):g} s"


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
