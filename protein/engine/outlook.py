"""What more budget buys: by how much the best score and the front are expected to rise when the sweep goes on.

Notation
    f, mu      true score of a config under the score model of final scores alone, and its posterior mean
    n, T       contenders (distinct configs that were trained to their end), and seconds of training spent so far
    best       the highest mu of a contender: what is recommended
    s          best less the median mu of the contenders: how far the sweep has come
    EI(x)      E max(0, f(x) - best) of a candidate x, and c(x) its expected cost in seconds
    price      max_x EI(x) / (c(x) + c0): the highest price of a second, in score units, at which one more trial would
               pay. c0 is a small share of T, the price floor of the search
    B          further seconds of training

Opening Pandora's box at a price of p a second, the Gittins index g(x) solves E max(0, f(x) - g) = p c(x), and one stops
when no index is above the best in hand. All indices fall below it at the same moment: when p is above `price`. So
`price` is that rule's answer to "shall I stop?". It is what one trial is worth. What a long search is worth also
depends on the sweep's own past, which knows what the model does not. The rate is the geometric mean of both, per trial:

    expected rise of the best score after B seconds = BEST B sqrt(price / n * s / T)

The same with `FRONT` for the front: the mean rise of the best score at cost <= t, over ln t from the cheapest to the
most expensive contender. This is the growth of the hypervolume, over the width of that range.

Rises are those of true scores. Where the next recommendation is worse by bad luck, that is a rise of 0. In most short
spans nothing better is found, and now and then much, so the central 80 % have their lower end at 0 anyway: the interval
is from 0 to the 80 % quantile, `BEST_80` or `FRONT_80` times the expected rise. The four numbers were fitted for B from
T / 10 to T, all sources of tasks counting alike (`benchmarks/engine/outlook.py`, docs/decisions/engine.md).

Nothing here depends on the order of the trials, except `hindsight`.

Source: Xie, Astudillo, Frazier, Scully and Terenin, Cost-aware Bayesian Optimization via the Pandora's Box Gittins
Index (2024), section 3; Weitzman, Optimal Search for the Best Alternative (1979). The geometric mean is ours.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from protein.engine.acquisition import log_expected_improvement
from protein.engine.candidates import spread
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array, single_thread
from protein.engine.history import History, complete_runs
from protein.engine.pareto import MIN_COST_SECONDS, front_indices
from protein.engine.results import BEST, FRONT, Outlook, Rise
from protein.engine.sample import Sample
from protein.engine.score_model import ScoreModel, ScoreScale, fit_score_model
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import Limit, Observation, TrialEnd, TrialState, broken

MIN_CONTENDERS = 8  # fewer tell too little
_MOMENTS = (1 / 4, 1 / 2, 3 / 4)  # of what was spent, from which `hindsight` looks ahead by the first of them


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Hindsight:
    """An earlier outlook, and what came of it, as today's model sees it."""

    after_seconds: float  # of training, when it was made
    seconds: float  # that it looks ahead
    forecast: Rise  # of the best score
    rise: float

    @property
    def inside(self) -> bool:
        return self.rise <= self.forecast.high


def outlook(
    space: Space, history: Sequence[Observation], highest: float = math.inf, sample: Sample | None = None
) -> Outlook | None:
    """Returns what more budget is expected to buy; None while too few configs were trained to their end.

    Args:
        space: what is searched; observations that it cannot read are left out.
        history: the finished trials in any order; scores are to be maximised.
        highest: the highest possible score; infinite where it is not known.
        sample: where the history is a part of the sweep's: how the rest counts.

    Raises:
        ArithmeticError, ValueError, LinAlgError: the models cannot be fitted.
    """
    with single_thread(), np.errstate(all="ignore"):
        if sample is not None:
            history = [o for o in history if o.number in sample.taught]
        groups, x_known = complete_runs(space, history)
        if len(groups) < MIN_CONTENDERS:
            return None
        settings = EngineSettings()
        data = History.of(space, history, [])
        num_known, spent_seconds, weights = len(groups), data.spent_seconds, np.ones(len(groups))
        if sample is not None:
            num_known, spent_seconds = sample.num_complete, sample.spent_seconds
            in_top = np.array([history[group[0]].number in sample.top for group in groups])
            weights = np.where(in_top, 1.0, sample.rest_weight)
        scale = None if sample is None else ScoreScale.of(sample.scores)
        score = fit_score_model(space, data, settings, scale=scale)
        known, _ = score.predict(x_known)
        cost = np.array([math.fsum(history[i].run_seconds for i in group) / len(group) for group in groups])
        best = float(np.max(known))
        centers = [*front_indices(known, cost)[::-1].tolist(), *np.argsort(-known, kind="stable")[:5].tolist()]
        x_centers = x_known[list(dict.fromkeys(centers))[: settings.num_centers]]
        x = data.untried(spread(space, x_centers, settings, np.random.default_rng(0)))
        cost_model = CostModel.fit(space, data.x_scored, data.costs, on_gpu=data.on_gpu)
        price = _price(score, cost_model, x, best, settings, spent_seconds / data.slowdown) / data.slowdown
        best_score = score.score_at(best)
        come = best_score - score.score_at(_median(known, weights))
        rate = math.sqrt(max(price * come, 0.0) / (num_known * spent_seconds)) if spent_seconds > 0 else 0.0
        if not (math.isfinite(rate) and math.isfinite(best_score)):
            raise ArithmeticError("the outlook is not finite")
        return Outlook(
            best_per_second=BEST * rate,
            front_per_second=FRONT * rate,
            spent_seconds=spent_seconds,
            room=max(highest - best_score, 0.0),
            front_room=_front_room([highest - score.score_at(z) for z in known.tolist()], cost),
        )


def without_broken(history: Sequence[Observation], limits: Sequence[Limit]) -> list[Observation]:
    """Returns a history in which the trials that have broken a limit have no score, as failed ones.

    Their cost counts, and what they scored does not: it is no score that the sweep is after.
    """
    return [
        dataclasses.replace(one, state=TrialState.FAILED, end=TrialEnd.FAILED, score=None)
        if one.state is not TrialState.FAILED and broken(limits, one.metrics)
        else one
        for one in history
    ]


def hindsight(space: Space, history: Sequence[Observation], highest: float = math.inf) -> list[Hindsight]:
    """Returns what would have been forecast at three moments of a sweep, and what came; none while that is too early.

    What came is the difference between the expected scores, by today's model, of the configs recommended then and now.

    Args:
        space: what was searched.
        history: the finished trials, in the order in which they ended.
        highest: the highest possible score; infinite where it is not known.

    Raises:
        ArithmeticError, ValueError, LinAlgError: the models cannot be fitted.
    """
    end = np.cumsum([observation.cost_seconds for observation in history])
    if not len(end) or not end[-1] > 0 or len(complete_runs(space, history)[0]) < MIN_CONTENDERS:
        return []
    found, span = [], _MOMENTS[0] * float(end[-1])
    with single_thread(), np.errstate(all="ignore"):
        today = fit_score_model(space, History.of(space, history, []), EngineSettings())
        for share in _MOMENTS:
            moment = share * float(end[-1])
            before, after = (history[: int(np.searchsorted(end, t, side="right"))] for t in (moment, moment + span))
            forecast = outlook(space, before, highest)
            if forecast is None:
                continue
            now, then = (min(_expected_today(space, today, trials), highest) for trials in (after, before))
            rise = max(now - then, 0.0)
            found.append(Hindsight(after_seconds=moment, seconds=span, forecast=forecast.best(span), rise=rise))
    return found


def _front_room(rooms: Sequence[float], costs: Array) -> float:
    """Returns by how much the front could rise on average over ln cost, given what is left of each of n contenders."""
    order = np.argsort(costs, kind="stable")
    left = np.maximum(np.minimum.accumulate(np.asarray(rooms)[order]), 0.0)
    widths = np.diff(np.log(np.maximum(costs[order], MIN_COST_SECONDS)))
    if math.isinf(left[0]) or not widths.sum() > 0:
        return float(left[-1])
    return float(left[:-1] @ widths / widths.sum())


def _price(
    score: ScoreModel, cost: CostModel, x: Array, best: float, settings: EngineSettings, spent_seconds: float
) -> float:
    """Returns the highest price of a second, in score units, at which one of m candidates, `m x d`, would pay.

    Seconds are those of a calm machine.
    """
    if not len(x):
        return 0.0
    mean, sd = score.predict(x)
    log_cost, _ = cost.predict(x)
    log_gain = log_expected_improvement(mean, sd, np.full(len(x), best))
    seconds = np.exp(log_cost) + settings.price_floor * spent_seconds
    top = int(np.argmax(log_gain - np.log(seconds)))
    # In score units at the best score: elsewhere the scale may be another. Beyond an outlier it is exponential.
    gain = score.score_at(best + math.exp(float(log_gain[top]))) - score.score_at(best)
    return gain / float(seconds[top])


def _median(values: Array, weights: Array) -> float:
    """Returns the weighted median of `n >= 1` values; with equal weights it is the median."""
    if np.all(weights == weights[0]):
        return float(np.median(values))
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2.0)])


def _expected_today(space: Space, today: ScoreModel, history: Sequence[Observation]) -> float:
    """Returns the expected score, by today's model, of the config that was recommended after a history."""
    _, x = complete_runs(space, history)
    then = fit_score_model(space, History.of(space, history, []), EngineSettings())
    recommended = x[int(np.argmax(then.predict(x)[0]))]
    return today.score_at(float(today.predict(recommended[None, :])[0][0]))
