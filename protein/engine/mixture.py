"""A Gaussian process's posterior averaged over its hyperparameters: what is noise, and what is signal, is not known.

From distinct points, each measured once, the data hardly tell noise from a function that varies quickly. The mode of
the hyperparameters then names one of many explanations, and where it takes luck for signal the highest measurement
looks best and certain. So the posterior is averaged: over a grid of noise variances, and at each over draws of the
other hyperparameters. Repeated and neighbouring points move the weights to the noise that they show.

Where the amplitude of the scores rises with the cost parameter, noise may be the same everywhere, or rise like the
amplitude: a short run that has learnt nothing repeats well. The average is over both.

Notation (and that of `protein.engine.gp`)
    v_j        the levels of the noise variance;  theta_j  the mode of the other hyperparameters at v_j
    H_j        the Fisher information of theta at theta_j, 1/2 tr(K^-1 dK K^-1 dK), plus the prior's precision
    w_j        weight of a level: p(y, theta_j, v_j) det(H_j)^(-1/2) times the level's share of the log axis
    theta_jk   draws of N(theta_j, H_j^-1), antithetic pairs

Source: Rue, Martino and Chopin, Approximate Bayesian Inference for Latent Gaussian Models by Using Integrated Nested
Laplace Approximations (2009), section 3; the information of Rasmussen and Williams (2006), section 5.4.1, in
expectation, which is always positive definite.
"""

import dataclasses
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import minimize

from protein.engine.evidence import Objective
from protein.engine.gp import (
    MAX_FIT_POINTS,
    MAX_POINTS,
    Array,
    GaussianProcess,
    Prior,
    Runs,
    conditioned,
    subset,
)

_LOG_NOISE = np.log([1e-5, 1e-3, 0.01, 0.04, 0.12, 0.3, 0.7])  # ln v_j
_LEAST_WEIGHT = 0.01  # levels below are left out
_OPTIONS = {"maxiter": 40, "ftol": 1e-6, "gtol": 1e-3}


@dataclasses.dataclass(frozen=True, slots=True)
class Mixture:
    """Conditioned processes over the same data, and their weights, which add up to 1; the parts of `GaussianProcess`.

    Its mean and standard deviation are those of the whole mixture: within the processes and between them.
    """

    weights: Array
    parts: tuple[GaussianProcess, ...]

    @property
    def x(self) -> Array:
        return self.parts[0].x

    @property
    def runs(self) -> Runs:
        return self.parts[0].runs

    @property
    def fallback(self) -> str:
        return self.parts[0].fallback

    @property
    def noise(self) -> float:
        """Mean noise variance, where the amplitude is 1."""
        return math.fsum(w * part.noise for w, part in zip(self.weights, self.parts, strict=True))

    def noise_at(self, x: Array) -> Array:
        """Returns the mean variance of one run's target around the true one at `m x p` inputs, `m`."""
        return np.asarray(self.weights @ np.stack([part.noise_at(x) for part in self.parts]))

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Returns mean and standard deviation, `m` each, of the noiseless process at `m x p` inputs."""
        means, sds = np.stack([part.predict(x) for part in self.parts], axis=1)
        mean = self.weights @ means
        return mean, np.sqrt(self.weights @ (sds**2 + (means - mean) ** 2))

    def mean(self, x: Array) -> Array:
        """Returns the mean alone, `m`, at `m x p` inputs."""
        return np.asarray(self.weights @ np.stack([part.mean(x) for part in self.parts]))

    def condition(self, x: Array, y: Array) -> "Mixture":
        """Returns the mixture conditioned on `m` further observations of other runs, with the same weights."""
        return Mixture(self.weights, tuple(part.condition(x, y) for part in self.parts))


def fit_mixture(x: Array, y: Array, groups: Sequence[int], prior: Prior, *, runs: Runs | None = None) -> Mixture:
    """Returns the mixture of processes over the grid of noise variances. Arguments as of `protein.engine.gp.fit`.

    Where no level has a finite fit, it is the one process at the prior's own mode, and `fallback` says so.
    """
    runs = np.arange(len(y)) if runs is None else runs
    columns = np.asarray(groups)
    num_groups = int(columns.max()) + 1
    fitted, conditions = subset(y, MAX_FIT_POINTS), subset(y, MAX_POINTS)
    noise = num_groups + 1  # position of log v in theta
    found: list[tuple[float, Objective, Array]] = []  # log weight, objective and theta of each draw
    rng = np.random.default_rng(0)
    for noise_rises in (False, True)[: 1 if prior.amplitude_slope is None else 2]:
        objective = Objective(x[fitted], y[fitted], columns, num_groups, prior, runs[fitted], noise_rises=noise_rises)
        theta = objective.prior_mean
        rest = np.delete(np.arange(len(theta)), noise)
        # From the smoothest function to the roughest, each fit from where the last one ended.
        for log_noise, log_share in zip(_LOG_NOISE[::-1], np.log(np.gradient(_LOG_NOISE))[::-1], strict=True):
            theta = theta.copy()
            theta[noise] = log_noise
            bounds = [*objective.bounds[:noise], (log_noise, log_noise), *objective.bounds[noise + 1 :]]
            direction = rng.standard_normal(len(rest))
            try:
                result = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS)
                factor = np.linalg.cholesky(objective.information(result.x)[np.ix_(rest, rest)])
            except (ValueError, ArithmeticError, np.linalg.LinAlgError):
                continue
            log_weight = float(log_share - result.fun - np.log(np.diag(factor)).sum())
            if math.isfinite(log_weight):
                theta = result.x
                step = np.linalg.solve(factor.T, direction)
                for sign in (-1.0, 1.0):
                    drawn = theta.copy()
                    drawn[rest] += sign * step
                    found.append((log_weight, objective, np.clip(drawn, *np.transpose(bounds))))
    x, y, runs = x[conditions], y[conditions], runs[conditions]
    if not found:
        reason = "hyperparameters at their prior mode, no fit was finite"
        return Mixture(np.ones(1), (conditioned(x, y, runs, *objective.kernel(objective.prior_mean), reason),))
    log_weights = np.array([log_weight for log_weight, _, _ in found])
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    kept = np.flatnonzero(weights >= min(0.5 * _LEAST_WEIGHT, float(weights.max())))
    parts = tuple(
        conditioned(x, y, runs, *made_by.kernel(theta), noise_rises=made_by.noise_rises)
        for _, made_by, theta in (found[i] for i in kept)
    )
    return Mixture(weights[kept] / weights[kept].sum(), parts)
