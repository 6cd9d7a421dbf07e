"""The kernel of the Gaussian processes, and how likely hyperparameters are: notation in `protein.engine.gp`.

The kernel, its gradient and the information are written out in numpy; the tests compare them with gpytorch and with
differences.

Source: Rasmussen and Williams, Gaussian Processes for Machine Learning (2006), equations 4.17, 5.8 and 5.9.
"""

import dataclasses
import math

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lapack

Array = NDArray[np.float64]
Runs = NDArray[np.intp]  # labels: which run each observation is of

_LOG_BOUNDS = (math.log(0.02), math.log(50.0))  # of lengthscales and outputscale
_LOG_NOISE_BOUNDS = (math.log(1e-6), math.log(2.0))
_SLOPE_BOUNDS = (-4.0, 4.0)
_BLOCK = 25_600  # entries of a kernel matrix that are computed at once


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
