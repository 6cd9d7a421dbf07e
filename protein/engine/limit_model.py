"""Whether a trial will keep the limits on what it measures (`memory_gb <= 8`), predicted before it is run.

Notation
    v        a measured value, b the bound that it must keep
    m(v)     how far v is within its limit: b - v where b is an upper bound, v - b where it is a lower one; of
             logarithms where all values and the bound are above 0 and the values span more than a factor of `_DECADE`.
             Where a value is exactly b, as whole numbers often are, m = 0 would say even odds. So b is moved half of
             the way to the next value, outwards where the limit holds at b (`<=`), and inwards where it does not (`<`)
    t(v)     m in units of the median |m|, with what is beyond 2 of them compressed by the logarithm: whether a value
             lies within is what matters, and not how far beyond it is. t > 0 where the limit holds
    y        t, standardised: the target of a Gaussian process beside a Bayesian ridge regression, since memory and
             latency mostly rise with a parameter over its whole range

The probability is that of one more run, its noise included. Limits on several metrics are taken to be independent given
the params.

Source: Gardner, Kusner, Xu, Weinberger and Cunningham, Bayesian Optimization with Inequality Constraints (2014); the
expected improvement of a candidate is multiplied by the probability (section 3), and what has to be beaten is the best
of those that keep the limits.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from protein.engine.gp import LENGTHSCALE_SD, Array, GaussianProcess, Prior, fit
from protein.space import Space
from protein.types import Limit

LEAST = 0.5  # probability from which on a trial counts as one that keeps the limits, in the search
_DECADE = 10.0
_LINEAR_UNTIL = 2.0  # of t
_LARGEST = 1e150  # size of a value, beyond which differences could overflow
_LEAST_LOG = -650.0  # ln of about the least probability that float64 holds
_MAX_POINTS = 300  # such values are smoother than scores: more points make the model slower, not better


@dataclasses.dataclass(frozen=True, slots=True)
class _OneLimit:
    """The model of one metric's distance to its bound: y = (t - center) / spread."""

    space: Space
    center: float
    spread: float
    process: GaussianProcess

    @classmethod
    def fit(cls, space: Space, x_unit: Array, values: Array, limit: Limit) -> "_OneLimit":
        """Fits to `n >= 1` points, `n x d`, and finite values, `n`."""
        t = within(limit, values)
        center, spread = float(np.mean(t)), float(np.std(t))
        if spread < 1e-9 * max(abs(center), 1e-300) or spread == 0.0:
            spread = abs(center) or 1.0  # all are equal: elsewhere it may be on the other side of the bound
        prior = Prior(
            log_lengthscale=(0.5 * math.log(space.num_active / 8.0), LENGTHSCALE_SD),
            log_outputscale=(math.log(0.5), 1.0),
            log_noise=(math.log(1e-2), 2.0),
            bias_variance=0.25,
            linear_variance=1.0,
        )
        features, groups = space.features(x_unit), space.feature_groups()
        return cls(space, center, spread, fit(features, (t - center) / spread, groups, prior, max_points=_MAX_POINTS))

    def log_p(self, x_unit: Array) -> Array:
        mean, sd = self.process.predict(self.space.features(x_unit))
        return np.asarray(log_ndtr((self.center / self.spread + mean) / np.sqrt(sd * sd + self.process.noise)))


@dataclasses.dataclass(frozen=True, slots=True)
class LimitModel:
    """The models of all limits of which some value is known.

    Attributes:
        models: one for each of them.
        unknown: the limits of whose metric no trial has a value.
    """

    models: tuple[_OneLimit, ...] = ()
    unknown: tuple[Limit, ...] = ()

    @classmethod
    def fit(
        cls, space: Space, limits: Sequence[Limit], x_unit: Array, metrics: Sequence[Mapping[str, float]]
    ) -> "LimitModel":
        """Fits to `n` points, `n x d`, and what was measured at each of them, `n`."""
        models, unknown = [], []
        for limit in limits:
            known = [place for place, found in enumerate(metrics) if math.isfinite(found.get(limit.name, math.nan))]
            if known:
                values = np.array([metrics[place][limit.name] for place in known], dtype=np.float64)
                models.append(_OneLimit.fit(space, x_unit[known], values, limit))
            else:
                unknown.append(limit)
        return cls(tuple(models), tuple(unknown))

    def p_holds(self, x_unit: Array) -> Array:
        """Returns the probability that a run at each of `m x d` points keeps all limits, `m`, within (0, 1].

        A limit of which nothing is known counts as kept. What float64 cannot hold stays above 0, and in its order: the
        nearest of points that are far from a limit is still found.
        """
        log_p = np.zeros(len(x_unit))
        for model in self.models:
            log_p = log_p + model.log_p(x_unit)
        held = np.maximum(log_p, _LEAST_LOG)
        return np.asarray(np.exp(held) * np.where(log_p < _LEAST_LOG, _LEAST_LOG / np.minimum(log_p, _LEAST_LOG), 1.0))

    def keeps(self, x_unit: Array) -> NDArray[np.bool_]:
        """Returns which of `m x d` points more likely keep all limits than not, `m`."""
        return np.asarray(self.p_holds(x_unit) >= LEAST)


def within(limit: Limit, values: Array) -> Array:
    """Returns t of values, `n >= 1`: how far each is within the limit; above 0 where it holds."""
    holds = np.array([limit.holds(float(value)) for value in values])
    values, bound = np.clip(values, -_LARGEST, _LARGEST), min(max(limit.bound, -_LARGEST), _LARGEST)
    if bound > 0 and np.all(values > 0) and np.max(values) > _DECADE * np.min(values):
        values, bound = np.log(values), math.log(bound)
    margin = (bound - values) if limit.is_upper else (values - bound)
    if np.any(margin == 0.0):
        side = 1.0 if limit.holds(limit.bound) else -1.0
        apart = -side * margin
        gaps = apart[apart > 0.0] if np.any(apart > 0.0) else np.abs(margin[margin != 0.0])
        margin = margin + side * (float(np.min(gaps)) if len(gaps) else 1.0) / 2.0
    unit = float(np.median(np.abs(margin))) or float(np.max(np.abs(margin))) or 1.0
    with np.errstate(over="ignore"):
        t = np.clip(margin / unit, -_LARGEST, _LARGEST)
    t = np.where(holds, np.maximum(t, 0.0), np.minimum(t, 0.0))  # whatever was rounded
    beyond = np.abs(t) - _LINEAR_UNTIL
    return np.asarray(np.where(beyond > 0, np.sign(t) * (_LINEAR_UNTIL + np.log1p(np.maximum(beyond, 0.0))), t))
