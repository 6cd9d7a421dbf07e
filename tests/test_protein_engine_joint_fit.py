"""Own and source points in one process, up to the largest number of own points that are fitted."""

import math

import numpy as np
import pytest

from protein.engine import joint_fit
from protein.engine.gp import MAX_POINTS, Prior, fit
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
    process, joined = joint_fit.fit_jointly(own, space, space.features(x), groups, prior, x_source, y_source)
    assert joined == (num_own <= MAX_POINTS), "with more, the process saw only some of the own points"
    if joined:
        np.testing.assert_array_equal(process.y, np.concatenate([y_source, y]))
        np.testing.assert_array_equal(process.x[20:, :-1], space.features(x))
