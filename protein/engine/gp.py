"""Gaussian processes: the exact posterior of a Matern-5/2 process at the mode of its hyperparameters.

Notation
    X        `n x p` inputs (model features, about [0, 1]);  y  `n` targets, about standardised
    l        `p` lengthscales, one for each parameter: the columns of a one-hot group share one
    s2, v    outputscale (variance of the process) and noise variance
    r        sqrt(5) |x / l - x' / l|
    a(x)     exp(g h(x)), the process's amplitude: h is one column of x, centred, and g the slope of the log amplitude
             along it (0: the same amplitude everywhere)
    k(x, x') = s2 a(x) a(x') (1 + r + r^2 / 3) exp(-r) + b2 + w2 (x - 1/2).(x' - 1/2)
    b2, w2   fixed variances of a bias and of linear weights: a Bayesian ridge regression beside the process, both
             inferred in one posterior (0 where none is wanted)
    u        run variance: the variance of a run's offset, which all its observations share (0 where every run has one
             observation)
    K = k(X, X) + u [same run] + v I = L L',  alpha = K^-1 y
    theta    (log l by parameter, log s2, log v, then log u and g where they are wanted), with independent normal
             priors; the mode is found by L-BFGS with the exact gradient

Everything is float64 on numpy and LAPACK. The kernel and its gradient are written out. Through a library of automatic
differentiation they took 4 to 12 times as long at the sizes that sweeps have (n = 15 to 200), and the engine may take
only a small share of a sweep's time. The tests compare both with gpytorch. Callers should run under `single_thread`: at
n = 200 a fit on four BLAS threads takes 20 times as long as on one.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25, 2.26, 4.17, 5.9.
"""

import contextlib
import dataclasses
import functools
import hashlib
import math
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import threadpoolctl
from numpy.typing import NDArray
from scipy.linalg import lapack, solve_triangular
from scipy.optimize import minimize

from protein.engine.evidence import Array as Array
from protein.engine.evidence import Kernel as Kernel
from protein.engine.evidence import Objective
from protein.engine.evidence import Prior as Prior
from protein.engine.evidence import Runs as Runs

LENGTHSCALE_SD = 1.0  # of the log lengthscale's prior, in all models
MAX_FIT_POINTS = 160  # hyperparameters are fitted to at most this many points (cost grows with the cube)
MAX_POINTS = 800  # the posterior conditions on at most this many
_MAX_BLOCK = 2048  # inputs of one prediction: the matrices of more leave the cache, and each is fetched anew
_MAX_ITERATIONS = 40
_NUM_REMEMBERED = 8  # fits: three of costs, two of scores, one of failures (a warm start has all of them), and two more
_LOG_2PI = math.log(2.0 * math.pi)
_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # times the mean diagonal, until the Cholesky factor exists


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class GaussianProcess:
    """A conditioned process. `chol` is the lower factor L, `alpha` K^-1 y."""

    x: Array
    y: Array
    runs: Runs
    kernel: Kernel
    noise: float
    run_variance: float
    chol: Array
    alpha: Array
    fallback: str = ""  # what went wrong in the fit and what was used instead; "" when nothing did
    noise_rises: bool = False  # with the amplitude: its variance at x is then v a(x)^2

    def predict(self, x: Array) -> tuple[Array, Array]:
        """Returns posterior mean and standard deviation, `m` each, of the noiseless process at `m x p` inputs."""
        if len(x) > _MAX_BLOCK:
            blocks = [self.predict(x[i : i + _MAX_BLOCK]) for i in range(0, len(x), _MAX_BLOCK)]
            return np.concatenate([mean for mean, _ in blocks]), np.concatenate([sd for _, sd in blocks])
        cross = self.kernel(x, self.x)
        mean = cross @ self.alpha
        v = solve_triangular(self.chol, cross.T, lower=True, check_finite=False)
        variance = self.kernel.variance(x) - np.einsum("ij,ij->j", v, v)
        return mean, np.sqrt(np.maximum(variance, 1e-12))

    def noise_at(self, x: Array) -> Array:
        """Returns the variance of one run's target around the true one at `m x p` inputs, `m`."""
        risen = self.kernel.amplitude(x) ** 2 if self.noise_rises else np.ones(len(x))
        return np.asarray(self.run_variance + self.noise * risen)

    def mean(self, x: Array) -> Array:
        """Returns the posterior mean alone, `m`, at `m x p` inputs: linear in the number of observations."""
        blocks = [x[i : i + _MAX_BLOCK] for i in range(0, max(len(x), 1), _MAX_BLOCK)]
        return np.concatenate([self.kernel(block, self.x) @ self.alpha for block in blocks])

    def log_density(self, given: int = 0) -> float:
        """Returns ln p of all observations but the first `given`, given those, at these hyperparameters."""
        whitened = solve_triangular(self.chol, self.y, lower=True, check_finite=False)[given:]
        log_diagonal = np.log(np.diag(self.chol)[given:])
        return -0.5 * float(whitened @ whitened) - float(log_diagonal.sum()) - 0.5 * len(whitened) * _LOG_2PI

    def log_posterior(self, groups: Sequence[int], prior: Prior) -> float:
        """Returns ln p of the observations and of the hyperparameters, up to a constant that all priors share.

        Args:
            groups, prior: those that it was fitted with, without a run variance and without a slope.
        """
        first = [groups.index(group) for group in range(max(groups) + 1)]
        values = [(math.log(self.kernel.lengthscale[column]), prior.log_lengthscale) for column in first]
        values += [(math.log(self.kernel.outputscale), prior.log_outputscale), (math.log(self.noise), prior.log_noise)]
        return self.log_density() - sum(0.5 * ((v - mean) / sd) ** 2 + math.log(sd) for v, (mean, sd) in values)

    def condition(self, x: Array, y: Array) -> "GaussianProcess":
        """Returns the process conditioned on `m` further observations of other runs, hyperparameters unchanged."""
        x_all, y_all = np.concatenate([self.x, x]), np.concatenate([self.y, y])
        runs = np.concatenate([self.runs, self.runs.max(initial=-1) + 1 + np.arange(len(x))])
        return conditioned(
            x_all,
            y_all,
            runs,
            self.kernel,
            self.noise,
            self.run_variance,
            self.fallback,
            noise_rises=self.noise_rises,
        )


def fit(
    x: Array,
    y: Array,
    groups: Sequence[int],
    prior: Prior,
    *,
    runs: Runs | None = None,
    max_points: int = MAX_POINTS,
) -> GaussianProcess:
    """Returns the process at the mode of its hyperparameters' posterior.

    Above `MAX_FIT_POINTS` points the mode is that of a subset, above `max_points` the posterior is, too (see `subset`).
    Where the fit fails, the hyperparameters are at the prior's own mode, and `fallback` says so.

    The last few fits are remembered. Between two finished trials the data stay the same, so 64 free workers are filled
    with one fit of each model.

    Args:
        x: `n x p`, n >= 1.
        y: `n`, finite, about standardised.
        groups: for each of the p columns the index of its lengthscale, counting up from 0.
        prior: of the hyperparameters.
        runs: `n`; None: each observation is of a run of its own.
        max_points: that the posterior conditions on; a prediction's cost grows with its square.
    """
    keep = subset(y, max_points)
    x, y, runs = x[keep], y[keep], (np.arange(len(y)) if runs is None else runs)[keep]
    digest = hashlib.sha256(repr((x.shape, tuple(groups), prior)).encode())
    for array in (x, y, runs):
        digest.update(np.ascontiguousarray(array).tobytes())
    return _remembered(_Question(digest.digest(), lambda: _fit(x, y, groups, prior, runs)))


@dataclasses.dataclass(frozen=True, slots=True)
class _Question:
    """A fit that is asked for, equal to another one when all its data are."""

    digest: bytes
    answer: Callable[[], GaussianProcess] = dataclasses.field(compare=False)


@functools.lru_cache(maxsize=_NUM_REMEMBERED)
def _remembered(question: _Question) -> GaussianProcess:
    return question.answer()


def _fit(x: Array, y: Array, groups: Sequence[int], prior: Prior, runs: Runs) -> GaussianProcess:
    columns = np.asarray(groups)
    num_groups = int(columns.max()) + 1
    fit_keep = subset(y, MAX_FIT_POINTS)
    objective = Objective(x[fit_keep], y[fit_keep], columns, num_groups, prior, runs[fit_keep])
    start = objective.prior_mean
    theta, fallback = start, ""
    try:
        result = minimize(
            objective,
            start,
            jac=True,
            method="L-BFGS-B",
            bounds=objective.bounds,
            options={"maxiter": _MAX_ITERATIONS, "ftol": 1e-6, "gtol": 1e-3},
        )
        if math.isfinite(result.fun) and np.isfinite(result.x).all():
            theta = result.x
        else:
            fallback = "hyperparameters at their prior mode, the fit gave no finite optimum"
    except (ValueError, ArithmeticError, np.linalg.LinAlgError) as error:
        fallback = f"hyperparameters at their prior mode, the fit failed ({type(error).__name__})"
    return conditioned(x, y, runs, *objective.kernel(theta), fallback)


def subset(y: Array, size: int) -> NDArray[np.intp]:
    """Returns at most `size` of n positions, in order: half of them the highest targets, the rest spread evenly.

    Which of equal targets are taken is left to chance, because the points lie in the order of their coordinates. The
    same n gives the same choice.
    """
    if len(y) <= size:
        return np.arange(len(y))
    order = np.lexsort((np.random.default_rng(0).permutation(len(y)), -y))
    top, rest = order[: size // 2], order[size // 2 :]
    spread = rest[np.linspace(0, len(rest) - 1, size - len(top)).round().astype(np.intp)]
    return np.sort(np.concatenate([top, spread]))


@contextlib.contextmanager
def single_thread() -> Iterator[None]:
    """Limits BLAS to one thread inside the block and restores the caller's setting after it."""
    with _thread_controller().limit(limits=1, user_api="blas"):
        yield


@functools.cache
def _thread_controller() -> threadpoolctl.ThreadpoolController:
    return threadpoolctl.ThreadpoolController()  # looks up the loaded libraries: 3 ms, so once


def conditioned(
    x: Array,
    y: Array,
    runs: Runs,
    kernel: Kernel,
    noise: float,
    run_variance: float,
    fallback: str = "",
    *,
    noise_rises: bool = False,
) -> GaussianProcess:
    """Returns the process conditioned on `n` observations at given hyperparameters."""
    k = kernel(x, x)
    if run_variance:
        k += run_variance * (runs[:, None] == runs[None, :])
    diagonal = float(np.mean(np.diag(k)))
    for jitter in _JITTERS:
        full = k.copy()
        full.flat[:: len(x) + 1] += noise * (kernel.amplitude(x) ** 2 if noise_rises else 1.0) + jitter * diagonal
        chol, info = lapack.dpotrf(full, lower=1, clean=1)
        if info == 0:
            break
    else:
        # Only inputs that are not finite get here. A diagonal factor keeps the prior and drops the data's correlations.
        chol = np.diag(np.sqrt(np.diag(full)))
        fallback = fallback or "points treated as unrelated, their covariance could not be factorised"
    alpha, _ = lapack.dpotrs(chol, y, lower=1)
    return GaussianProcess(
        x=x,
        y=y,
        runs=runs,
        kernel=kernel,
        noise=noise,
        run_variance=run_variance,
        chol=chol,
        alpha=alpha,
        fallback=fallback,
        noise_rises=noise_rises,
    )
