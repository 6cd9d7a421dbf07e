"""The acquisition against numeric integration and Monte Carlo, and the properties that make it cost-aware."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import norm

from protein.engine.acquisition import (
    cost_levels,
    front_at,
    log_expected_improvement,
    log_h,
    log_possible_improvement,
    log_value,
)
from protein.engine.pareto import hypervolume

LEVELS = cost_levels(0.0, 4.0)


def value(
    mean: float = 0.5,
    sd: float = 0.3,
    cost: float = 2.0,
    cost_sd: float = 0.1,
    p_ok: float = 1.0,
    exponent: float = 0.4,
    best_share: float = 0.0,
    top: float = 0.4,
) -> float:
    front = front_at(LEVELS, np.array([-1.0, 0.0, 0.4]), np.array([0.5, 1.5, 3.0]))
    arrays = [np.array([v]) for v in (mean, sd, cost, cost_sd, p_ok)]
    found = log_value(*arrays, levels=LEVELS, front=front, top=top, cost_exponent=exponent, best_share=best_share)
    return float(found[0])


@pytest.mark.parametrize("u", [-1e4, -150.0, -101.0, -99.0, -30.0, -5.0, -1.0001, -1.0, 0.0, 2.0, 40.0, 1e6])
def test_log_h_to_many_digits(u: float) -> None:
    with mpmath.workdps(60):
        v = -mpmath.mpf(u)
        if u > -140:  # cancellation: even with 60 digits the definition ends here
            expected = float(mpmath.log(mpmath.npdf(v) - v * mpmath.erfc(v / mpmath.sqrt(2)) / 2))
        else:
            series = 1 / v**2 - 3 / v**4 + 15 / v**6 - 105 / v**8
            expected = float(mpmath.log(series) - v**2 / 2 - mpmath.log(2 * mpmath.pi) / 2)
    assert log_h(np.array([u]))[0] == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(mean=st.floats(-2.0, 2.0), sd=st.floats(0.05, 2.0), best=st.floats(-2.0, 2.0))
@settings(max_examples=60, deadline=None)
def test_expected_improvement_is_its_integral(mean: float, sd: float, best: float) -> None:
    def integrand(z: float) -> float:
        return (z - best) * math.exp(-0.5 * ((z - mean) / sd) ** 2) / (sd * math.sqrt(2.0 * math.pi))

    upper = max(mean, best) + 12.0 * sd
    expected, _ = quad(integrand, best, upper, points=[mean] if best < mean < upper else None, epsabs=1e-14)
    result = math.exp(log_expected_improvement(np.array([mean]), np.array([sd]), np.array([best]))[0])
    assert result == pytest.approx(expected, rel=1e-6, abs=1e-12)


@given(mean=st.floats(-2.0, 2.0), sd=st.floats(0.05, 2.0), best=st.floats(-2.0, 2.0), room=st.floats(0.01, 3.0))
@settings(max_examples=40, deadline=None)
def test_improvement_ends_at_the_highest_possible_score(mean: float, sd: float, best: float, room: float) -> None:
    z = mean + sd * norm.ppf((np.arange(20_000) + 0.5) / 20_000)
    expected = float(np.mean(np.maximum(np.minimum(z, best + room) - best, 0.0)))
    found = log_possible_improvement(np.array([mean]), np.array([sd]), np.array([best]), best + room)
    assert math.exp(found[0]) == pytest.approx(expected, rel=1e-2, abs=1e-4 * sd)


def test_a_value_is_finite_and_still_ranks_where_the_highest_score_is_reached() -> None:
    means = np.array([-60.0, 0.0, 0.39, 0.41])
    ones = np.ones(4)
    for highest in (0.4, 0.2, 1.0):
        front = front_at(LEVELS, np.array([-1.0, 0.0, 0.4]), np.array([0.5, 1.5, 3.0]))
        found = log_value(
            means, 0.1 * ones, 2.0 * ones, 0.1 * ones, ones, levels=LEVELS, front=front, top=0.4, highest=highest
        )
        assert np.isfinite(found).all() and np.all(np.diff(found) > 0)


def test_far_below_the_front_candidates_still_rank() -> None:
    values = [value(mean=m, sd=1e-3) for m in (-50.0, -49.0, -48.0)]
    assert all(math.isfinite(v) for v in values)
    assert values[0] < values[1] < values[2]


def test_the_value_is_the_expected_growth_of_the_hypervolume() -> None:
    """With the exponent at 0: Monte Carlo over score and cost, and the shipped hypervolume as the judge."""
    known_scores, known_log_costs = np.array([-1.0, 0.0, 0.4]), np.array([0.5, 1.5, 3.0])
    levels = cost_levels(0.0, 4.0, 4000)
    front = front_at(levels, known_scores, known_log_costs)
    rng = np.random.default_rng(0)
    z, t = 0.3 + 0.4 * rng.standard_normal(4000), 1.8 + 0.5 * rng.standard_normal(4000)

    def volume(scores: np.ndarray, log_costs: np.ndarray) -> float:
        return hypervolume(scores, np.exp(log_costs), reference_score=-1.0, reference_cost=math.exp(4.0))

    before = volume(known_scores, known_log_costs)
    inside = np.maximum(t, 0.0)  # levels begin at 0: what a trial cheaper than that adds below it is not counted
    after = [volume(np.append(known_scores, a), np.append(known_log_costs, b)) for a, b in zip(z, inside, strict=True)]
    arguments = [np.array([v]) for v in (0.3, 0.4, 1.8, 0.5, 1.0)]
    result = float(np.exp(log_value(*arguments, levels=levels, front=front, top=0.0, cost_exponent=0.0)[0])) * 4.0
    assert result == pytest.approx(float(np.mean(after)) - before, rel=0.05)


def test_the_best_score_at_any_cost_has_its_share() -> None:
    # The best trial may cost more than the last level, which lies below the highest cost.
    gain = math.exp(log_expected_improvement(np.array([0.5]), np.array([0.3]), np.array([0.6]))[0])
    whole = math.exp(value(cost=3.9, exponent=0.0, best_share=0.25, top=0.6))
    front = math.exp(value(cost=3.9, exponent=0.0))
    assert whole == pytest.approx(0.75 * front + 0.25 * gain, rel=1e-9)
    # So an expensive trial, which reaches the last levels only, loses less by its cost.
    kept = [value(cost=3.9, best_share=b) - value(cost=1.0, best_share=b) for b in (0.0, 0.15)]
    assert kept[1] > kept[0]


@given(mean=st.floats(-3.0, 3.0), sd=st.floats(1e-3, 3.0), cost=st.floats(0.0, 3.5), more=st.floats(0.01, 3.0))
@settings(deadline=None)
def test_equal_gain_prefers_lower_cost(mean: float, sd: float, cost: float, more: float) -> None:
    for exponent in (0.0, 0.4):
        assert value(mean, sd, cost, exponent=exponent) >= value(mean, sd, cost + more, exponent=exponent)


@given(cost=st.floats(0.0, 4.0), mean=st.floats(-3.0, 3.0), more=st.floats(0.01, 3.0))
@settings(deadline=None)
def test_more_score_is_worth_more_and_failing_less(cost: float, mean: float, more: float) -> None:
    assert value(mean + more, cost=cost) > value(mean, cost=cost)
    assert value(mean, cost=cost, p_ok=0.5) == pytest.approx(value(mean, cost=cost) + math.log(0.5))


def test_uncertainty_is_worth_something_below_the_front() -> None:
    assert value(mean=-1.5, sd=1.0, cost=3.0) > value(mean=-1.5, sd=0.1, cost=3.0)


def test_the_front_is_a_staircase_that_starts_at_the_worst() -> None:
    front = front_at(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.2, 0.9, -0.5]), np.array([1.0, 3.0, 2.0]))
    assert front.tolist() == [-0.5, 0.2, 0.2, 0.9]


def test_levels_are_even_and_survive_an_empty_range() -> None:
    assert np.diff(LEVELS) == pytest.approx(np.full(23, 4.0 / 24))
    assert np.isfinite(cost_levels(1.0, 1.0)).all()
    assert len(set(cost_levels(1.0, 1.0).tolist())) == 24


def test_the_front_counts_from_a_quantile_of_what_is_known() -> None:
    levels, mean, log_cost = np.array([0.0, 1.0, 2.0]), np.array([-1.0, 0.0, 1.0]), np.array([0.5, 1.5, 1.9])
    assert front_at(levels, mean, log_cost, 0.5).tolist() == [0.0, 0.0, 1.0]
    assert front_at(levels, mean, log_cost, 0.0).tolist() == [-1.0, -1.0, 1.0]


def test_below_the_price_floor_cheaper_is_hardly_better() -> None:
    """At the same levels, a hundredth of the cost is worth less where the price floor is above both costs."""
    mean, sd, cost_sd, p_ok = (np.full(2, v) for v in (0.5, 0.3, 0.01, 1.0))
    cost, levels, front = np.array([-6.0, -1.4]), np.array([2.0]), np.array([0.0])
    free, floored = (
        log_value(
            mean, sd, cost, cost_sd, p_ok, levels=levels, front=front, top=0.0, cost_exponent=0.4, log_price_floor=floor
        )
        for floor in (-math.inf, 1.0)
    )
    assert free[0] - free[1] == pytest.approx(0.4 * 4.6)
    assert 0.0 < floored[0] - floored[1] < 0.05
