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
from collections.abc import Callable, Sequence

import numpy as np

from protein.engine.gp import LENGTHSCALE_SD, Array, GaussianProcess, Mixture, Prior, Runs, fit, fit_mixture
from protein.engine.history import History
from protein.engine.joint_fit import SourceTrials, aligned, fit_jointly, model_inputs
from protein.engine.settings import EngineSettings
from protein.space import Space
from protein.types import MAX_SCORE, Z80, Estimate

LOW_FENCE = 1.5  # scores this many units below the lower quartile and lower are compressed
HIGH_FENCE = 100.0  # and one this many above the second best
_MIN_WIDTH = 1e-9  # of the median score: differences below that are rounding, not information
_COMPRESSED = 0.25  # slope of the logarithm where it begins
_MODE_WIDENING = 8.0  # the interval after n runs is the posterior's times 1 + this / n
_WINNERS_CURSE_SDS = 0.5  # standard deviations by which the model overrates the points that it rates best


@dataclasses.dataclass(frozen=True, slots=True)
class ScoreScale:
    """The monotone map between raw scores and z: linear between two fences, logarithmic beyond them.

    How bad a bad trial is does not matter. So the lower fence is near, and one score of -10^6 cannot squeeze all others
    together. How good a good trial is does matter: in some games nearly all trials lose by 21 points until learning
    takes off. So the upper fence is beyond the second best score, and far. No two good scores are ever pressed into
    one, however many lie on a floor, and a single score of 10^30 does not hide what the others differ by. Where all
    scores are equal, z is 0.

    Attributes:
        low, high: the fences, in scores; infinite where nothing is compressed.
        unit: the interquartile range of the scores, or half of what the second best is above the median, if that is
            more. Where both are 0, the first that is not: the best above the median, the median above the next below.
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
        s = np.sort(np.clip(scores, -MAX_SCORE, MAX_SCORE))
        middle, q3, second, top = float(np.median(s)), float(np.quantile(s, 0.75)), float(s[-2:][0]), float(s[-1])
        # Of four or fewer, the quartile between two scores would be half of the terrible one.
        q1 = float(np.quantile(s, 0.25, method="linear" if len(s) > 4 else "higher"))
        least = max(_MIN_WIDTH * abs(middle), 1e-300)
        below = s[s < middle - least]
        widths = (max(q3 - q1, 0.5 * (second - middle)), top - middle, middle - float(below.max(initial=-math.inf)))
        unit = next((width for width in widths if least < width < math.inf), None)
        if unit is not None:
            scale = cls(q1 - LOW_FENCE * unit, max(q3, second) + HIGH_FENCE * unit, unit, 0.0, 1.0)
        else:  # all scores are equal
            scale = cls(-math.inf, math.inf, 1.0, 0.0, 1.0)
        compressed = scale.to_z(scores)
        # The peak is divided out first: the squares of scores of 10^200 would overflow.
        peak = max(float(np.max(np.abs(compressed))), 1e-300)
        mean, sd = float(np.mean(compressed / peak)) * peak, float(np.std(compressed / peak)) * peak
        return dataclasses.replace(scale, mean=mean, sd=sd if sd > _MIN_WIDTH * abs(mean) else 0.0)

    def to_z(self, scores: Array) -> Array:
        """Returns z of scores, `n`."""
        s = np.clip(np.asarray(scores, dtype=np.float64), -MAX_SCORE, MAX_SCORE)
        inside = np.clip(s, self.low, self.high)
        beyond = np.sign(s - inside) * _COMPRESSED * self.unit * np.log1p(np.abs(s - inside) / self.unit)
        if self.sd == 0.0:
            return np.zeros_like(s)
        return np.asarray((inside + beyond - self.mean) / self.sd)

    def to_score(self, z: float) -> float:
        """Returns the score at z, the inverse of `to_z`; the mean where all scores were equal."""
        value = self.mean + self.sd * z
        inside = min(max(value, self.low), self.high)
        beyond = math.expm1(min(abs(value - inside) / (_COMPRESSED * self.unit), 700.0)) * self.unit
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
        source: which of the source sweeps has trials in the process; None: none.
        num_fantasies: trials in the process that have shown nothing yet (see `fantasize`).
        score_range: the lowest and the highest possible score; None: not known.
    """

    space: Space
    scale: ScoreScale
    process: GaussianProcess | Mixture
    trend: float
    center: float
    measured_range: tuple[float, float]
    source: int | None = None
    num_fantasies: int = 0
    score_range: tuple[float, float] | None = None

    @property
    def highest_z(self) -> float:
        """z of the highest possible score; infinite where it is not known."""
        if self.score_range is None or self.score_range[1] == math.inf or self.scale.sd == 0.0:
            return math.inf
        return float(self.scale.to_z(np.array([self.score_range[1]]))[0])

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
        sources: Sequence[SourceTrials] = (),
        averaged: bool = False,
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
            sources: z of each source sweep.
            averaged: over the noise and the other hyperparameters, instead of at their mode; without source sweeps.
        """
        scale = scale or ScoreScale.of(scores)
        prior = Prior(
            log_lengthscale=(-0.3 + 0.5 * math.log(space.num_active / 8.0), LENGTHSCALE_SD),
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
        y, chosen = z - trend * (coordinate - center), None
        process: GaussianProcess | Mixture
        if averaged:
            process = fit_mixture(features, y, groups, prior, runs=runs)
        else:
            process = fit(features, y, groups, prior, runs=runs)
        if isinstance(process, GaussianProcess):
            some = [source.some(len(x_unit)) for source in sources]
            points = [
                (s.x_unit, aligned(s, x_unit, z) - trend * (_cost_coordinate(space, s.x_unit) - center)) for s in some
            ]
            process, chosen = fit_jointly(process, space, features, groups, prior, points, runs)
        measured_range = max(float(np.min(scores)), -MAX_SCORE), min(float(np.max(scores)), MAX_SCORE)
        return cls(space, scale, process, trend, center, measured_range, chosen)

    def predict(self, x_unit: Array) -> tuple[Array, Array]:
        """Returns mu and sd of z without noise, `m` each, of runs to their end."""
        mean, sd = self.process.predict(model_inputs(self.space, x_unit, self.process))
        return mean + self.line(x_unit), sd

    def covariance(self, x_unit: Array) -> Array:
        """Returns the covariance of z without noise, `m x m`, of runs to their end."""
        return self.process.covariance(model_inputs(self.space, x_unit, self.process))

    def mean(self, x_unit: Array) -> Array:
        """Returns mu alone, `m`: for many points this takes a fraction of the time."""
        return self.process.mean(model_inputs(self.space, x_unit, self.process)) + self.line(x_unit)

    def draws(self, num_draws: int, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Returns functions drawn from the posterior of z without noise: of `m x d` points, `m x num_draws`."""
        draw = self.process.draws(num_draws, rng)
        return lambda x_unit: draw(model_inputs(self.space, x_unit, self.process)) + self.line(x_unit)[:, None]

    def line(self, x_unit: Array) -> Array:
        """Returns what the prior mean of z adds to the process at `m x d` points, `m`."""
        return np.asarray(self.trend * (_cost_coordinate(self.space, x_unit) - self.center))

    def noise_at(self, x_unit: Array) -> Array:
        """Returns the variance of one run's z around the true one at `m x d` points, `m`.

        It is that between runs, and that of a run's last evaluation.
        """
        return self.process.noise_at(model_inputs(self.space, x_unit, self.process))

    def estimates(self, x_unit: Array, *, measured: bool, chosen: bool = False) -> list[Estimate]:
        """Returns for each of `m` points the score of a run to its end: the true one, or as it would be `measured`.

        Where a point was `chosen` because this model expects the most of it, the model's mean is too high on average
        (the winner's curse). It is lowered by half a standard deviation, an amount that was fitted.

        Estimates go beyond the measured scores by at most the range of those. The scale squeezes bad outliers together,
        and its inverse would turn a wide posterior into astronomical scores.

        A model that is not averaged has its hyperparameters at their mode, as if they were known. After ten runs this
        leaves out much of the uncertainty, after a hundred little. So its intervals are wider than the posterior's:
        after n runs by the factor 1 + 8 / n, which was fitted to how often they hold (`docs/decisions/engine.md`).

        Raises:
            ArithmeticError: the posterior is not finite.
        """
        mean, sd = self.predict(x_unit)
        _require_finite(mean, sd)
        mean = mean - _WINNERS_CURSE_SDS * sd if chosen else mean
        if isinstance(self.process, GaussianProcess):
            sd = sd * (1.0 + _MODE_WIDENING / (len(np.unique(self.process.runs)) - self.num_fantasies))
        spread = Z80 * np.sqrt(sd**2 + (self.noise_at(x_unit) if measured else 0.0))
        return [
            Estimate(value=self.score_at(m), low=self.score_at(m - s), high=self.score_at(m + s))
            for m, s in zip(mean.tolist(), spread.tolist(), strict=True)
        ]

    def expected(self, x_unit: Array) -> list[float]:
        """Returns the values of `estimates(x_unit, measured=False)` at `m` points, in a third of the time.

        Raises:
            ArithmeticError: the posterior mean is not finite.
        """
        mean = self.mean(x_unit)
        _require_finite(mean)
        return [self.score_at(m) for m in mean.tolist()]

    def score_at(self, z: float) -> float:
        """Returns the score at z, at most the range of the measured scores beyond them, and a possible one."""
        lowest, highest = self.measured_range
        reach = highest - lowest
        score = min(max(self.scale.to_score(z), lowest - reach), highest + reach)
        return score if self.score_range is None else min(max(score, self.score_range[0]), self.score_range[1])

    def fantasize(self, x_unit: Array) -> "ScoreModel":
        """Returns the model conditioned on fantasized outcomes of trials at `m x d` points.

        Each is taken to give exactly what the model expects of it (the kriging believer).
        """
        features = model_inputs(self.space, x_unit, self.process)
        mean, _ = self.process.predict(features)
        process, num_fantasies = self.process.condition(features, mean), self.num_fantasies + len(x_unit)
        return dataclasses.replace(self, process=process, num_fantasies=num_fantasies)


def fit_score_model(
    space: Space,
    data: History,
    settings: EngineSettings,
    sources: Sequence[SourceTrials] = (),
    *,
    averaged: bool = False,
    scale: ScoreScale | None = None,
) -> ScoreModel:
    """Fits the score model to final scores and points of curves; `data` has at least one score.

    Where `data` is a part of a sweep, `scale` is that of the whole sweep's scores.

    The search may use source sweeps' scores. The recommendation uses this sweep alone, and is averaged over what is
    not known of the noise (see `protein.engine.gp`).
    """
    model = ScoreModel.fit(
        space,
        np.concatenate([data.x_scored, data.x_curve]),
        np.concatenate([data.scores, data.curve_scores]),
        unfinished=np.concatenate([data.unfinished, data.curve_unfinished]),
        scale=ScoreScale.of(data.scores) if scale is None else scale,
        trend=settings.cost_trend,
        log_noise=settings.averaged_log_noise if averaged else settings.log_noise,
        log_run_variance=settings.log_run_variance,
        amplitude_slope=settings.amplitude_slope,
        runs=np.concatenate([data.runs, data.runs[data.curve_runs]]),
        sources=sources,
        averaged=averaged,
    )
    return model if settings.score_range is None else dataclasses.replace(model, score_range=settings.score_range)


def _require_finite(*posterior: Array) -> None:
    if not all(np.isfinite(one).all() for one in posterior):
        raise ArithmeticError("the posterior is not finite")


def _cost_coordinate(space: Space, x_unit: Array) -> Array:
    """Returns the cost parameter's unit coordinate, `n`; 0 where there is none."""
    return np.zeros(len(x_unit)) if space.cost_index is None else x_unit[:, space.cost_index]
