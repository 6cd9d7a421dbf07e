"""What to recommend to the user: which of the tried configs is truly best, overall or within a cost, and the knee.

A measured score is the true one plus noise, so the highest of a hundred measured scores owes much to noise. Configs are
therefore compared by the posterior of their true score. The engine's score model infers it from their own runs and the
runs around them, with the noise that it estimates.

Notation
    contender    a distinct config that was trained to its end at least once. Stopped and failed trials are no
                 contenders, but the model learns from what they showed
    mu, sd       mean and standard deviation of a contender's noiseless score under the model, given all trials; a
                 config that was run k times counts with k measurements
    interval     the central 80 %, on the scale of scores (see `protein.engine.score_model.ScoreModel.estimates`)

The best expected config and the knee are both read off mu and the mean measured cost of each contender, less what other
programs have cost it, where that is known. These are the ones that every command and view should name (`best`, `knee`).

mu is capped at the highest measured score, because noise makes that at least as high as the best true score. Many tasks
also have a highest possible score, which the model does not know. Configs that are equal then are ranked by cost.

Only final scores count, not the points of curves that the search learns from. The difference between runs of one config
is in the whole curve of a run: to the model, three points of one run with a lucky seed would look like three
independent results. For the same reason, only the last score of a run counts where trials have continued each other.
The earlier ones remain contenders.

Of a very large sweep, a sample of the trials is enough: see `protein.engine.sample`.

Nothing here raises, whatever the observations are. Where the model cannot be fitted, contenders are compared by the
plain mean of their own scores, and `basis` names the reason.
"""

import contextlib
import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from protein.engine.gp import Array, single_thread
from protein.engine.history import History, by_whole_runs, complete_runs
from protein.engine.limit_model import LimitModel
from protein.engine.results import MODEL, Contender, spoken_of, within_limits
from protein.engine.sample import Sample
from protein.engine.score_model import ScoreModel, ScoreScale, fit_score_model
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import Estimate, Limit, Observation, Params

_NUM_BEST = 24  # best expected contenders of a sample, beside those that are spoken of


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Learnt:
    """The score model of a sweep and what it expects of each contender. For arguments see `contenders`."""

    space: Space
    score: ScoreModel
    contenders: tuple[Contender, ...]
    basis: str  # that of the contenders


def learn(
    space: Space,
    observations: Sequence[Observation],
    sample: Sample | None = None,
    start: Params | None = None,
    limits: Sequence[Limit] = (),
) -> Learnt | None:
    """Returns the model and the contenders, which are those of `contenders`; None where there is no such model."""
    if not complete_runs(space, observations)[0]:
        return None
    try:
        with single_thread(), np.errstate(all="ignore"):
            model = fitted(space, observations, sample)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):
        return None
    found = contenders(space, observations, sample, model=model, start=start, limits=limits)
    if not found or not found[0].basis.startswith(MODEL):
        return None
    return Learnt(space=space, score=model, contenders=tuple(found), basis=found[0].basis)


def contenders(
    space: Space,
    observations: Sequence[Observation],
    sample: Sample | None = None,
    *,
    model: ScoreModel | None = None,
    start: Params | None = None,
    limits: Sequence[Limit] = (),
) -> list[Contender]:
    """Returns every distinct config that was trained to its end, in the order in which they first were.

    Of a sample, these are the ones that some question about a recommendation names, and the best expected ones: an
    interval takes three times as long as an expected score, and nobody asks for those of the others.

    Args:
        space: what was searched; observations that it cannot read are left out.
        observations: of one sweep, in any state, oldest first; scores are to be maximised.
        sample: where the observations are a part of the sweep's: how the model learns as it would from all.
        model: what `fitted` returned for the same observations, where the caller has it; None: it is fitted here.
        start: the initial config, which is never left out.
        limits: on what trials measure beside the score. Each contender then has the probability that it keeps them.
    """
    groups, x = complete_runs(space, observations)
    calm = by_whole_runs(observations)
    if not groups:
        return []
    keeps = _keeps(space, observations, sample, x, limits)
    try:
        with single_thread(), np.errstate(all="ignore"):
            model = model or fitted(space, observations, sample)
            if sample is not None:
                values = [
                    min(value, model.measured_range[1]) for value in model.expected(x)
                ]  # as `_posterior` has them
                kept = _spoken_of(values, observations, groups, start, keeps)
                groups, x, keeps = [groups[i] for i in kept], x[kept], [keeps[i] for i in kept]
            scores, basis = _posterior(model, x)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        scores = _plain(observations, groups)
        basis = f"mean of its own runs, the score model failed ({type(error).__name__})"
    found = [
        Contender(
            params=observations[group[0]].params,
            score=score,
            expected_cost_seconds=_cost_seconds(calm, group),
            trials=tuple(group),
            measured=tuple(_score(observations[i]) for i in group),
            basis=basis,
            keeps=probability,
        )
        for group, score, probability in zip(groups, scores, keeps, strict=True)
    ]
    return sorted(found, key=lambda contender: contender.trials)


def fitted(space: Space, observations: Sequence[Observation], sample: Sample | None = None) -> ScoreModel:
    """Returns the score model of the recommendation. Arguments as of `contenders`.

    Raises:
        ValueError, ArithmeticError, LinAlgError: it cannot be fitted, for example because there is no score.
    """
    taught = observations if sample is None else [o for o in observations if o.number in sample.taught]
    scale = None if sample is None else ScoreScale.of(sample.scores)
    data = History.of(space, taught, []).one_of_each_run()
    if not len(data.scores):
        raise ValueError("there is no score")
    return fit_score_model(space, data, EngineSettings(), averaged=True, scale=scale)


def _keeps(
    space: Space,
    observations: Sequence[Observation],
    sample: Sample | None,
    x: Array,
    limits: Sequence[Limit],
) -> list[float | None]:
    """Returns the probability that another run at each of `n x d` points keeps all limits; None: nothing is known."""
    taught = observations if sample is None else [o for o in observations if o.number in sample.taught]
    with contextlib.suppress(ValueError, ArithmeticError, np.linalg.LinAlgError):
        if limits:
            with single_thread(), np.errstate(all="ignore"):
                data = History.of(space, taught, []).one_of_each_run()
                model = LimitModel.fit(space, limits, data.x_scored, data.metrics)
                if model.models:
                    return list(map(float, model.p_holds(x)))
    return [None] * len(x)


def _spoken_of(
    values: Sequence[float],
    observations: Sequence[Observation],
    groups: Sequence[Sequence[int]],
    start: Params | None,
    keeps: Sequence[float | None],
) -> list[int]:
    """Returns which of n contenders are wanted of a sample, in order. `values`, `n`, are their expected scores."""
    calm = by_whole_runs(observations)
    costs = [_cost_seconds(calm, group) for group in groups]
    measured = [max(_score(observations[i]) for i in group) for group in groups]
    kept = spoken_of(values, costs, measured, keeps)
    able = within_limits(keeps)
    kept.update(sorted(able, key=lambda i: -values[i])[:_NUM_BEST])
    if start is not None:
        kept.update(i for i, group in enumerate(groups) if dict(observations[group[0]].params) == dict(start))
    return sorted(kept)


def _cost_seconds(observations: Sequence[Observation], group: Sequence[int]) -> float:
    return math.fsum(observations[i].calm_seconds / len(group) for i in group)


def _posterior(model: ScoreModel, x: Array) -> tuple[list[Estimate], str]:
    """Returns the posterior of the true scores at `n x d` points, and where it comes from."""
    estimates = model.estimates(x, measured=False)
    _, highest = model.measured_range
    estimates = [Estimate(value=min(one.value, highest), low=min(one.low, highest), high=one.high) for one in estimates]
    fallback = model.process.fallback
    return estimates, f"{MODEL} ({fallback})" if fallback else MODEL


def _plain(observations: Sequence[Observation], groups: Sequence[Sequence[int]]) -> list[Estimate]:
    """Returns plain means, with intervals from repeated runs, or from the spread of all scores where there are none."""
    scores = [[_score(observations[i]) for i in group] for group in groups]
    means = [_mean(own) for own in scores]
    repeated = [value - mean for own, mean in zip(scores, means, strict=True) if len(own) > 1 for value in own]
    overall = _mean([value for own in scores for value in own])
    deviations = repeated or [value - overall for own in scores for value in own]
    spread = max(abs(deviation) for deviation in deviations)  # no squares, which overflow for scores of 10^200
    return [
        Estimate(value=mean, low=mean - spread / math.sqrt(len(own)), high=mean + spread / math.sqrt(len(own)))
        for own, mean in zip(scores, means, strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(value / len(values) for value in values)


def _score(observation: Observation) -> float:
    assert observation.score is not None
    return observation.score
