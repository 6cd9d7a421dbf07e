"""Gaussian processes: the exact posterior of a Matern-5/2 process.

`fit` has the hyperparameters at their mode. `fit_mixture` averages over them.

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

The mixture averages the posterior over the hyperparameters, because what is noise, and what is signal, is not known.
From distinct points, each measured once, the data hardly tell noise from a function that varies quickly. The mode of
the hyperparameters then names one of many explanations, and where it takes luck for signal the highest measurement
looks best and certain. So the average is over a grid of noise variances, and at each over draws of the other
hyperparameters. Repeated and neighbouring points move the weights to the noise that they show. Where the amplitude of
the scores rises with the cost parameter, noise may be the same everywhere, or rise like the amplitude: a short run that
has learnt nothing repeats well. The average is over both.

    v_j        the levels of the noise variance;  theta_j  the mode of the other hyperparameters at v_j
    H_j        the Fisher information of theta at theta_j, 1/2 tr(K^-1 dK K^-1 dK), plus the prior's precision
    w_j        weight of a level: p(y, theta_j, v_j) det(H_j)^(-1/2) times the level's share of the log axis
    theta_jk   draws of N(theta_j, H_j^-1), antithetic pairs

Everything is float64 on numpy and LAPACK. The kernel and its gradient are written out. Through a library of automatic
differentiation they took 4 to 12 times as long at the sizes that sweeps have (n = 15 to 200), and the engine may take
only a small share of a sweep's time. The tests compare both with gpytorch, and the information with differences.
Callers should run under `single_thread`: at n = 200 a fit on four BLAS threads takes 20 times as long as on one.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 2.25, 2.26, 4.17, 5.8, 5.9;
for the average Rue, Martino and Chopin, Approximate Bayesian Inference for Latent Gaussian Models by Using Integrated
Nested Laplace Approximations (2009), section 3, with the information of Rasmussen and Williams, section 5.4.1, in
expectation, which is always positive definite.
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

Array = NDArray[np.float64]
Runs = NDArray[np.intp]  # labels: which run each observation is of

LENGTHSCALE_SD = 1.0  # of the log lengthscale's prior, in all models
MAX_FIT_POINTS = 160  # hyperparameters are fitted to at most this many points (cost grows with the cube)
MAX_POINTS = 800  # the posterior conditions on at most this many
_LOG_BOUNDS = (math.log(0.02), math.log(50.0))  # of lengthscales and outputscale
_LOG_NOISE_BOUNDS = (math.log(1e-6), math.log(2.0))
_SLOPE_BOUNDS = (-4.0, 4.0)
_BLOCK = 25_600  # entries of a kernel matrix that are computed at once
_MAX_BLOCK = 2048  # inputs of one prediction: the matrices of more leave the cache, and each is fetched anew
_NUM_FEATURES = 512  # of a function drawn from the posterior
_NUM_REMEMBERED = 8  # fits: three of costs, two of scores, one of failures (a warm start has all of them), and two more
_LOG_2PI = math.log(2.0 * math.pi)
_JITTERS = (1e-10, 1e-8, 1e-6, 1e-4, 1e-2)  # times the mean diagonal, until the Cholesky factor exists
_LOG_NOISES = np.log([1e-5, 1e-3, 0.01, 0.04, 0.12, 0.3, 0.7])  # ln v_j
_LEAST_WEIGHT = 0.01  # of a level in the average: those below it are left out
_OPTIONS = {"maxiter": 40, "ftol": 1e-6, "gtol": 1e-3}  # of L-BFGS


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """Normal priors (mean, standard deviation) of the hyperparameters, and the fixed variances b2 and w2.

    The run variance counts only where some runs were observed more than once.
    """

    log_lengthscale: tuple[float, float]
    log_outputscale: tuple[float, float]
    log_noise: tuple[float, float]
    log_run_variance: tuple[float, float] | None = None  # None: no run variance
    amplitude_slope: tuple[float, float] | None = None  # None: the same amplitude everywhere
    amplitude_column: int = 0  # of the inputs, along which the amplitude rises
    bias_variance: float = 0.0
    linear_variance: float = 0.0


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """k(x, x') without noise and run variance. `lengthscale` is `p`, one for each column."""

    lengthscale: Array
    outputscale: float
    amplitude_slope: float
    amplitude_column: int
    amplitude_center: float  # where the amplitude is 1
    bias_variance: float
    linear_variance: float

    def __call__(self, x1: Array, x2: Array) -> Array:
        """Returns the covariance of `n1 x p` and `n2 x p` inputs, `n1 x n2`."""
        a, b = (x1 - 0.5) / self.lengthscale, (x2 - 0.5) / self.lengthscale
        k = a @ b.T
        norm1, norm2 = np.sum(a * a, axis=1)[:, None], np.sum(b * b, axis=1)[None, :]
        amplitude1, amplitude2 = self.amplitude(x1)[:, None], self.amplitude(x2)[None, :]
        # A few rows at a time, in place: they stay in the cache, and all takes less than half of the time.
        size = min(max(_BLOCK // max(len(b), 1), 1), len(a))
        r_rows, rest_rows = np.empty((2, size, len(b)))
        for first in range(0, len(a), max(size, 1)):
            rows = k[first : first + size]
            r, rest = r_rows[: len(rows)], rest_rows[: len(rows)]
            np.multiply(rows, 2.0, out=rows)
            np.add(norm1[first : first + size], norm2, out=r)
            np.subtract(r, rows, out=r)  # the squared distance
            np.maximum(r, 0.0, out=r)
            np.multiply(r, 5.0, out=r)
            np.sqrt(r, out=r)
            np.multiply(r, r, out=rest)
            np.divide(rest, 3.0, out=rest)
            np.add(r, 1.0, out=rows)
            np.add(rows, rest, out=rows)  # 1 + r + r^2 / 3
            np.multiply(rows, self.outputscale, out=rows)
            np.negative(r, out=r)
            np.multiply(rows, np.exp(r, out=r), out=rows)
            if self.amplitude_slope:
                np.multiply(amplitude1[first : first + size], amplitude2, out=r)
                np.multiply(rows, r, out=rows)
        if self.bias_variance or self.linear_variance:
            k += self.bias_variance + self.linear_variance * ((x1 - 0.5) @ (x2 - 0.5).T)
        return np.asarray(k)

    def variance(self, x: Array) -> Array:
        """Returns k(x, x) at `n x p` inputs, `n`."""
        centred = x - 0.5
        linear = self.linear_variance * np.einsum("ij,ij->i", centred, centred)
        return np.asarray(self.outputscale * self.amplitude(x) ** 2 + self.bias_variance + linear)

    def amplitude(self, x: Array) -> Array:
        """Returns a(x) at `n x p` inputs, `n`."""
        return np.asarray(np.exp(self.amplitude_slope * (x[:, self.amplitude_column] - self.amplitude_center)))


class Objective:
    """Minus the log posterior of theta, up to a constant, and its gradient."""

    def __init__(
        self,
        x: Array,
        y: Array,
        columns: NDArray[np.intp],
        num_groups: int,
        prior: Prior,
        runs: Runs | None = None,
        *,
        noise_rises: bool = False,
    ) -> None:
        n = len(x)
        self.noise_rises = noise_rises and prior.amplitude_slope is not None
        self.n, self.y, self.columns, self.num_groups, self.prior = n, y, columns, num_groups, prior
        priors = [prior.log_lengthscale] * num_groups + [prior.log_outputscale, prior.log_noise]
        self.bounds = [_LOG_BOUNDS] * (num_groups + 1) + [_LOG_NOISE_BOUNDS]
        self.same_run: Array | None = None
        if prior.log_run_variance is not None and runs is not None and len(np.unique(runs)) < n:
            priors.append(prior.log_run_variance)
            self.bounds.append(_LOG_NOISE_BOUNDS)
            self.same_run = (runs[:, None] == runs[None, :]).astype(np.float64)
        self.heights: Array | None = None  # h(x) + h(x')
        self.amplitude_center = float(np.mean(x[:, prior.amplitude_column]))
        if prior.amplitude_slope is not None:
            priors.append(prior.amplitude_slope)
            self.bounds.append(_SLOPE_BOUNDS)
            height = x[:, prior.amplitude_column] - self.amplitude_center
            self.heights = height[:, None] + height[None, :]
        self.prior_mean, self.prior_sd = np.array(priors).T
        squared = (x[:, None, :] - x[None, :, :]) ** 2
        by_group = np.zeros((n, n, num_groups))
        for column, group in enumerate(columns):
            by_group[:, :, group] += squared[:, :, column]
        self.squared = by_group.reshape(n * n, num_groups)  # squared distance by lengthscale group
        self.lower = np.tri(n, dtype=bool)  # LAPACK fills only this half of an inverse
        centred = x - 0.5
        self.fixed = prior.bias_variance + prior.linear_variance * (centred @ centred.T)

    def read(self, theta: Array) -> tuple[Array, float, float, float, float]:
        """Returns log l, s2, v, u and g; u and g are 0 where they are not wanted."""
        log_l, (log_s2, log_v, *rest) = theta[: self.num_groups], theta[self.num_groups :].tolist()
        u = math.exp(rest.pop(0)) if self.same_run is not None else 0.0
        return log_l, math.exp(log_s2), math.exp(log_v), u, rest[0] if self.heights is not None else 0.0

    def kernel(self, theta: Array) -> tuple[Kernel, float, float]:
        """Returns the kernel at theta, noise and run variance."""
        log_l, s2, v, u, amplitude_slope = self.read(theta)
        kernel = Kernel(
            lengthscale=np.exp(log_l)[self.columns],
            outputscale=s2,
            amplitude_slope=amplitude_slope,
            amplitude_column=self.prior.amplitude_column,
            amplitude_center=self.amplitude_center,
            bias_variance=self.prior.bias_variance,
            linear_variance=self.prior.linear_variance,
        )
        return kernel, v, u

    def __call__(self, theta: Array) -> tuple[float, Array]:
        y = self.y
        _, _, v, u, amplitude_slope = self.read(theta)
        noise = self._noise(v, amplitude_slope)
        chol, matern, rise, w = self._factor(theta)
        if chol is None:
            return 1e10, np.zeros_like(theta)  # not positive definite: the line search steps back
        alpha, _ = lapack.dpotrs(chol, y, lower=1)
        inverse = self._inverse(chol)
        # d(-log p)/dK = (K^-1 - alpha alpha') / 2 (equation 5.9); d matern / d log l_g = decay (1 + r) / 3 * 5 D_g w_g
        slope = 0.5 * (inverse - np.outer(alpha, alpha))
        by_matern = slope * matern
        by_noise = noise * np.diag(slope)
        rest = [np.sum(by_matern), np.sum(by_noise)]
        if self.same_run is not None:
            rest.append(u * np.sum(slope * self.same_run))
        if self.heights is not None:
            rest.append(np.sum(by_matern * self.heights) + self.noise_rises * np.sum(by_noise * np.diag(self.heights)))
        gradient = np.append(((slope * rise).ravel() @ self.squared) * w * (5.0 / 3.0), rest)
        pull = (theta - self.prior_mean) / self.prior_sd
        value = 0.5 * float(y @ alpha) + float(np.log(np.diag(chol)).sum()) + 0.5 * float(pull @ pull)
        return value, gradient + pull / self.prior_sd

    def information(self, theta: Array) -> Array:
        """Returns the Fisher information of theta, 1/2 tr(K^-1 dK K^-1 dK), plus the prior's precision.

        Raises:
            ArithmeticError: K is not positive definite there.
        """
        _, _, v, u, amplitude_slope = self.read(theta)
        noise = self._noise(v, amplitude_slope)
        chol, matern, rise, w = self._factor(theta)
        if chol is None:
            raise ArithmeticError("the covariance is not positive definite")
        inverse = self._inverse(chol)
        squared = np.moveaxis(self.squared.reshape(self.n, self.n, self.num_groups), 2, 0)
        products = [inverse @ (rise * own * (w_own * 5.0 / 3.0)) for own, w_own in zip(squared, w, strict=True)]
        products += [inverse @ matern, inverse * noise]
        if self.same_run is not None:
            products.append(u * inverse @ self.same_run)
        if self.heights is not None:
            along = matern * self.heights
            along.flat[:: self.n + 1] += self.noise_rises * noise * np.diag(self.heights)
            products.append(inverse @ along)
        stacked = np.stack(products)
        flat, turned = stacked.reshape(len(stacked), -1), stacked.transpose(0, 2, 1).reshape(len(stacked), -1)
        return np.asarray(0.5 * flat @ turned.T + np.diag(self.prior_sd**-2))

    def _factor(self, theta: Array) -> tuple[Array | None, Array, Array, Array]:
        """Returns the factor of K (None where there is none), the Matern part, decay (1 + r), and 1 / l^2."""
        n = self.n
        log_l, s2, v, u, amplitude_slope = self.read(theta)
        w = np.exp(-2.0 * log_l)
        r = np.sqrt(5.0 * (self.squared @ w)).reshape(n, n)
        decay = s2 * np.exp(-r if self.heights is None else amplitude_slope * self.heights - r)
        matern = decay * (1.0 + r + r * r / 3.0)
        k = matern + self.fixed
        k.flat[:: n + 1] += self._noise(v, amplitude_slope)
        if self.same_run is not None:
            k += u * self.same_run
        chol, info = lapack.dpotrf(k, lower=1)
        return chol if info == 0 else None, matern, decay * (1.0 + r), w

    def _noise(self, v: float, amplitude_slope: float) -> Array:
        """Returns the noise variance at each observation, `n`."""
        if self.heights is None or not self.noise_rises:
            return np.full(self.n, v)
        return np.asarray(v * np.exp(amplitude_slope * np.diag(self.heights)))

    def _inverse(self, chol: Array) -> Array:
        inverse, _ = lapack.dpotri(chol, lower=1)
        return np.asarray(np.where(self.lower, inverse, inverse.T))


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

    def covariance(self, x: Array) -> Array:
        """Returns the posterior covariance of the noiseless process at `m x p` inputs, `m x m`."""
        v = solve_triangular(self.chol, self.kernel(x, self.x).T, lower=True, check_finite=False)
        return np.asarray(self.kernel(x, x) - v.T @ v)

    def contrast(self, x: Array, weights: Array) -> tuple[float, float]:
        """Returns mean and standard deviation of the weighted sum of the process at `m x p` inputs, weights `m`."""
        variance = float(weights @ self.covariance(x) @ weights)
        return float(weights @ self.mean(x)), math.sqrt(max(variance, 1e-12))

    def noise_at(self, x: Array) -> Array:
        """Returns the variance of one run's target around the true one at `m x p` inputs, `m`."""
        risen = self.kernel.amplitude(x) ** 2 if self.noise_rises else np.ones(len(x))
        return np.asarray(self.run_variance + self.noise * risen)

    def mean(self, x: Array) -> Array:
        """Returns the posterior mean alone, `m`, at `m x p` inputs: linear in the number of observations."""
        blocks = [x[i : i + _MAX_BLOCK] for i in range(0, max(len(x), 1), _MAX_BLOCK)]
        return np.concatenate([self.kernel(block, self.x) @ self.alpha for block in blocks])

    def draws(self, num_draws: int, rng: np.random.Generator, *, temper: float = 1.0) -> Callable[[Array], Array]:
        """Returns functions drawn from the posterior as one: of `m x p` inputs, `m x num_draws`, without noise.

        They are drawn by Matheron's rule: a draw of the prior from random Fourier features, corrected by the kernel to
        pass through the data. `temper` multiplies their distance from the posterior mean.

        Source: Rahimi and Recht, Random Features for Large-Scale Kernel Machines (2007); Wilson et al., Efficiently
        Sampling Functions from Gaussian Process Posteriors (2020), equation 13.
        """
        kernel, width = self.kernel, self.x.shape[1]
        # The spectral density of Matern-5/2 is Student's t with 5 degrees of freedom.
        spread = np.sqrt(rng.chisquare(5.0, (_NUM_FEATURES, 1)) / 5.0)
        frequencies = rng.standard_normal((_NUM_FEATURES, width)) / kernel.lengthscale / spread
        phases = rng.uniform(0.0, 2.0 * math.pi, _NUM_FEATURES)
        weights = rng.standard_normal((_NUM_FEATURES, num_draws)) * math.sqrt(2.0 * kernel.outputscale / _NUM_FEATURES)
        line: Array | None = None
        if kernel.bias_variance or kernel.linear_variance:
            deviations = np.sqrt([kernel.bias_variance] + [kernel.linear_variance] * width)
            line = rng.standard_normal((1 + width, num_draws)) * deviations[:, None]

        # Cosines of single precision take an eighth of the time. Their error, 1e-5, is far below any noise.
        single = weights.astype(np.float32)

        def prior(x: Array) -> Array:
            blocks = [x[i : i + _MAX_BLOCK] for i in range(0, max(len(x), 1), _MAX_BLOCK)]
            waves = [np.cos((block @ frequencies.T + phases).astype(np.float32)) @ single for block in blocks]
            drawn = np.concatenate(waves) * kernel.amplitude(x)[:, None]
            return np.asarray(drawn if line is None else drawn + line[0] + (x - 0.5) @ line[1:])

        risen = kernel.amplitude(self.x)[:, None] if self.noise_rises else 1.0
        noise = math.sqrt(self.noise) * risen * rng.standard_normal((len(self.x), num_draws))
        if self.run_variance:
            luck = math.sqrt(self.run_variance) * rng.standard_normal((int(self.runs.max()) + 1, num_draws))
            noise += luck[self.runs]
        correction, _ = lapack.dpotrs(self.chol, self.y[:, None] - prior(self.x) - noise, lower=1)
        known = temper * correction + (1.0 - temper) * self.alpha[:, None]
        return lambda x: np.asarray(temper * prior(x) + kernel(x, self.x) @ known)

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
        result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=objective.bounds, options=_OPTIONS)
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

    def covariance(self, x: Array) -> Array:
        """Returns the covariance of the noiseless process at `m x p` inputs, `m x m`: within processes and between."""
        away = np.stack([part.mean(x) for part in self.parts]) - self.mean(x)
        within = np.tensordot(self.weights, np.stack([part.covariance(x) for part in self.parts]), axes=1)
        return np.asarray(within + (away.T * self.weights) @ away)

    def draws(self, num_draws: int, rng: np.random.Generator) -> Callable[[Array], Array]:
        """Returns functions drawn from the mixture: of `m x p` inputs, `m x num_draws`, without noise.

        Each process has as many of them as its weight says, rounded. Those of one process stand together.
        """
        counts = np.diff(np.rint(np.cumsum(np.append(0.0, self.weights)) * num_draws).astype(int))
        draws = [part.draws(count, rng) for part, count in zip(self.parts, counts.tolist(), strict=True) if count]
        return lambda x: np.concatenate([draw(x) for draw in draws], axis=1)

    def mean(self, x: Array) -> Array:
        """Returns the mean alone, `m`, at `m x p` inputs."""
        return np.asarray(self.weights @ np.stack([part.mean(x) for part in self.parts]))

    def condition(self, x: Array, y: Array) -> "Mixture":
        """Returns the mixture conditioned on `m` further observations of other runs, with the same weights."""
        return Mixture(self.weights, tuple(part.condition(x, y) for part in self.parts))


def fit_mixture(x: Array, y: Array, groups: Sequence[int], prior: Prior, *, runs: Runs | None = None) -> Mixture:
    """Returns the mixture of processes over the grid of noise variances. Arguments as of `fit`.

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
        for log_noise, log_share in zip(_LOG_NOISES[::-1], np.log(np.gradient(_LOG_NOISES))[::-1], strict=True):
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
