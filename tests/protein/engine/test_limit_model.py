"""The model of limits on metrics: where they hold, by values of any scale, and what it says of nothing."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protein.engine.gp import Array
from protein.engine.limit_model import LimitModel, within
from protein.space import Float, Integer, Space
from protein.types import Limit

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space([Float(f"x{i}", 0.0, 1.0) for i in range(3)])


def fitted(x: Array, values: Array, *limits: Limit) -> LimitModel:
    return LimitModel.fit(SPACE, limits, x, [{"m": float(value)} for value in values])


@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("spread", [0.3, 12.0])  # within a factor of 2, and over five decades
def test_it_learns_where_a_limit_holds_on_any_scale(scale: float, spread: float) -> None:
    rng = np.random.default_rng(3)
    x, new = SPACE.sample(25, rng), SPACE.sample(300, rng)

    def memory(at: Array) -> Array:
        return np.asarray(scale * np.exp(spread * (at[:, 0] + 0.3 * at[:, 1] ** 2 - 0.6)))

    for limit in (Limit("m", "<=", scale), Limit("m", ">", scale)):
        p = fitted(x, memory(x), limit).p_holds(new)
        truth = np.array([limit.holds(value) for value in memory(new)])
        assert ((p > 0) & (p <= 1)).all()
        assert np.mean((p >= 0.5) == truth) > 0.95
        assert p[truth].mean() > 0.9 and p[~truth].mean() < 0.1


def test_chances_of_several_limits_multiply_and_the_order_of_trials_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    x, new = SPACE.sample(12, rng), SPACE.sample(9, rng)
    values = x[:, 0] + 0.1 * rng.standard_normal(12)
    low, high = Limit("m", ">=", 0.2), Limit("m", "<=", 0.6)
    each = [fitted(x, values, limit).p_holds(new) for limit in (low, high)]
    both = fitted(x, values, low, high).p_holds(new)
    np.testing.assert_allclose(both, each[0] * each[1])
    turned = fitted(x[::-1], values[::-1], low, high).p_holds(new)
    np.testing.assert_allclose(turned, both, rtol=1e-4)


def test_without_values_a_limit_counts_as_kept_and_is_named() -> None:
    x = SPACE.sample(3, np.random.default_rng(0))
    limit = Limit("m", "<=", 1.0)
    model = LimitModel.fit(SPACE, [limit], x, [{}, {"other": 1.0}, {"m": float("nan")}])
    assert model.unknown == (limit,) and model.models == ()
    assert model.p_holds(x).tolist() == [1.0] * 3


@given(
    st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=9),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from(["<=", ">="]),
)
@example([0.0, 5.691316621063379e18, 6.33179991700783e-290], 0.0, "<=")
@example([1e150], 1.0000000000000002e150, ">=")
@settings(max_examples=60, deadline=None)
def test_any_values_give_a_probability_and_keep_their_side(values: list[float], bound: float, sign: str) -> None:
    limit, array = Limit("m", sign, bound), np.array(values)
    t = within(limit, array)
    assert np.isfinite(t).all()
    assert all((one >= 0) == limit.holds(value) or one == 0 for one, value in zip(t, array, strict=True))
    x = SPACE.sample(len(values), np.random.default_rng(len(values)))
    p = fitted(x, array, limit).p_holds(x)
    assert np.isfinite(p).all() and ((p > 0) & (p <= 1)).all()


@pytest.mark.parametrize("text", ["<= 8", "< 8", ">= 8", "> 8", "<= 12", "<= 2"])
def test_a_limit_that_is_met_exactly_holds_there_and_a_strict_one_does_not(text: str) -> None:
    space = Space([Integer("layers", 1, 6), Float("lr", 0.0, 1.0)])
    x = space.sample(24, np.random.default_rng(1))
    limit = Limit("m", text.split()[0], float(text.split()[1]))
    values = [2.0 * float(params["layers"]) for params in map(space.from_unit, x)]
    keeps = LimitModel.fit(space, [limit], x, [{"m": value} for value in values]).keeps(x)
    assert keeps.tolist() == [limit.holds(value) for value in values]
