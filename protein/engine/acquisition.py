"""The value of a candidate: the expected improvement of the whole Pareto front, and of its top, for its price.

Notation
    x         a candidate, one of m
    z(x)      its score on the models' scale ~ N(mu, sd^2), without noise
    ln c(x)   its log cost in seconds ~ N(mu_c, sd_c^2), as it will be measured
    p_ok(x)   probability that it ends with a score, and keeps the limits on what it measures
    t_j       J levels of log cost, evenly spaced
    f(t)      the best posterior mean among the trials that cost at most e^t: the model's estimate of the front
    f*        the same at whatever cost
    EI(x; f)  E max(0, z(x) - f) = sd h((mu - f) / sd),  h(u) = phi(u) + u Phi(u)
    U         the highest possible score, where it is known. A score is then min(z, U), and its expected improvement
              EI(x; f) - EI(x; U)
    b         share of the best score at whatever cost, in a candidate's value
    a         cost exponent: 0 ignores cost, 1 is improvement per second
    c0        price floor in seconds: a small share of the whole budget; where the number of trials is limited, also
              what is left of the budget for each of them

The value of a candidate is

    log { (1 - b) mean_j [ P(ln c(x) <= t_j) EI(x; f(t_j)) ] + b EI(x; f*) }
        - a ln(exp(mu_c(x)) + c0) + log p_ok(x)

A trial that continues an earlier one has the cost of its whole run in the first term, and pays only the rest.

A trial that costs e^t can raise the front at every level from t upwards, by the amount by which it beats the front
there. The mean over levels is the expected growth of the hypervolume under (score, log cost), with an uncertain cost. A
cheap trial is credited for all more expensive levels, an expensive trial only for the levels that it reaches. By that
alone, the most expensive trials would hardly count: they reach the last levels only. But users also want the best score
there is, at whatever cost. So this has a share of its own, b.

Dividing by (c + c0)^a prices the trial. Without c0 the budget can be wasted on trials that cost almost nothing and
teach little, above all while scores are flat or noisy.

Everything is computed in logarithms. Far from the data, EI is below the smallest float64 long before it stops ranking
candidates.

Source: log EI after Ament et al., Unexpected Improvements to Expected Improvement (2023), section 4.1.
"""

import functools
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import erfcx, log_ndtr, logsumexp, ndtr

Array = NDArray[np.float64]

NUM_LEVELS = 24
COST_EXPONENT = 0.4
_LOG_SQRT_2PI = 0.5 * math.log(2.0 * math.pi)
_LEAST_SHARE = 1e-300  # of an improvement that is possible; its logarithm stays finite
_LEAST_ROOM = 1e-3  # standard deviations of the scores from the best mean to the highest possible score
_SERIES_FROM = 100.0  # here both forms of log_h are exact to 1e-10


def log_h(u: Array) -> Array:
    """Returns log(phi(u) + u Phi(u)), elementwise; error below 1e-10 relative to it for u from -1e4 to 1e6."""
    u = np.asarray(u, dtype=np.float64)
    middle = np.maximum(u, -1.0)
    result = np.log(np.exp(-0.5 * middle * middle - _LOG_SQRT_2PI) + middle * ndtr(middle))
    low = u < -1.0
    v = np.maximum(-u[low], 1.0)
    far = v > _SERIES_FROM
    # phi(u) (1 - v Phi(-v) / phi(v)), the ratio by erfcx; where 1 - ratio cancels, its series in 1 / v^2.
    near_v, far_v = np.minimum(v, _SERIES_FROM), np.maximum(v, _SERIES_FROM)
    near = np.log(1.0 - math.sqrt(math.pi / 2.0) * near_v * erfcx(near_v / math.sqrt(2.0)))
    series = np.log1p(-3.0 / far_v**2 + 15.0 / far_v**4) - 2.0 * np.log(far_v)
    result[low] = -0.5 * v * v - _LOG_SQRT_2PI + np.where(far, series, near)
    return np.asarray(result)


def log_expected_improvement(mean: Array, sd: Array, best: Array) -> Array:
    """Returns log E max(0, N(mean, sd^2) - best), broadcast over the three; sd above 0."""
    return np.asarray(np.log(sd) + log_h((mean - best) / sd))


def log_possible_improvement(mean: Array, sd: Array, best: Array, highest: float) -> Array:
    """Returns log E max(0, min(N(mean, sd^2), highest) - best), broadcast over the three; best below highest."""
    below, beyond = log_expected_improvement(mean, sd, best), log_expected_improvement(mean, sd, np.asarray(highest))
    return np.asarray(below + np.log(np.maximum(-np.expm1(np.minimum(beyond - below, 0.0)), _LEAST_SHARE)))


def cost_levels(low: float, high: float, num_levels: int = NUM_LEVELS) -> Array:
    """Returns the levels t_j of log cost, `J`: the middles of even steps from `low` to `high`."""
    width = max(high - low, 1e-3)
    levels: Array = low + width * (np.arange(num_levels) + 0.5) / num_levels
    return levels


def front_at(levels: Array, beaten_mean: Array, beaten_log_cost: Array, floor: float = 0.0) -> Array:
    """Returns f(t_j), `J`: the best posterior mean at log cost <= t_j, of the `n` points that have to be beaten.

    It never falls below the quantile `floor` of the means. Where the front is lower than that, and at costs below that
    of the cheapest point, a new trial counts only for what it gives above an ordinary one.
    """
    reached = beaten_log_cost[None, :] <= levels[:, None]
    best = np.max(np.where(reached, beaten_mean[None, :], -np.inf), axis=1)
    return np.asarray(np.maximum(best, np.quantile(beaten_mean, floor)))


def log_value(
    mean: Array,
    sd: Array,
    cost_mean: Array,
    cost_sd: Array,
    p_ok: Array,
    *,
    levels: Array,
    front: Array,
    top: float,
    cost_exponent: float = COST_EXPONENT,
    log_price_floor: float = -math.inf,
    log_price: Array | None = None,
    best_share: float = 0.0,
    highest: float = math.inf,
) -> Array:
    """Returns the value of m candidates, `m`, in logarithms: the formula at the head of this file.

    Args:
        mean, sd: of z, `m` each, sd > 0.
        cost_mean, cost_sd: of ln c, `m` each, cost_sd > 0.
        p_ok: `m`, in (0, 1].
        levels, front: t_j and f(t_j), `J` each.
        top: f*.
        cost_exponent: a, 0 or more.
        log_price_floor: ln c0; minus infinity for none.
        log_price: `m`, ln of what is to be paid, where that is less than the cost; None: the expected cost.
        best_share: b, in [0, 1).
        highest: U; where the front has reached it, it is taken to be a little higher, so that candidates still differ.
    """
    log_reaches = log_ndtr((levels[None, :] - cost_mean[:, None]) / cost_sd[:, None])
    improvement = log_expected_improvement
    if highest < math.inf:
        highest = max(highest, float(np.max(front)) + _LEAST_ROOM, top + _LEAST_ROOM)
        improvement = functools.partial(log_possible_improvement, highest=highest)
    log_gain = improvement(mean[:, None], sd[:, None], front[None, :])
    log_gains = logsumexp(log_reaches + log_gain, axis=1) - math.log(len(levels))
    if best_share > 0:
        log_best = improvement(mean, sd, np.asarray(top))
        log_gains = np.logaddexp(math.log(1.0 - best_share) + log_gains, math.log(best_share) + log_best)
    log_price = cost_mean if log_price is None else log_price
    return np.asarray(log_gains - cost_exponent * np.logaddexp(log_price, log_price_floor) + np.log(p_ok))
