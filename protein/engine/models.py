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
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from protein.engine.gp import Array, GaussianProcess, Prior, Runs, fit, subset
from protein.engine.pareto import MIN_COST_SECONDS
from protein.space import Space
from protein.types import Z80, Estimate

LOW_FENCE = 1.5  # scores this many interquartile ranges below the lower quartile and lower are compressed
HIGH_FENCE = 1000.0  # and this many above the upper quartile
_MIN_WIDTH = 1e-9  # of the largest score: differences below that are rounding, not information
_LARGEST = 1e300  # scores beyond count as this: sums and differences of larger ones overflow
_COMPRESSED = 0.25  # slope of the logarithm where it begins
_LENGTHSCALE_SD = 1.0
_MAX_SIDE_POINTS = 300  # cost and failures are smoother than scores: more points make them slower, not better
_MAX_FORMER_POINTS = 60  # of a former sweep, beside this sweep's own ...
_MIN_FORMER_POINTS = 20  # ... and fewer the more of those there are, down to this many
_FULL_POINTS = 120  # own and former points together, where there is a choice
_LEAN_EVIDENCE = math.log(20.0)  # by how much likelier the former points have to make this sweep's own
_FORMER_DISTANCE = (
    1 / 2.3
)  # between this and a former sweep, in prior lengthscales: a correlation of 0.87 to begin with
_MODE_DOUBT = 8.0  # over the number of runs: by how much a standard deviation to be shown is widened
_HOPE = 0.5  # standard deviations by which the model is too hopeful about what looks best to it


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
        scores = np.clip(scores, -_LARGEST, _LARGEST)
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
        s = np.clip(np.asarray(scores, dtype=np.float64), -_LARGEST, _LARGEST)
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
class FormerTrials:
    """What a former sweep found: targets, `n`, at points, `n x d`, and what a model fitted to them alone expects.

    Joined to a new sweep's trials as points at a distance along a coordinate of its own, whose lengthscale is fitted
    with the others: the two sweeps' functions correlate as much as the data say, and what the former one never looked
    at stays uncertain. Where that does not make the new trials twenty times likelier, it is left out.

    Source: Swersky, Snoek and Adams, Multi-Task Bayesian Optimization (2013), here with a single correlation.
    """

    x_unit: Array
    target: Array
    expects: Callable[[Array], Array]  # of points, `m x d`, the targets, `m`

    def some(self, num_own: int) -> "FormerTrials":
        """Returns as many as go with `num_own` trials of the new sweep: half of them the highest targets."""
        size = min(max(_FULL_POINTS - num_own, _MIN_FORMER_POINTS), _MAX_FORMER_POINTS)
        keep = subset(self.target, size)
        return FormerTrials(self.x_unit[keep], self.target[keep], self.expects)


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreModel:
    """A Gaussian process over z, around a prior mean that rises by `trend` over the range of the cost parameter.

    More steps help in nearly every training; while cheap trials are flat or noise, that is all there is to go by. The
    process bends the line to the data. So with its amplitude, which may grow with the cost parameter: what the other
    parameters do shows less in short runs, and nothing of it before learning takes off.
    """

    space: Space
    scale: ScoreScale
    process: GaussianProcess
    trend: float
    center: float  # of the trials on the cost parameter's coordinate: where the line crosses z = 0
    known_range: tuple[float, float]  # lowest and highest score
    leans: bool = False  # on a former sweep

    @classmethod
    def fit(
        cls,
        space: Space,
        x_unit: Array,
        scores: Array,
        *,
        trend: float = 0.0,
        log_noise: tuple[float, float] = (math.log(1e-3), 1.5),
        log_luck: tuple[float, float] | None = None,
        growth: tuple[float, float] | None = None,
        unfinished: Array | None = None,
        runs: Runs | None = None,
        scale: ScoreScale | None = None,
        former: FormerTrials | None = None,
    ) -> "ScoreModel":
        """Fits to `n >= 1` points and finite scores.

        Args:
            space: the space.
            x_unit: `n x d`, the cost parameter at what was reached.
            scores: `n`.
            trend: slope of the prior mean of z over the cost parameter's range.
            log_noise: prior (mean, sd) of the log noise variance.
            log_luck: that of the variance that scores of one run have in common.
            growth: that of the log amplitude's rise over the cost parameter's range; None: it does not rise.
            unfinished: `n`, the share of each run that was still to come when it was scored; None: all were finished.
            runs: `n`, which run each score is of; None: each is of its own.
            scale: between scores and z; None: that of these scores.
            former: a former sweep's z.
        """
        scale = scale or ScoreScale.of(scores)
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_dims / 8.0), _LENGTHSCALE_SD),
            log_outputscale=(0.0, 0.7),
            log_noise=log_noise,
            log_luck=log_luck,
            growth=growth if space.cost_index is not None else None,
            growth_column=0 if space.cost_index is None else space.feature_groups().index(space.cost_index),
        )
        features, groups = space.features(x_unit), list(space.feature_groups())
        if unfinished is not None and bool(np.any(unfinished > 0.0)):
            features, groups = np.column_stack([features, unfinished]), [*groups, max(groups) + 1]
        coordinate = _cost_coordinate(space, x_unit)
        center = float(np.mean(coordinate))
        z = scale.to_z(scores)
        process, leans = fit(features, z - trend * (coordinate - center), groups, prior, runs=runs), False
        if former is not None:
            former = former.some(len(x_unit))
            z_former = _aligned(former, x_unit, z) - trend * (_cost_coordinate(space, former.x_unit) - center)
            process, leans = _lean(process, space, features, groups, prior, former.x_unit, z_former, runs)
        known_range = max(float(np.min(scores)), -_LARGEST), min(float(np.max(scores)), _LARGEST)
        return cls(space, scale, process, trend, center, known_range, leans)

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd of z without noise, `m` each, of runs to their end."""
        mean, sd = self.process.predict(_inputs(self.space, x_unit, self.process))
        return mean + self.trend * (_cost_coordinate(self.space, x_unit) - self.center), sd

    @property
    def noise(self) -> float:
        """Variance of one run's z around the true one: its luck and that of its last evaluation."""
        return self.process.luck + self.process.noise

    def estimates(self, x_unit: Array, *, measured: bool, chosen: bool = False) -> list[Estimate]:
        """Returns for each of `m` points the score of a run to its end: the true one, or as it would be `measured`.

        Points that were `chosen` because this model expects most of them are those about which it errs upwards (the
        winner's curse): their mean is lowered by half a standard deviation, which was fitted, too.

        Scores reach at most as far beyond all known ones as those are apart: the scale presses bad outliers together,
        and the way back would turn a wide posterior into astronomical scores.

        The model's hyperparameters are at their mode, as if that were known; what this leaves out is much of the
        uncertainty after ten runs and little of it after a hundred. So intervals are wider than the posterior: after n
        runs by 1 + 8 / n, which was fitted to how often they hold (`docs/log.md`).

        Raises:
            ArithmeticError: the posterior is not finite.
        """
        mean, sd = self.predict(x_unit)
        if not (np.isfinite(mean).all() and np.isfinite(sd).all()):
            raise ArithmeticError("the posterior is not finite")
        mean = mean - _HOPE * sd if chosen else mean
        sd = sd * (1.0 + _MODE_DOUBT / len(np.unique(self.process.runs)))
        spread = Z80 * np.sqrt(sd**2 + (self.noise if measured else 0.0))
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
        features = _inputs(self.space, x_unit, self.process)
        mean, _ = self.process.predict(features)
        return dataclasses.replace(self, process=self.process.condition(features, mean))


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
    def fit(
        cls, space: Space, x_unit: Array, cost_seconds: Array, *, former: FormerTrials | None = None
    ) -> "CostModel":
        """Fits to `n >= 1` points and their costs; zero costs count as `MIN_COST_SECONDS`.

        A former sweep's costs count up to a factor: the machine may be another.
        """
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
        features, groups = space.features(x_unit), space.feature_groups()
        process = fit(features, log_cost - center, groups, prior, max_points=_MAX_SIDE_POINTS)
        if former is not None:
            former = former.some(len(x_unit))
            factor = np.median(log_cost + _log_cost_parameter(space, x_unit) - former.expects(x_unit))
            log_former = former.target - _log_cost_parameter(space, former.x_unit)
            process, _ = _lean(process, space, features, groups, prior, former.x_unit, log_former + factor - center)
        return cls(space, center, process)

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd, `m` each, of ln cost in seconds, as it will be measured (noise included)."""
        mean, sd = self.process.predict(_inputs(self.space, x_unit, self.process))
        mu = mean + self.center + _log_cost_parameter(self.space, x_unit)
        return mu, np.sqrt(sd * sd + self.process.noise)


@dataclasses.dataclass(frozen=True, slots=True)
class FailureModel:
    """A Gaussian process over +1 (gave a score) and -1 (failed), squashed to a probability."""

    space: Space
    center: float
    process: GaussianProcess | None  # None: nothing has failed yet

    @classmethod
    def fit(
        cls, space: Space, x_unit: Array, ok: NDArray[np.bool_], *, former: FormerTrials | None = None
    ) -> "FailureModel":
        """Fits to `n` points and whether they gave a score, `n`; the targets of a former sweep's are +1 and -1."""
        if former is not None:
            former = former.some(len(x_unit))
            ok = np.concatenate([former.target > 0, ok])
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
        features, groups = space.features(x_unit), space.feature_groups()
        if former is not None:
            features, groups = _together(space, features, groups, prior, former.x_unit)
        return cls(space, center, fit(features, target, groups, prior, max_points=_MAX_SIDE_POINTS))

    def p_ok(self, x_unit: Array) -> Array:
        """Returns the probability of a score, `m`, within (0, 1]; 1 before anything has failed."""
        if self.process is None:
            return np.ones(len(x_unit))
        mean, sd = self.process.predict(_inputs(self.space, x_unit, self.process))
        squashed = ndtr((self.center + mean) / np.sqrt(sd * sd + 0.25))
        return np.asarray(np.maximum(squashed, 1e-6))


def _aligned(former: FormerTrials, x_unit: Array, z: Array) -> Array:
    """A former sweep's z in units of this sweep's, `n`: at this sweep's trials, `x_unit` with scores z, what it expects
    and what was found have one mean and one spread. How well the two agree beyond that is for the fit to say."""
    expected = former.expects(x_unit)
    spread = float(np.std(expected))
    factor = min(max(float(np.std(z)) / spread, 0.5), 2.0) if spread > 1e-9 and len(z) > 2 else 1.0
    return np.asarray(float(np.mean(z)) + factor * (former.target - float(np.mean(expected))))


def _lean(
    own: GaussianProcess,
    space: Space,
    features: Array,
    groups: list[int],
    prior: Prior,
    x_former: Array,
    y_former: Array,
    runs: Runs | None = None,
) -> tuple[GaussianProcess, bool]:
    """Returns the process fitted to former and own points together, if the own ones are twenty times likelier under it
    than under `own`, which was fitted to them alone, `n x p`; and whether they are."""
    if len(own.y) < len(features):  # too many to see them all: they need no help
        return own, False
    x, groups = _together(space, features, groups, prior, x_former)
    if runs is not None:
        runs = np.concatenate([np.arange(len(y_former)), len(y_former) + runs])
    joint = fit(x, np.concatenate([y_former, own.y]), groups, prior, runs=runs)
    leans = joint.log_density(len(x_former)) >= own.log_density() + _LEAN_EVIDENCE
    return (joint, True) if leans else (own, False)


def _together(
    space: Space, features: Array, groups: list[int], prior: Prior, x_former: Array
) -> tuple[Array, list[int]]:
    """Model inputs of former points and of own ones, `n x p`, below them: one more column, in which they are apart."""
    former, own = _padded(space.features(x_former), features.shape[1] + 1), _padded(features, features.shape[1] + 1)
    former[:, -1] = _FORMER_DISTANCE * math.exp(prior.log_lengthscale[0])
    return np.concatenate([former, own]), [*groups, max(groups) + 1]


def _inputs(space: Space, x_unit: Array, process: GaussianProcess) -> Array:
    """Model inputs of runs of this sweep to their end, `n x p`: 0 in what columns there are beside the features."""
    return _padded(space.features(x_unit), process.x.shape[1])


def _padded(features: Array, width: int) -> Array:
    return np.column_stack([features, np.zeros((len(features), width - features.shape[1]))])


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
