"""The failure model: where trials fail, and that the search can go on."""

import numpy as np
import pytest

from protein.engine.failure_model import FailureModel
from protein.space import Categorical, Float, Integer, Space

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Integer("steps", 1000, 1_000_000, scale="log"),
        Categorical("opt", ("adam", "muon")),
        Integer("width", 16, 256, scale="pow2"),
    ],
    cost_parameter="steps",
)


def test_failures_lower_the_odds_where_they_happened() -> None:
    rng = np.random.default_rng(2)
    x = SPACE.sample(40, rng)
    ok = x[:, 0] < 0.7
    model = FailureModel.fit(SPACE, x, ok)
    new = SPACE.sample(200, rng)
    p_ok = model.p_ok(new)
    assert ((p_ok > 0) & (p_ok <= 1)).all()
    assert p_ok[new[:, 0] < 0.5].mean() > 0.9
    assert p_ok[new[:, 0] > 0.85].mean() < 0.3


def test_without_failures_everything_is_expected_to_work() -> None:
    x = SPACE.sample(5, np.random.default_rng(0))
    assert FailureModel.fit(SPACE, x, np.ones(5, dtype=bool)).p_ok(x).tolist() == [1.0] * 5


def test_when_all_failed_the_search_can_go_on() -> None:
    x = SPACE.sample(5, np.random.default_rng(0))
    model = FailureModel.fit(SPACE, x, np.zeros(5, dtype=bool))
    far = 1.0 - x[:1]
    assert model.p_ok(far)[0] > model.p_ok(x)[0] > 0.0


def test_of_many_trials_failures_and_successes_are_learnt_from_in_proportion_and_from_everywhere() -> None:
    x = np.linspace(0.0, 1.0, 2000)[:, None].repeat(4, axis=1)  # in order, as the engine has them
    model = FailureModel.fit(SPACE, SPACE.canonical(x), np.arange(2000) % 20 != 0)
    assert model.process is not None
    failed, lr = model.process.y < 0.0, model.process.x[:, 0]
    assert (len(failed), int(failed.sum())) == (300, 15)
    for some in (lr[failed], lr[~failed]):
        assert np.mean(some < np.median(model.process.x[:, 0])) == pytest.approx(0.5, abs=0.25)
