"""Gaussian processes against plain linear algebra, gpytorch and finite differences, and on inputs that break fits."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
import threadpoolctl
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import approx_fprime

from protein.engine import gp
from protein.engine.gp import (
    Array,
    GaussianProcess,
    Objective,
    Prior,
    conditioned,
    fit,
    fit_mixture,
    single_thread,
    subset,
)

pytestmark = pytest.mark.usefixtures("one_blas_thread")

PRIOR = Prior(log_lengthscale=(-0.3, 1.0), log_outputscale=(0.0, 0.7), log_noise=(math.log(1e-3), 1.5))
RIDGE = Prior(
    log_lengthscale=(0.0, 1.0),
    log_outputscale=(math.log(0.05), 1.0),
    log_noise=(math.log(3e-3), 1.5),
    bias_variance=1.0,
    linear_variance=0.5,
)
RISING = Prior(
    log_lengthscale=(-0.3, 1.0),
    log_outputscale=(0.0, 0.7),
    log_noise=(-4.6, 2.0),
    log_run_variance=(-5.0, 2.0),
    amplitude_slope=(0.7, 0.7),
    amplitude_column=1,
)


def data(n: int, p: int, seed: int = 0) -> tuple[Array, Array]:
    rng = np.random.default_rng(seed)
    x = rng.random((n, p))
    y = np.sin(5.0 * x[:, 0]) + 0.5 * x[:, p - 1]
    return x, (y - y.mean()) / y.std()


def slow_kernel(process: GaussianProcess, a: Array, b: Array) -> float:
    """The definition, written for one pair."""
    kernel = process.kernel
    r = math.sqrt(5.0 * sum(((u - v) / scale) ** 2 for u, v, scale in zip(a, b, kernel.lengthscale, strict=True)))
    linear = sum((u - 0.5) * (v - 0.5) for u, v in zip(a, b, strict=True))
    heights = a[kernel.amplitude_column] + b[kernel.amplitude_column] - 2.0 * kernel.amplitude_center
    matern = kernel.outputscale * math.exp(kernel.amplitude_slope * heights) * (1.0 + r + r * r / 3.0) * math.exp(-r)
    return float(matern + kernel.bias_variance + kernel.linear_variance * linear)


RUNS = np.repeat(np.arange(4), 3)  # of twelve observations


@pytest.mark.parametrize("runs", [None, RUNS])
@pytest.mark.parametrize("prior", [PRIOR, RIDGE, RISING])
def test_the_posterior_is_the_textbook_one(prior: Prior, runs: NDArray[np.intp] | None) -> None:
    x, y = data(12, 3)
    process = fit(x, y, range(3), prior, runs=runs)
    assert (process.run_variance > 0) == (prior is RISING and runs is not None)
    assert (process.kernel.amplitude_slope != 0) == (prior is RISING)
    new = np.random.default_rng(1).random((5, 3))
    k = np.array([[slow_kernel(process, a, b) for b in x] for a in x]) + process.noise * np.eye(12)
    k += process.run_variance * np.kron(np.eye(4), np.ones((3, 3)))
    cross = np.array([[slow_kernel(process, a, b) for b in x] for a in new])
    own = np.array([slow_kernel(process, a, a) for a in new])
    inverse = np.linalg.inv(k)
    mean, sd = process.predict(new)
    assert mean == pytest.approx(cross @ inverse @ y, abs=1e-6)
    assert sd**2 == pytest.approx(own - np.einsum("ij,jk,ik->i", cross, inverse, cross), abs=1e-6)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # gpytorch's own, when it is imported
def test_kernel_and_evidence_agree_with_gpytorch() -> None:
    torch = pytest.importorskip("torch")
    import gpytorch  # takes seconds, and no other test needs it

    x, y = data(15, 4)
    prior = Prior(log_lengthscale=(-0.3, 1e6), log_outputscale=(0.0, 1e6), log_noise=(-3.0, 1e6))  # as good as flat
    objective = gp.Objective(x, y, np.arange(4), 4, prior)
    theta = np.array([-0.5, 0.2, 0.0, -0.1, 0.3, -2.0])
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=2.5, ard_num_dims=4)).double()
    kernel.base_kernel.lengthscale = torch.tensor(np.exp(theta[:4]))
    kernel.outputscale = math.exp(theta[4])
    with torch.no_grad():
        covariance = kernel(torch.tensor(x)).to_dense().numpy() + math.exp(theta[5]) * np.eye(15)
    expected = 0.5 * y @ np.linalg.solve(covariance, y) + 0.5 * np.linalg.slogdet(covariance)[1]
    assert objective(theta)[0] == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("prior", [PRIOR, RIDGE, RISING])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3], [0, 1, 1, 1]])
@pytest.mark.parametrize("noise_rises", [False, True])
def test_the_gradient_is_exact(prior: Prior, columns: list[int], noise_rises: bool) -> None:
    x, y = data(20, 4)
    num_groups = max(columns) + 1
    runs = np.arange(20) // 2
    objective = gp.Objective(x, y, np.array(columns), num_groups, prior, runs, noise_rises=noise_rises)
    rng = np.random.default_rng(2)
    for _ in range(5):
        theta = objective.prior_mean + 0.5 * rng.standard_normal(len(objective.prior_mean))
        numeric = approx_fprime(theta, lambda t: objective(t)[0], 1e-6)
        assert objective(theta)[1] == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_the_mode_is_no_worse_than_its_surroundings() -> None:
    x, y = data(25, 3)
    process = fit(x, y, range(3), PRIOR)
    objective = gp.Objective(x, y, np.arange(3), 3, PRIOR)
    mode = np.log([*process.kernel.lengthscale, process.kernel.outputscale, process.noise])
    at_mode = objective(mode)[0]
    rng = np.random.default_rng(0)
    assert all(objective(mode + 0.2 * rng.standard_normal(5))[0] > at_mode - 1e-3 for _ in range(50))


def test_what_does_not_matter_gets_a_longer_lengthscale() -> None:
    rng = np.random.default_rng(3)
    x = rng.random((60, 4))
    y = np.sin(6.0 * x[:, 1])
    process = fit(x, (y - y.mean()) / y.std(), range(4), PRIOR)
    assert process.kernel.lengthscale[1] < 0.5 * min(process.kernel.lengthscale[[0, 2, 3]])


def test_a_group_shares_its_lengthscale() -> None:
    x, y = data(20, 5)
    process = fit(x, y, [0, 1, 1, 1, 2], PRIOR)
    assert process.kernel.lengthscale[1] == process.kernel.lengthscale[2] == process.kernel.lengthscale[3]
    assert process.kernel.lengthscale.shape == (5,)


def test_run_variance_is_told_from_noise() -> None:
    """Six points of each of twenty runs at one place: what a run has in common is run variance, the rest noise."""
    rng = np.random.default_rng(0)
    runs = np.repeat(np.arange(20), 6)
    x = np.full((120, 2), 0.3)
    y = 0.7 * rng.standard_normal(20)[runs] + 0.1 * rng.standard_normal(120)
    process = fit(x, y, range(2), dataclasses.replace(RISING, amplitude_slope=None), runs=runs)
    assert process.noise == pytest.approx(0.01, rel=0.4)
    assert process.run_variance == pytest.approx(0.49, rel=0.5)
    # Six points of a run are one witness, not six.
    alone = fit(x[:6], y[:6], range(2), RISING).predict(x[:1])[1][0]
    assert process.predict(x[:1])[1][0] > 2.0 * alone


def test_the_amplitude_slope_finds_where_scores_differ() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((60, 2))
    y = np.sin(5.0 * x[:, 0]) * np.exp(3.0 * (x[:, 1] - 0.5))
    process = fit(x, y / y.std(), range(2), RISING)
    assert process.kernel.amplitude_slope > 1.5
    flat = fit(x, np.sin(5.0 * x[:, 0]), range(2), RISING)
    assert abs(flat.kernel.amplitude_slope) < 0.5


def test_conditioning_equals_having_known() -> None:
    x, y = data(20, 3)
    process = fit(x[:15], y[:15], range(3), PRIOR)
    later = process.condition(x[15:], y[15:])
    new = np.random.default_rng(1).random((7, 3))
    k = np.array([[slow_kernel(process, a, b) for b in x] for a in x]) + process.noise * np.eye(20)
    cross = np.array([[slow_kernel(process, a, b) for b in x] for a in new])
    assert later.predict(new)[0] == pytest.approx(cross @ np.linalg.solve(k, y), abs=1e-6)
    assert (later.predict(new)[1] <= process.predict(new)[1] + 1e-9).all()


@given(
    n=st.integers(1, 12),
    duplicate=st.booleans(),
    values=st.sampled_from(["equal", "outlier", "random", "two"]),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_no_data_break_a_fit(n: int, duplicate: bool, values: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.random((n, 3))
    if duplicate:
        x[:] = x[0]
    y = {
        "equal": np.zeros(n),
        "outlier": np.where(np.arange(n) == 0, 1e6, rng.standard_normal(n)),
        "random": rng.standard_normal(n),
        "two": np.where(rng.random(n) < 0.5, -1.0, 1.0),
    }[values]
    for prior in (PRIOR, RIDGE):
        process = fit(x, y, range(3), prior)
        mean, sd = process.predict(np.concatenate([x, rng.random((5, 3)), [[0.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]]]))
        assert np.isfinite(mean).all()
        assert np.isfinite(sd).all()
        assert (sd > 0).all()


def test_covariances_are_those_of_the_deviations_and_of_draws() -> None:
    rng = np.random.default_rng(3)
    x, at = rng.random((20, 2)), rng.random((6, 2))
    y = np.sin(5.0 * x[:, 0]) + 0.3 * rng.standard_normal(20)
    single, mixture = fit(x, y, [0, 1], PRIOR), fit_mixture(x, y, [0, 1], PRIOR)
    for process in (single, mixture):
        assert np.sqrt(np.diag(process.covariance(at))) == pytest.approx(process.predict(at)[1], rel=1e-6)
    assert len(mixture.parts) > 1
    means = np.stack([part.mean(at) for part in mixture.parts])
    second = sum(
        w * (part.covariance(at) + np.outer(m, m))
        for w, part, m in zip(mixture.weights, mixture.parts, means, strict=True)
    )
    assert mixture.covariance(at) == pytest.approx(second - np.outer(mixture.mean(at), mixture.mean(at)))


@pytest.mark.parametrize("linear", [0.0, 0.5])
def test_drawn_functions_have_the_posteriors_mean_and_covariance(linear: float) -> None:
    rng = np.random.default_rng(0)
    x, at = rng.random((12, 2)), rng.random((5, 2))
    kernel = dataclasses.replace(
        fit(x, np.sin(5.0 * x[:, 0]), [0, 1], PRIOR).kernel, bias_variance=linear, linear_variance=linear
    )
    process = gp.conditioned(x, np.sin(5.0 * x[:, 0]), np.arange(12) // 2, kernel, 0.01, 0.02, noise_rises=True)
    both = gp.Mixture(np.array([0.25, 0.75]), (process, process))
    # Functions that share their waves are alike, so that many draws of waves are needed.
    drawn = np.concatenate([both.draws(40, np.random.default_rng(seed))(at) for seed in range(60)], axis=1)
    assert drawn.shape == (5, 2400)
    np.testing.assert_allclose(drawn.mean(axis=1), process.mean(at), atol=0.05)
    np.testing.assert_allclose(np.cov(drawn), process.covariance(at), atol=0.02)
    tempered = process.draws(3, np.random.default_rng(0), temper=0.0)(at)
    np.testing.assert_allclose(tempered, np.tile(process.mean(at)[:, None], 3))


def test_many_points_use_a_subset() -> None:
    x, y = data(2000, 4)
    process = fit(x, y, range(4), PRIOR)
    assert len(process.x) == gp.MAX_POINTS
    mean, _ = process.predict(x)
    assert np.sqrt(np.mean((mean - y) ** 2)) < 0.1


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.integers(2, 20))
def test_a_subset_keeps_the_best(y: list[float], size: int) -> None:
    keep = subset(np.array(y), size)
    assert len(keep) == len(set(keep.tolist())) == min(len(y), size)
    assert sorted(keep) == keep.tolist()
    assert max(y) == max(y[i] for i in keep)


def test_of_equal_targets_a_subset_takes_some_from_everywhere() -> None:
    """The points lie in the order of their coordinates, so the first ones would be those of one corner."""
    keep = subset(np.ones(1000), 100)
    assert np.histogram(keep, 4, (0, 1000))[0].max() < 40


def test_a_fit_that_fails_says_so_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise np.linalg.LinAlgError("no convergence")

    x, y = data(10, 2)
    monkeypatch.setattr(gp, "minimize", broken)
    process = fit(x, y, range(2), PRIOR)
    assert "the fit failed (LinAlgError)" in process.fallback
    assert process.kernel.lengthscale == pytest.approx(math.exp(-0.3))
    assert np.isfinite(process.predict(x)[0]).all()


def test_the_callers_threads_are_restored() -> None:
    def threads() -> list[int]:
        """Of the libraries that the engine computes with. Other tests may have loaded more of them."""
        pools = [pool for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"]
        own = [pool["num_threads"] for pool in pools if "numpy" in pool["filepath"] or "scipy" in pool["filepath"]]
        return own or [pool["num_threads"] for pool in pools]

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        before = threads()
        with single_thread():
            assert set(threads()) == {1}
        assert threads() == before
        assert set(before) == {2}


def test_many_points_are_predicted_like_each_of_them() -> None:
    process = fit(*data(20, 3), [0, 1, 2], PRIOR)
    x, _ = data(2 * gp._MAX_BLOCK + 3, 3, seed=1)
    mean, sd = process.predict(x)
    some = [0, gp._MAX_BLOCK - 1, gp._MAX_BLOCK, len(x) - 1]
    np.testing.assert_allclose(np.stack([mean, sd])[:, some], process.predict(x[some]), rtol=1e-8)
    np.testing.assert_allclose(process.mean(x), mean, rtol=1e-10, atol=1e-12)
    assert len(process.mean(x[:0])) == 0


def test_a_fit_is_remembered_for_the_same_data_alone() -> None:
    x, y = data(20, 3)
    first = fit(x, y, range(3), PRIOR)
    assert fit(x.copy(), y.copy(), [0, 1, 2], PRIOR) is first
    gp._remembered.cache_clear()
    again = fit(x, y, range(3), PRIOR)
    assert again is not first and np.array_equal(again.alpha, first.alpha)
    moved, runs = y.copy(), np.arange(20) // 2
    moved[7] += 1e-12
    others = [
        fit(x, moved, range(3), PRIOR),
        fit(x, y, [0, 0, 1], PRIOR),
        fit(x, y, range(3), RIDGE),
        fit(x, y, range(3), PRIOR, runs=runs),
        fit(x, y, range(3), PRIOR, max_points=10),
    ]
    assert len({id(process) for process in (again, *others)}) == 6


# The posterior averaged over the noise: against brute force, and as honest as it says.

AVERAGED_PRIOR = Prior(log_lengthscale=(-0.5, 0.7), log_outputscale=(0.0, 0.7), log_noise=(-1.5, 1.5))
RISING_PRIOR = Prior(
    log_lengthscale=(-0.3, 1.0),
    log_outputscale=(0.0, 0.7),
    log_noise=(-1.5, 1.5),
    log_run_variance=(-3.0, 2.0),
    amplitude_slope=(0.7, 0.7),
)


def mixture_data(n: int, d: int, noise: float) -> tuple[Array, Array]:
    rng = np.random.default_rng(4)
    x = rng.random((n, d))
    return x, np.sin(5.0 * x[:, 0]) + noise * rng.standard_normal(n)


@pytest.mark.parametrize("noise_rises", [False, True])
def test_the_information_is_the_trace_over_the_derivatives_of_the_covariance(noise_rises: bool) -> None:
    x, y = mixture_data(20, 4, 0.3)
    columns, runs = np.array([0, 1, 1, 2]), np.arange(20) // 2
    objective = Objective(x, y, columns, 3, RISING_PRIOR, runs, noise_rises=noise_rises)

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
    x, y = mixture_data(9, 1, noise)
    y = (y - y.mean()) / y.std()
    objective, new = Objective(x, y, np.zeros(1, dtype=int), 1, AVERAGED_PRIOR), np.linspace(0.0, 1.0, 7)[:, None]
    grids = [np.linspace(-3.0, 2.0, 11), np.linspace(-2.5, 2.5, 8), np.linspace(-13.0, 0.5, 21)]  # to 3 digits
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
    mixture = fit_mixture(x, y, [0], AVERAGED_PRIOR)
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
    mixture = fit_mixture(x, y, range(6), AVERAGED_PRIOR)
    assert mode.noise < 0.1 < 0.3 < mixture.noise
    same = np.concatenate([x, x])
    quiet = fit_mixture(same, np.concatenate([y, y]), range(6), AVERAGED_PRIOR)
    loud = fit_mixture(same, np.concatenate([y, rng.standard_normal(30)]), range(6), AVERAGED_PRIOR)
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
    x, y = mixture_data(10, 2, 0.1)
    mixture = fit_mixture(x, y, range(2), AVERAGED_PRIOR)
    assert mixture.fallback == "hyperparameters at their prior mode, no fit was finite"
    assert mixture.noise == pytest.approx(math.exp(-1.5)) and np.isfinite(mixture.predict(x)[0]).all()
