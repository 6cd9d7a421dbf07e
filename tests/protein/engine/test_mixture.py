"""The posterior averaged over the noise: against brute force, and as honest as it says."""

import itertools
import math

import numpy as np
import pytest

from protein.engine.gp import Array, Objective, Prior, conditioned, fit, fit_mixture

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PRIOR = Prior(log_lengthscale=(-0.5, 0.7), log_outputscale=(0.0, 0.7), log_noise=(-1.5, 1.5))
RISING = Prior(
    log_lengthscale=(-0.3, 1.0),
    log_outputscale=(0.0, 0.7),
    log_noise=(-1.5, 1.5),
    log_run_variance=(-3.0, 2.0),
    amplitude_slope=(0.7, 0.7),
)


def data(n: int, d: int, noise: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    x = rng.random((n, d))
    return x, np.sin(5.0 * x[:, 0]) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("noise_rises", [False, True])
def test_the_information_is_the_trace_over_the_derivatives_of_the_covariance(noise_rises: bool) -> None:
    x, y = data(20, 4, 0.3)
    columns, runs = np.array([0, 1, 1, 2]), np.arange(20) // 2
    objective = Objective(x, y, columns, 3, RISING, runs, noise_rises=noise_rises)

    def covariance(theta: Array) -> Array:
        kernel, noise, run_variance = objective.kernel(theta)
        return np.asarray(
            kernel(x, x)
            + noise * np.diag(kernel.amplitude(x) ** 2 if noise_rises else np.ones(20))
            + run_variance * (runs[:, None] == runs[None, :])
        )

    theta = objective.prior_mean + 0.3
    inverse = np.linalg.inv(covariance(theta))
    steps = 1e-5 * np.eye(len(theta))
    products = [inverse @ (covariance(theta + step) - covariance(theta - step)) / 2e-5 for step in steps]
    expected = [[0.5 * np.trace(a @ b) for b in products] for a in products] + np.diag(objective.prior_sd**-2)
    assert objective.information(theta) == pytest.approx(expected, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize(
    "noise", [pytest.param(0.0, marks=pytest.mark.slow), 0.3, pytest.param(1.0, marks=pytest.mark.slow)]
)
def test_it_is_near_the_integral_over_all_hyperparameters(noise: float) -> None:
    x, y = data(9, 1, noise)
    y = (y - y.mean()) / y.std()
    objective, new = Objective(x, y, np.zeros(1, dtype=int), 1, PRIOR), np.linspace(0.0, 1.0, 7)[:, None]
    grids = [np.linspace(-3.0, 2.0, 21), np.linspace(-2.5, 2.5, 15), np.linspace(-13.0, 0.5, 41)]
    log_weights, means, variances, noises = [], [], [], []
    for theta in itertools.product(*grids):
        process = conditioned(x, y, np.arange(9), *objective.kernel(np.array(theta)))
        mean, sd = process.predict(new)
        log_weights.append(-objective(np.array(theta))[0])
        means.append(mean)
        variances.append(sd**2)
        noises.append(process.noise)
    w = np.exp(np.array(log_weights) - max(log_weights))
    w /= w.sum()
    mean = w @ np.array(means)
    sd = np.sqrt(w @ (np.array(variances) + (np.array(means) - mean) ** 2))
    mixture = fit_mixture(x, y, [0], PRIOR)
    assert float(np.sum(mixture.weights)) == pytest.approx(1.0)
    assert mixture.noise == pytest.approx(float(w @ noises), rel=0.35, abs=0.02)
    found_mean, found_sd = mixture.predict(new)
    assert found_mean == pytest.approx(mean, abs=0.2)
    assert found_sd == pytest.approx(sd, rel=0.3, abs=0.03)
    again = mixture.condition(new[:1], found_mean[:1])
    assert again.predict(new[:1])[1][0] < found_sd[0] and len(again.x) == 10


def test_distinct_points_do_not_hide_the_noise_and_repeats_show_it() -> None:
    """The mode takes noise between points that are far apart for a quick function; the average doubts it."""
    rng = np.random.default_rng(0)
    x, y = rng.random((30, 6)), rng.standard_normal(30)
    mode = fit(x, y, range(6), Prior(log_lengthscale=(-0.4, 1.0), log_outputscale=(0.0, 0.7), log_noise=(-4.6, 2.0)))
    mixture = fit_mixture(x, y, range(6), PRIOR)
    assert mode.noise < 0.1 < 0.3 < mixture.noise
    same = np.concatenate([x, x])
    quiet = fit_mixture(same, np.concatenate([y, y]), range(6), PRIOR)
    loud = fit_mixture(same, np.concatenate([y, rng.standard_normal(30)]), range(6), PRIOR)
    assert quiet.noise < 0.01 and loud.noise == pytest.approx(0.7, abs=0.3)


def test_noise_that_rises_with_the_amplitude_is_told_from_noise_that_is_the_same_everywhere() -> None:
    """What is predicted of one more run at low and at high cost, after a sweep of each kind."""
    rng = np.random.default_rng(1)
    x = rng.random((60, 3))
    ends = np.array([[0.0, 0.5, 0.5], [1.0, 0.5, 0.5]])
    prior = Prior(
        log_lengthscale=(-0.3, 1.0), log_outputscale=(0.0, 0.7), log_noise=(-1.5, 1.5), amplitude_slope=(0.7, 0.7)
    )
    luck, amplitude = 0.5 * rng.standard_normal(60), np.exp(3.0 * (x[:, 0] - 0.5))
    rising = fit_mixture(x, amplitude * (np.sin(4.0 * x[:, 1]) - 0.5 + luck), range(3), prior).noise_at(ends)
    level = fit_mixture(x, amplitude * (np.sin(4.0 * x[:, 1]) - 0.5) + luck, range(3), prior).noise_at(ends)
    assert rising[1] > 8.0 * rising[0]
    assert level[1] < 2.0 * level[0]


def test_where_no_fit_is_finite_the_prior_mode_is_used_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> Array:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(Objective, "information", broken)
    x, y = data(10, 2, 0.1)
    mixture = fit_mixture(x, y, range(2), PRIOR)
    assert mixture.fallback == "hyperparameters at their prior mode, no fit was finite"
    assert mixture.noise == pytest.approx(math.exp(-1.5)) and np.isfinite(mixture.predict(x)[0]).all()
