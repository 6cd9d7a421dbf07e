"""Which contender to run once more, on a fresh seed, and how sure it is by then which of them is best.

The recommended config is the best of many noisy ones. A few further runs of the likeliest contenders tell what is worth
more than its luck. They are chosen one after the other, each from the posterior that all runs before have given.

Notation
    z           scores on the model's scale (`protein.engine.score_model`)
    m, C        mean, `k`, and covariance, `k x k`, of the true z of k contenders, under the recommendation's model
    v, c        `k`, variance of one run's z around the true one, and expected seconds of one run
    delta       differences in z that do not count: `INDIFFERENCE` standard deviations of the sweep's scores
    leader      the contender that is recommended: the best expected one (`protein.engine.results.best`)

Who is in question. The leader; then, again and again, the contender whose addition raises E max z of those in question
the most, while it beats all of them by delta with a probability of `MIN_PROBABILITY` or more. So of ten configs that
are nearly the same, one is run.

When it ends. The leader is the best of those in question, or worse by less than delta, with probability `CONFIDENCE`
(the probability of good selection). True scores are taken to be no higher than the highest measured one, as in
`protein.engine.recommend`.

What is run next. The rival is the contender that beats the leader by more than delta with the highest probability. Of
these two, the one is run that tells more of their difference D for each second: one run of x takes

    cov(D, z[x])^2 / (C[x, x] + v[x])

from the variance of D. In simulation this needs as few runs as top-two Thompson sampling and the knowledge gradient,
and a quarter fewer than turns; where noise is large, fewer than both.

Sources: for the pair Kalyanakrishnan, Tewari, Auer and Stone, PAC Subset Selection in Stochastic Multi-armed Bandits
(2012), and Russo, Simple Bayesian Algorithms for Best-Arm Identification (2016); for the probability of good selection
and its indifference zone Eckman and Henderson, Posterior-Based Stopping Rules for Bayesian Ranking-and-Selection
Procedures (2022).
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from protein.engine.gp import Array, single_thread
from protein.engine.history import History, readable
from protein.engine.pareto import MIN_COST_SECONDS
from protein.engine.recommend import Learnt, learn
from protein.engine.results import Contender, best, recommendable
from protein.engine.sample import sampled
from protein.space import Space
from protein.types import Limit, Observation, TrialState

CONFIDENCE = 0.9
MIN_PROBABILITY = 0.05
INDIFFERENCE = 0.02
MAX_CONTENDERS = 5  # in question, where the user does not say how many
MAX_RUNS = 10  # of one contender, those of the search included
MAX_FAILURES = 2  # of a contender; then it is not run any more
MARGIN = 1.1  # times what a run is expected to cost must be left for it
_NUM_CANDIDATES = 64  # contenders that are looked at: those with the highest m + sd
_NUM_DRAWS = 4096
_LEAST_VARIANCE = 1e-300
_NUM_ROLLOUTS, _NUM_ROLLOUT_DRAWS = 16, 256  # courses of runs that are simulated to tell the price
_MAX_STEPS = 60  # of one course


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Posterior:
    """What is known of k contenders; see the head of this file. Immutable.

    Attributes:
        mean: m.
        covariance: C.
        noise: v.
        costs: c.
        left: `k`, how many runs of each may follow.
        highest: no true z is above it.
        delta: see the head of this file.
    """

    mean: Array
    covariance: Array
    noise: Array
    costs: Array
    left: NDArray[np.int64]
    highest: float = math.inf
    delta: float = INDIFFERENCE

    @property
    def leader(self) -> int:
        """The best expected contender; of equal ones the cheapest."""
        return int(np.lexsort((self.costs, -np.minimum(self.mean, self.highest)))[0])

    def surety(self, num_draws: int = _NUM_DRAWS, seed: int = 0) -> tuple[float, Array]:
        """Returns the probability that the leader is best, or worse by less than delta, and of each to be best, `k`."""
        draws = self.draws(num_draws, seed)
        top = draws.max(axis=1)
        is_top = draws >= top[:, None]
        each = (is_top / is_top.sum(axis=1, keepdims=True)).mean(axis=0)
        return float(np.mean(draws[:, self.leader] >= top - self.delta)), np.asarray(each)

    def next(self, remaining_seconds: float = math.inf) -> int | None:
        """Returns the contender to run: the leader or its likeliest rival; None where none can be run.

        Where the two can't be run any more, or for no longer than `remaining_seconds`, the next rival counts.
        """
        able = (self.left > 0) & (MARGIN * self.costs <= remaining_seconds)
        leader, variance = self.leader, np.diag(self.covariance)
        with_leader = self.covariance[leader]
        spread = np.sqrt(np.maximum(variance + variance[leader] - 2.0 * with_leader, _LEAST_VARIANCE))
        threat = (self.mean - self.mean[leader] - self.delta) / spread
        for rival in np.argsort(-threat, kind="stable"):
            pair = [x for x in (leader, int(rival)) if able[x]]
            if rival != leader and pair:
                told = (with_leader - self.covariance[rival]) ** 2 / (variance + self.noise) / self.costs
                return max(pair, key=lambda x: float(told[x]))
        return None

    def after(self, x: int, measured: float) -> "Posterior":
        """Returns them after one more run of contender `x`, with the z `measured`."""
        gain = self.covariance[:, x] / max(self.covariance[x, x] + self.noise[x], _LEAST_VARIANCE)
        left = self.left.copy()
        left[x] -= 1
        mean = self.mean + gain * (measured - self.mean[x])
        covariance = self.covariance - np.outer(gain, self.covariance[x])
        return dataclasses.replace(self, mean=mean, covariance=covariance, left=left)

    def draws(self, num: int, seed: int) -> Array:
        """Returns draws of the true z, `num x k`."""
        values, vectors = np.linalg.eigh(0.5 * (self.covariance + self.covariance.T))
        root = vectors * np.sqrt(np.maximum(values, 0.0))  # rounding may have made it a little less than positive
        normal = np.random.default_rng(seed).standard_normal((num, len(self.mean)))
        return np.asarray(np.minimum(self.mean + normal @ root.T, self.highest))

    def expected_seconds(self, remaining_seconds: float = math.inf) -> float:
        """Returns what the runs cost that follow until it is settled: the mean of simulated ones."""
        spent = []
        for seed, truth in enumerate(self.draws(_NUM_ROLLOUTS, 1)):
            now, seconds, rng = self, 0.0, np.random.default_rng([2, seed])
            for _ in range(_MAX_STEPS):
                x = now.next(remaining_seconds - seconds)
                if x is None or now.surety(_NUM_ROLLOUT_DRAWS)[0] >= CONFIDENCE:
                    break
                now = now.after(x, truth[x] + math.sqrt(self.noise[x]) * rng.standard_normal())
                seconds += float(self.costs[x])
            spent.append(seconds)
        return math.fsum(spent) / len(spent)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The contenders in question, the leader first, and how sure it is. Scores are to be maximised.

    Attributes:
        contenders: `k`.
        numbers: `k`, of the first trial of each.
        probabilities: `k`, that each is the best of them.
        sure: the probability that the leader is the best of them, or worse by less than `indifference`.
        indifference: delta, in score units.
        next: position of the contender to run once more; None: it is settled, or no run is possible.
        posterior: what all of that follows from.
    """

    contenders: tuple[Contender, ...]
    numbers: tuple[int | None, ...]
    probabilities: tuple[float, ...]
    sure: float
    indifference: float
    next: int | None
    posterior: Posterior

    @property
    def settled(self) -> bool:
        """Whether the leader is sure enough."""
        return self.sure >= CONFIDENCE


def question(
    space: Space,
    history: Sequence[Observation],
    *,
    num: int | None = None,
    under_seconds: float = math.inf,
    remaining_seconds: float = math.inf,
    limits: Sequence[Limit] = (),
) -> Question | None:
    """Returns what is in question after these trials; None where no config, or too little, is known.

    Args:
        space: what was searched.
        history: finished trials, confirmations included; scores are to be maximised.
        num: how many contenders are in question; None: those with a chance, `MAX_CONTENDERS` at most.
        under_seconds: contenders are expected to cost at most this.
        remaining_seconds: what further runs may cost in all.
        limits: on what trials measure; only what may be recommended with them is in question.
    """
    trials, sample = sampled(history, limits=limits)
    learnt = learn(space, trials, sample, None, limits)
    if learnt is None:
        return None
    slowdown = History.of(space, trials, []).slowdown
    try:
        with single_thread(), np.errstate(all="ignore"):
            return _asked(learnt, trials, slowdown, num, under_seconds, remaining_seconds)
    except (ValueError, ArithmeticError, np.linalg.LinAlgError):  # a posterior that is not finite
        return None


def _asked(
    learnt: Learnt,
    trials: Sequence[Observation],
    slowdown: float,
    num: int | None,
    under_seconds: float,
    remaining_seconds: float,
) -> Question | None:
    leader = best(learnt.contenders, under_seconds)
    if leader is None:
        return None
    space, model = learnt.space, learnt.score
    found = [leader]
    able = [one for one in recommendable(learnt.contenders) if one.expected_cost_seconds <= under_seconds]
    others = [one for one in able if one is not leader]
    if others:
        mean, sd = model.predict(_places(space, others))
        order = np.argsort(-(mean + sd), kind="stable")[: max(_NUM_CANDIDATES, num or 0)]
        found += [others[i] for i in order]
    x = _places(space, found)
    mean, covariance = model.mean(x), model.covariance(x)
    failures = _failures(space, trials, found)
    left = [0 if failed >= MAX_FAILURES else MAX_RUNS - one.runs for one, failed in zip(found, failures, strict=True)]
    everyone = Posterior(
        mean=mean,
        covariance=covariance,
        noise=model.noise_at(x),
        costs=slowdown * np.array([max(one.expected_cost_seconds, MIN_COST_SECONDS) for one in found]),
        left=np.maximum(left, 0),
        highest=float(model.scale.to_z(np.array([model.measured_range[1]]))[0]),
    )
    chosen = _in_question(everyone, num)
    posterior = dataclasses.replace(
        everyone,
        mean=mean[chosen],
        covariance=covariance[np.ix_(chosen, chosen)],
        noise=everyone.noise[chosen],
        costs=everyone.costs[chosen],
        left=everyone.left[chosen],
    )
    sure, each = posterior.surety()
    return Question(
        contenders=tuple(found[i] for i in chosen),
        numbers=tuple(trials[found[i].trials[0]].number for i in chosen),
        probabilities=tuple(each.tolist()),
        sure=sure,
        indifference=posterior.delta * model.scale.sd,
        next=None if sure >= CONFIDENCE else posterior.next(remaining_seconds),
        posterior=posterior,
    )


def _in_question(posterior: Posterior, num: int | None) -> list[int]:
    """Returns positions of those of n contenders that are in question; the first of the n is the leader."""
    draws = posterior.draws(_NUM_DRAWS, 0)
    chosen, highest = [0], draws[:, 0]
    while len(chosen) < min(MAX_CONTENDERS if num is None else num, draws.shape[1]):
        over = draws - highest[:, None]
        gains = np.maximum(over, 0.0).mean(axis=0)
        gains[chosen] = -1.0
        if num is None:
            gains[(over > posterior.delta).mean(axis=0) < MIN_PROBABILITY] = -1.0
        following = int(np.argmax(gains))
        if gains[following] < 0.0:
            break
        chosen.append(following)
        highest = np.maximum(highest, draws[:, following])
    return chosen


def _places(space: Space, found: Sequence[Contender]) -> Array:
    return space.canonical(space.to_unit_many([one.params for one in found]))


def _failures(space: Space, trials: Sequence[Observation], found: Sequence[Contender]) -> list[int]:
    """Returns how often each contender has failed."""
    failed = [o.params for o in trials if o.state is TrialState.FAILED and o.end is not None and o.end.teaches]
    read, _ = readable(space, failed, failed)
    keys = [space.key(params) for params in read]
    return [keys.count(space.key(one.params)) for one in found]
