"""What a trial scores, predicted before it is run.

Notation
    x_unit     `n x d` unit coordinates (see `protein.space`); the model sees `space.features(x_unit)`
    z          a score on the model's scale: standardised, with far outliers compressed; it rises with the score
    mu, sd     posterior mean and standard deviation of z, without noise

The prior mean of z rises by `trend` over the range of the cost parameter. More steps help in nearly every training.
While the scores of cheap trials are flat or noise, nothing else is known. The Gaussian process bends this line to the
data. Its amplitude may rise with the cost parameter, too: in short runs the other parameters matter less, and before
learning takes off they have no effect.

Search and recommendation both build the model with `fit_score_model`. The recommendation gives it no points of curves
(see `protein.engine.recommend`).
"""

import dataclasses
import math

import numpy as np

from protein.engine.gp import LENGTHSCALE_SD, Array, GaussianProcess, Prior, Runs, fit
from protein.engine.history import History
from protein.engine.joint_fit import SourceTrials, aligned, fit_jointly, model_inputs
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import Z80, Estimate

LOW_FENCE = 1.5  # scores this many interquartile ranges below the lower quartile and lower are compressed
HIGH_FENCE = 1000.0  # and this many above the upper quartile
_MIN_WIDTH = 1e-9  # of the largest score: differences below that are rounding, not information
_LARGEST = 1e300  # scores beyond count as this: sums and differences of larger ones overflow
_COMPRESSED = 0.25  # slope of the logarithm where it begins
_MODE_WIDENING = 8.0  # the interval after n runs is the posterior's times 1 + this / n
_WINNERS_CURSE_SDS = 0.5  # standard deviations by which the model overrates the points that it rates best


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreScale:
    """The monotone map between raw scores and z: linear between two fences, logarithmic beyond them.

    How bad a bad trial is does not matter. So the lower fence is near, and one score of -10^6 cannot squeeze all others
    together. How good a good trial is does matter. In some games nearly all trials lose by 21 points until learning
    takes off. So the upper fence is far. Where all scores are equal, z is 0.

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
class ScoreModel:
    """A Gaussian process over z around a line; see the head of this file. Immutable.

    Attributes:
        space: the space.
        scale: between scores and z.
        process: the process over z less the line.
        trend: slope of the line over the cost parameter's range.
        center: mean of the trials on the cost parameter's coordinate, where the line crosses z = 0.
        measured_range: the lowest and the highest score.
        uses_source: whether trials of a source sweep are in the process.
    """

    space: Space
    scale: ScoreScale
    process: GaussianProcess
    trend: float
    center: float
    measured_range: tuple[float, float]
    uses_source: bool = False

    @classmethod
    def fit(
        cls,
        space: Space,
        x_unit: Array,
        scores: Array,
        *,
        trend: float = 0.0,
        log_noise: tuple[float, float] = (math.log(1e-3), 1.5),
        log_run_variance: tuple[float, float] | None = None,
        amplitude_slope: tuple[float, float] | None = None,
        unfinished: Array | None = None,
        runs: Runs | None = None,
        scale: ScoreScale | None = None,
        source: SourceTrials | None = None,
    ) -> "ScoreModel":
        """Fits to `n >= 1` points and finite scores.

        Args:
            space: the space.
            x_unit: `n x d`, the cost parameter at what was reached.
            scores: `n`.
            trend: slope of the prior mean of z over the cost parameter's range.
            log_noise: prior (mean, sd) of the log noise variance.
            log_run_variance: prior (mean, sd) of the log run variance (see `protein.engine.gp`).
            amplitude_slope: prior (mean, sd) of the log amplitude's rise over the cost parameter's range; None: it does
                not rise.
            unfinished: `n`, the share of each run that was still to come when it was scored; None: all were finished.
            runs: `n`, which run each score is of; None: each is of its own.
            scale: between scores and z; None: that of these scores.
            source: a source sweep's z.
        """
        scale = scale or ScoreScale.of(scores)
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_dims / 8.0), LENGTHSCALE_SD),
            log_outputscale=(0.0, 0.7),
            log_noise=log_noise,
            log_run_variance=log_run_variance,
            amplitude_slope=amplitude_slope if space.cost_index is not None else None,
            amplitude_column=0 if space.cost_index is None else space.feature_groups().index(space.cost_index),
        )
        features, groups = space.features(x_unit), list(space.feature_groups())
        if unfinished is not None and bool(np.any(unfinished > 0.0)):
            features, groups = np.column_stack([features, unfinished]), [*groups, max(groups) + 1]
        coordinate = _cost_coordinate(space, x_unit)
        center = float(np.mean(coordinate))
        z = scale.to_z(scores)
        process, uses_source = fit(features, z - trend * (coordinate - center), groups, prior, runs=runs), False
        if source is not None:
            source = source.some(len(x_unit))
            z_source = aligned(source, x_unit, z) - trend * (_cost_coordinate(space, source.x_unit) - center)
            process, uses_source = fit_jointly(process, space, features, groups, prior, source.x_unit, z_source, runs)
        measured_range = max(float(np.min(scores)), -_LARGEST), min(float(np.max(scores)), _LARGEST)
        return cls(space, scale, process, trend, center, measured_range, uses_source)

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd of z without noise, `m` each, of runs to their end."""
        mean, sd = self.process.predict(model_inputs(self.space, x_unit, self.process))
        return mean + self.trend * (_cost_coordinate(self.space, x_unit) - self.center), sd

    @property
    def noise(self) -> float:
        """Variance of one run's z around the true one: that between runs, and that of its last evaluation."""
        return self.process.run_variance + self.process.noise

    def estimates(self, x_unit: Array, *, measured: bool, chosen: bool = False) -> list[Estimate]:
        """Returns for each of `m` points the score of a run to its end: the true one, or as it would be `measured`.

        Where a point was `chosen` because this model expects the most of it, the model's mean is too high on average
        (the winner's curse). It is lowered by half a standard deviation, an amount that was fitted.

        Estimates go beyond the measured scores by at most the range of those. The scale squeezes bad outliers together,
        and its inverse would turn a wide posterior into astronomical scores.

        The model's hyperparameters are at their mode, as if they were known. After ten runs this leaves out much of the
        uncertainty, after a hundred little. So intervals are wider than the posterior's: after n runs by the factor 1 +
        8 / n, which was fitted to how often they hold (`docs/log.md`).

        Raises:
            ArithmeticError: the posterior is not finite.
        """
        mean, sd = self.predict(x_unit)
        if not (np.isfinite(mean).all() and np.isfinite(sd).all()):
            raise ArithmeticError("the posterior is not finite")
        mean = mean - _WINNERS_CURSE_SDS * sd if chosen else mean
        sd = sd * (1.0 + _MODE_WIDENING / len(np.unique(self.process.runs)))
        spread = Z80 * np.sqrt(sd**2 + (self.noise if measured else 0.0))
        lowest, highest = self.measured_range
        reach = highest - lowest

        def score(z: float) -> float:
            return min(max(self.scale.to_score(z), lowest - reach), highest + reach)

        return [
            Estimate(value=score(m), low=score(m - s), high=score(m + s))
            for m, s in zip(mean.tolist(), spread.tolist(), strict=True)
        ]

    def fantasize(self, x_unit: Array) -> "ScoreModel":
        """Returns the model conditioned on fantasized outcomes of trials at `m x d` points.

        Each is taken to give exactly what the model expects of it (the kriging believer).
        """
        features = model_inputs(self.space, x_unit, self.process)
        mean, _ = self.process.predict(features)
        return dataclasses.replace(self, process=self.process.condition(features, mean))


def fit_score_model(
    space: Space, data: History, settings: EngineSettings, source: SourceTrials | None = None
) -> ScoreModel:
    """Fits the score model to final scores and points of curves; `data` has at least one score.

    The search may use a source sweep's scores. The recommendation uses this sweep alone.
    """
    return ScoreModel.fit(
        space,
        np.concatenate([data.x_scored, data.x_curve]),
        np.concatenate([data.scores, data.curve_scores]),
        unfinished=np.concatenate([data.unfinished, data.curve_unfinished]),
        scale=ScoreScale.of(data.scores),
        trend=settings.cost_trend,
        log_noise=settings.log_noise,
        log_run_variance=settings.log_run_variance,
        amplitude_slope=settings.amplitude_slope,
        runs=np.concatenate([data.runs, data.runs[data.curve_runs]]),
        source=source,
    )


def _cost_coordinate(space: Space, x_unit: Array) -> Array:
    """Returns the cost parameter's unit coordinate, `n`; 0 where there is none."""
    return np.zeros(len(x_unit)) if space.cost_index is None else x_unit[:, space.cost_index]
