"""A Gaussian process's posterior averaged over its hyperparameters: what is noise, and what is signal, is not known.

From distinct points, each measured once, the data hardly tell noise from a function that varies quickly. The mode of
the hyperparameters then names one of many explanations, and where it takes luck for signal the highest measurement
looks best and certain. So the posterior is averaged: over a grid of noise variances, and at each over draws of the
other hyperparameters. Repeated and neighbouring points move the weights to the noise that they show.

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

from protein.engine.gp import (
    MAX_FIT_POINTS,
    MAX_POINTS,
    Array,
    GaussianProcess,
    Objective,
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
        """Mean noise variance."""
        return math.fsum(w * part.noise for w, part in zip(self.weights, self.parts, strict=True))

    @property
    def run_variance(self) -> float:
        """Mean run variance."""
        return math.fsum(w * part.run_variance for w, part in zip(self.weights, self.parts, strict=True))

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Returns mean and standard deviation, `m` each, of the noiseless process at `m x p` inputs."""
        means, sds = np.stack([part.predict(x) for part in self.parts], axis=1)
        mean = self.weights @ means
        return mean, np.sqrt(self.weights @ (sds**2 + (means - mean) ** 2))

    def condition(self, x: Array, y: Array) -> "Mixture":
        """Returns the mixture conditioned on `m` further observations of other runs, with the same weights."""
        return Mixture(self.weights, tuple(part.condition(x, y) for part in self.parts))


def fit_mixture(x: Array, y: Array, groups: Sequence[int], prior: Prior, *, runs: Runs | None = None) -> Mixture:
    """Returns the mixture of processes over the grid of noise variances. Arguments as of `protein.engine.gp.fit`.

    Where no level has a finite fit, it is the one process at the prior's own mode, and `fallback` says so.
    """
    runs = np.arange(len(y)) if runs is None else runs
    keep, fitted = subset(y, MAX_POINTS), subset(y, MAX_FIT_POINTS)
    columns = np.asarray(groups)
    objective = Objective(x[fitted], y[fitted], columns, int(columns.max()) + 1, prior, runs[fitted])
    x, y, runs = x[keep], y[keep], runs[keep]
    noise = objective.num_groups + 1  # position of log v in theta
    rest = np.delete(np.arange(len(objective.prior_mean)), noise)
    signs = np.random.default_rng(0).standard_normal((len(_LOG_NOISE), len(rest)))
    found: list[tuple[float, Array]] = []  # log weight and theta of each draw
    theta = objective.prior_mean
    shares = np.log(np.gradient(_LOG_NOISE))
    for level in reversed(range(len(_LOG_NOISE))):  # from the smoothest function to the roughest
        theta = theta.copy()
        theta[noise] = _LOG_NOISE[level]
        bounds = [*objective.bounds[:noise], (theta[noise], theta[noise]), *objective.bounds[noise + 1 :]]
        try:
            result = minimize(objective, theta, jac=True, method="L-BFGS-B", bounds=bounds, options=_OPTIONS)
            factor = np.linalg.cholesky(objective.information(result.x)[np.ix_(rest, rest)])
        except (ValueError, ArithmeticError, np.linalg.LinAlgError):
            continue
        log_weight = float(shares[level] - result.fun - np.log(np.diag(factor)).sum())
        if math.isfinite(log_weight):
            theta = result.x
            step = np.linalg.solve(factor.T, signs[level])
            for sign in (-1.0, 1.0):
                drawn = theta.copy()
                drawn[rest] += sign * step
                found.append((log_weight, np.clip(drawn, *np.transpose(bounds))))
    if not found:
        reason = "hyperparameters at their prior mode, no fit was finite"
        return Mixture(np.ones(1), (conditioned(x, y, runs, *objective.kernel(objective.prior_mean), reason),))
    weights = np.exp(np.array([log_weight for log_weight, _ in found]) - max(log_weight for log_weight, _ in found))
    weights /= weights.sum()
    kept = np.flatnonzero(weights >= min(0.5 * _LEAST_WEIGHT, float(weights.max())))
    parts = tuple(conditioned(x, y, runs, *objective.kernel(found[i][1])) for i in kept)
    return Mixture(weights[kept] / weights[kept].sum(), parts)
