"""What the engine believes about a trial before it is run: its score, its cost, and whether it will fail.

Notation
    x_unit     `n x d` unit coordinates (see `protein.space`); the models see `space.features(x_unit)`
    z          a score on the models' scale: standardised, far outliers compressed; monotone in the score
    mu, sd     posterior mean and standard deviation
    p_ok       probability that a trial ends with a score

Each model is built from arrays and is immutable. A fit that failed says so in `fallback`.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from protein.gp import Array, GaussianProcess, Prior, fit
from protein.pareto import MIN_COST_SECONDS
from protein.space import Space
from protein.types import Estimate

Z80 = 1.2816  # a central 80 % interval of a standard normal
LOW_FENCE = 1.5  # scores this many interquartile ranges below the lower quartile and lower are compressed
HIGH_FENCE = 1000.0  # and this many above the upper quartile
_MIN_WIDTH = 1e-9  # of the largest score: differences below that are rounding, not information
_COMPRESSED = 0.25  # slope of the logarithm where it begins
_LENGTHSCALE_SD = 1.0
_MAX_SIDE_POINTS = 300  # cost and failures are smoother than scores: more points make them slower, not better


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreScale:
    """The monotone map between raw scores and z: linear between two fences, logarithmic beyond them.

    How bad a bad trial is does not matter, so the lower fence is near and one score of -10^6 cannot press all others
    together. How good a good one is does matter (a game is lost by 21 points until learning takes off), so the upper
    fence is far. All scores equal: z is 0.

    Attributes:
        low, high: the fences, in scores; infinite where nothing is compressed.
        unit: interquartile range of the scores.
        mean, sd: of the scores after compression.
    """

    low: float
    high: float
    unit: float
    mean: float
    sd: float

    @classmethod
    def of(cls, scores: Array) -> "ScoreScale":
        """Returns the scale of scores, `n >= 1`, finite."""
        q1, q3 = (float(q) for q in np.quantile(scores, [0.25, 0.75]))
        unit = q3 - q1
        if math.isfinite(unit) and unit > _MIN_WIDTH * float(np.max(np.abs(scores))):
            scale = cls(q1 - LOW_FENCE * unit, q3 + HIGH_FENCE * unit, unit, 0.0, 1.0)
        else:  # most scores are equal: there is no width to measure outliers by
            scale = cls(-math.inf, math.inf, 1.0, 0.0, 1.0)
        compressed = scale.to_z(scores)
        # The peak is divided out first: the squares of scores of 10^200 would overflow.
        peak = max(float(np.max(np.abs(compressed))), 1e-300)
        mean, sd = float(np.mean(compressed / peak)) * peak, float(np.std(compressed / peak)) * peak
        return dataclasses.replace(scale, mean=mean, sd=sd if sd > _MIN_WIDTH * abs(mean) else 0.0)

    def to_z(self, scores: Array) -> Array:
        """Returns z of scores, `n`."""
        s = np.asarray(scores, dtype=np.float64)
        inside = np.clip(s, self.low, self.high)
        beyond = np.sign(s - inside) * _COMPRESSED * self.unit * np.log1p(np.abs(s - inside) / self.unit)
        if self.sd == 0.0:
            return np.zeros_like(s)
        return np.asarray((inside + beyond - self.mean) / self.sd)

    def to_score(self, z: float) -> float:
        """Returns the score at z, the inverse of `to_z`; the mean where all scores were equal."""
        value = self.mean + self.sd * z
        inside = min(max(value, self.low), self.high)
        beyond = math.expm1(min(abs(value - inside) / (_COMPRESSED * self.unit), 100.0)) * self.unit
        return inside + math.copysign(beyond, value - inside)


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreModel:
    """A Gaussian process over z, around a prior mean that rises by `trend` over the range of the cost parameter.

    More steps help in nearly every training; while cheap trials are flat or noise, that is all there is to go by. The
    process bends the line to the data.
    """

    space: Space
    scale: ScoreScale
    process: GaussianProcess
    trend: float
    center: float  # of the trials on the cost parameter's coordinate: where the line crosses z = 0
    sees_unfinished: bool  # whether the last input is the share of a run that was still to come when it was scored
    known_range: tuple[float, float]  # lowest and highest score

    @classmethod
    def fit(
        cls,
        space: Space,
        x_unit: Array,
        scores: Array,
        *,
        trend: float = 0.0,
        log_noise: tuple[float, float] = (math.log(1e-3), 1.5),
        unfinished: Array | None = None,
        scale: ScoreScale | None = None,
    ) -> "ScoreModel":
        """Fits to `n >= 1` points and finite scores.

        Args:
            space: the space.
            x_unit: `n x d`, the cost parameter at what was reached.
            scores: `n`.
            trend: slope of the prior mean of z over the cost parameter's range.
            log_noise: prior (mean, sd) of the log noise variance.
            unfinished: `n`, the share of each run that was still to come when it was scored; None: all were finished.
            scale: between scores and z; None: that of these scores.
        """
        scale = scale or ScoreScale.of(scores)
        sees_unfinished = unfinished is not None and bool(np.any(unfinished > 0.0))
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_dims / 8.0), _LENGTHSCALE_SD),
            log_outputscale=(0.0, 0.7),
            log_noise=log_noise,
        )
        features, groups = space.features(x_unit), list(space.feature_groups())
        if sees_unfinished:
            assert unfinished is not None
            features, groups = np.column_stack([features, unfinished]), [*groups, max(groups) + 1]
        coordinate = _cost_coordinate(space, x_unit)
        center = float(np.mean(coordinate))
        z = scale.to_z(scores) - trend * (coordinate - center)
        process = fit(features, z, groups, prior)
        known_range = float(np.min(scores)), float(np.max(scores))
        return cls(space, scale, process, trend, center, sees_unfinished, known_range)

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd of z without noise, `m` each, of runs to their end."""
        mean, sd = self.process.predict(self._features(x_unit))
        return mean + self.trend * (_cost_coordinate(self.space, x_unit) - self.center), sd

    def estimates(self, x_unit: Array, *, measured: bool) -> list[Estimate]:
        """Returns for each of `m` points the score of a run to its end: the true one, or as it would be `measured`.

        Scores reach at most as far beyond all known ones as those are apart: the scale presses bad outliers together,
        and the way back would turn a wide posterior into astronomical scores.

        Raises:
            ArithmeticError: the posterior is not finite.
        """
        mean, sd = self.predict(x_unit)
        if not (np.isfinite(mean).all() and np.isfinite(sd).all()):
            raise ArithmeticError("the posterior is not finite")
        spread = Z80 * np.sqrt(sd**2 + (self.process.noise if measured else 0.0))
        lowest, highest = self.known_range
        reach = highest - lowest

        def score(z: float) -> float:
            return min(max(self.scale.to_score(z), lowest - reach), highest + reach)

        return [
            Estimate(value=score(m), low=score(m - s), high=score(m + s))
            for m, s in zip(mean.tolist(), spread.tolist(), strict=True)
        ]

    def believe(self, x_unit: Array) -> "ScoreModel":
        """Returns the model as if trials at `m x d` had given exactly what it expects of them (kriging believer)."""
        features = self._features(x_unit)
        mean, _ = self.process.predict(features)
        return dataclasses.replace(self, process=self.process.condition(features, mean))

    def _features(self, x_unit: Array) -> Array:
        features = self.space.features(x_unit)
        return np.column_stack([features, np.zeros(len(features))]) if self.sees_unfinished else features


@dataclasses.dataclass(frozen=True, slots=True)
class CostModel:
    """Log cost in seconds: ln(cost parameter) + bias + linear weights + a Gaussian process, one joint posterior.

    Cost is proportional to the cost parameter a priori (an epoch more costs an epoch more); weights and process learn
    how the truth departs from it. Without a cost parameter the weights are free to find what is dear.
    """

    space: Space
    center: float
    process: GaussianProcess

    @classmethod
    def fit(cls, space: Space, x_unit: Array, cost_seconds: Array) -> "CostModel":
        """Fits to `n >= 1` points and their costs; zero costs count as `MIN_COST_SECONDS`."""
        log_cost = np.log(np.maximum(cost_seconds, MIN_COST_SECONDS)) - _log_cost_parameter(space, x_unit)
        center = float(np.median(log_cost))
        known = space.cost_index is not None
        prior = Prior(
            log_lengthscale=(math.log(1.0) + 0.5 * math.log(space.num_dims / 8.0), _LENGTHSCALE_SD),
            log_outputscale=(math.log(0.05), 1.0),
            log_noise=(math.log(3e-3), 1.5),
            bias_variance=1.0,
            linear_variance=0.5 if known else 4.0,
        )
        features = space.features(x_unit)
        return cls(
            space, center, fit(features, log_cost - center, space.feature_groups(), prior, max_points=_MAX_SIDE_POINTS)
        )

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd, `m` each, of ln cost in seconds, as it will be measured (noise included)."""
        mean, sd = self.process.predict(self.space.features(x_unit))
        mu = mean + self.center + _log_cost_parameter(self.space, x_unit)
        return mu, np.sqrt(sd * sd + self.process.noise)


@dataclasses.dataclass(frozen=True, slots=True)
class FailureModel:
    """A Gaussian process over +1 (gave a score) and -1 (failed), squashed to a probability."""

    space: Space
    center: float
    process: GaussianProcess | None  # None: nothing has failed yet

    @classmethod
    def fit(cls, space: Space, x_unit: Array, ok: NDArray[np.bool_]) -> "FailureModel":
        """Fits to `n` points and whether they gave a score, `n`."""
        if not len(ok) or bool(np.all(ok)):
            return cls(space, 1.0, None)
        # Two invented successes keep the level above 0 where everything has failed so far: the search has to go on.
        center = 2.0 * (float(np.sum(ok)) + 2.0) / (len(ok) + 2.0) - 1.0
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_dims / 8.0), _LENGTHSCALE_SD),
            log_outputscale=(0.0, 0.7),
            log_noise=(math.log(0.05), 1.0),
        )
        target = 2.0 * np.asarray(ok, dtype=np.float64) - 1.0 - center
        process = fit(space.features(x_unit), target, space.feature_groups(), prior, max_points=_MAX_SIDE_POINTS)
        return cls(space, center, process)

    def p_ok(self, x_unit: Array) -> Array:
        """Returns the probability of a score, `m`, within (0, 1]; 1 before anything has failed."""
        if self.process is None:
            return np.ones(len(x_unit))
        mean, sd = self.process.predict(self.space.features(x_unit))
        squashed = ndtr((self.center + mean) / np.sqrt(sd * sd + 0.25))
        return np.asarray(np.maximum(squashed, 1e-6))


def _cost_coordinate(space: Space, x_unit: Array) -> Array:
    """The cost parameter's unit coordinate, `n`; 0 where there is none."""
    return np.zeros(len(x_unit)) if space.cost_index is None else x_unit[:, space.cost_index]


def _log_cost_parameter(space: Space, x_unit: Array) -> Array:
    """ln of the cost parameter's value, `n`; 0 where it has none or may be 0 or negative."""
    if space.cost_index is None:
        return np.zeros(len(x_unit))
    parameter = space.parameters[space.cost_index]
    low = getattr(parameter, "low", 0)
    if low <= 0:
        return np.zeros(len(x_unit))
    return np.log(parameter.decode(x_unit[:, space.cost_index]))
