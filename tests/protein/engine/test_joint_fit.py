"""Own and source points in one process, up to the largest number of own points that are fitted."""

import math

import numpy as np
import pytest

from protein.engine import joint_fit
from protein.engine.gp import MAX_POINTS, Array, Prior, fit
from protein.space import Float, Space

pytestmark = pytest.mark.usefixtures("one_blas_thread")


@pytest.mark.parametrize("num_own", [780, 790, 800, 801])
def test_the_own_results_are_told_from_the_source_by_their_position(
    num_own: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joint_fit, "_MIN_LOG_EVIDENCE", -math.inf)
    rng = np.random.default_rng(num_own)
    space = Space([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])
    x, x_source = space.sample(num_own, rng), space.sample(20, rng)
    y, y_source = rng.standard_normal(num_own), rng.standard_normal(20)
    prior = Prior(log_lengthscale=(0.0, 1.0), log_outputscale=(0.0, 1.0), log_noise=(-2.0, 1.0))
    groups = space.feature_groups()
    own = fit(space.features(x), y, groups, prior)
    process, joined = joint_fit.fit_jointly(own, space, space.features(x), groups, prior, [(x_source, y_source)])
    assert (joined == 0) == (num_own <= MAX_POINTS), "with more, the process saw only some of the own points"
    if joined is not None:
        np.testing.assert_array_equal(process.y, np.concatenate([y_source, y]))
        np.testing.assert_array_equal(process.x[20:, :-1], space.features(x))


def test_of_several_sources_the_one_that_predicts_is_used_and_none_of_noise() -> None:
    rng = np.random.default_rng(4)
    space = Space([Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)])
    prior = Prior(log_lengthscale=(0.0, 1.0), log_outputscale=(0.0, 1.0), log_noise=(-2.0, 1.0))
    groups = space.feature_groups()

    def truth(x: Array) -> Array:
        return np.sin(5.0 * x[:, 0]) + np.cos(6.0 * x[:, 1])

    x = space.sample(10, rng)
    noise = [(space.sample(30, rng), rng.standard_normal(30)) for _ in range(4)]
    x_helps = space.sample(30, rng)
    helps = (x_helps, truth(x_helps) + 0.05 * rng.standard_normal(30))
    own = fit(space.features(x), truth(x), groups, prior)
    for place in range(5):  # whatever the order
        sources = [*noise[:place], helps, *noise[place:]]
        process, used = joint_fit.fit_jointly(own, space, space.features(x), groups, prior, sources)
        assert used == place
        np.testing.assert_array_equal(process.y[:30], helps[1])
    assert joint_fit.fit_jointly(own, space, space.features(x), groups, prior, noise) == (own, None)
    assert joint_fit.fit_jointly(own, space, space.features(x), groups, prior, []) == (own, None)


def test_the_best_of_more_sources_has_to_bring_more_evidence(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    space = Space([Float("x", 0.0, 1.0)])
    x, x_source = space.sample(8, rng), space.sample(12, rng)
    y, y_source = np.sin(4.0 * x[:, 0]), np.sin(4.0 * x_source[:, 0])
    prior = Prior(log_lengthscale=(0.0, 1.0), log_outputscale=(0.0, 1.0), log_noise=(-2.0, 1.0))
    groups = space.feature_groups()
    own = fit(space.features(x), y, groups, prior)
    joint, _ = joint_fit.fit_jointly(own, space, space.features(x), groups, prior, [(x_source, y_source)])
    gain = joint.log_density(12) - own.log_density()
    assert gain > 0
    for num_sources, used in ((1, True), (3, True), (20, False)):  # ln 20 = 3
        monkeypatch.setattr(joint_fit, "_MIN_LOG_EVIDENCE", gain - 2.0)
        sources = [(x_source, y_source)] * num_sources
        found = joint_fit.fit_jointly(own, space, space.features(x), groups, prior, sources)[1]
        assert (found is not None) == used
