"""Whether the engine's intervals hold what they promise, on forecasts whose errors are known."""

import dataclasses
import math
from statistics import NormalDist

import numpy as np
import pytest
from sample_trials import failed, running, trial
from scipy.stats import binomtest

from protein.engine.forecasts import MAX_Z, MIN_FORECASTS, Quantity, binomial_p_value, forecast_quality, z_score
from protein.types import Estimate, TrialEnd, TrialRecord, TrialState

Z80 = NormalDist().inv_cdf(0.9)


def records(num: int, *, width: float, shift: float = 0.0, seed: int = 0) -> list[TrialRecord]:
    """Trials whose scores have a deviation of 2 and costs one of 30 %; intervals are `width` times as wide as honest
    ones, and everything comes out `shift` deviations higher than predicted."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(num):
        score, log_cost = rng.uniform(-100, 100), rng.uniform(0, 5)
        made.append(
            dataclasses.replace(
                trial(i, math.exp(log_cost + 0.3 * (rng.standard_normal() + shift)), None),
                score=score + 2.0 * (rng.standard_normal() + shift),
                predicted_score=Estimate(value=score, low=score - 2 * Z80 * width, high=score + 2 * Z80 * width),
                predicted_cost_seconds=Estimate(
                    value=math.exp(log_cost),
                    low=math.exp(log_cost - 0.3 * Z80 * width),
                    high=math.exp(log_cost + 0.3 * Z80 * width),
                ),
            )
        )
    return made


@pytest.mark.parametrize("quantity", ["score", "cost"])
def test_honest_intervals_are_found_to_be_about_right(quantity: Quantity) -> None:
    found = forecast_quality(records(400, width=1.0), quantity)
    assert found.coverage == pytest.approx(0.8, abs=0.05)
    assert (found.below + found.inside + found.above, sum(found.pit)) == (400, 400)
    assert found.mean_z == pytest.approx(0.0, abs=0.15)
    assert 60 < min(found.pit) < max(found.pit) < 100
    assert found.error == pytest.approx((2.0 if quantity == "score" else 0.3) * math.sqrt(2 / math.pi), rel=0.1)
    assert found.verdict.startswith(f"the {quantity} intervals are about right: ")


@pytest.mark.parametrize(("width", "word"), [(0.4, "narrow"), (2.5, "wide")])
def test_dishonest_widths_are_named(width: float, word: str) -> None:
    quantities: tuple[Quantity, ...] = ("score", "cost")
    for quantity in quantities:
        found = forecast_quality(records(100, width=width), quantity)
        assert f"the {quantity} intervals are too {word}: " in found.verdict
        assert (found.pit[2] < found.pit[0]) == (word == "narrow")


def test_a_bias_is_named_with_its_direction() -> None:
    low, high = records(60, width=1.0, shift=-0.8), records(60, width=1.0, shift=0.8)
    assert "scores are mostly lower than predicted" in forecast_quality(low, "score").verdict
    assert "costs come to mostly more than predicted" in forecast_quality(high, "cost").verdict


def test_change_over_the_sweep_is_seen() -> None:
    early, late = records(60, width=0.2), records(60, width=3.0)
    first, _, last = forecast_quality([*early, *late], "score").coverage_by_part
    assert first < 0.4 and last == 1.0


def test_only_trials_that_were_trained_to_their_end_count() -> None:
    cut = dataclasses.replace(trial(1, 5.0, 1.0, predicted=True), state=TrialState.PRUNED, end=TrialEnd.CAPPED)
    some = [cut, failed(2, 3.0), running(3), trial(4, 5.0, 1.0), trial(5, 31.0, 9.0, predicted=True)]
    found = forecast_quality(some, "score")
    assert [f.measured for f in found.forecasts] == [9.0]
    assert found.verdict == f"1 predicted score: too few to judge ({MIN_FORECASTS} are needed)"
    nothing = forecast_quality([], "cost")
    assert (nothing.coverage, nothing.pit, nothing.coverage_by_part) == (None, (), ())
    assert nothing.verdict.startswith("no predicted costs: ")


def test_deviations_use_the_side_of_the_interval_that_was_missed() -> None:
    guess = Estimate(value=10.0, low=8.0, high=20.0)
    assert z_score(guess, 8.0, "score") == pytest.approx(-Z80, rel=1e-4)
    assert z_score(guess, 20.0, "score") == pytest.approx(Z80, rel=1e-4)
    assert z_score(Estimate(value=10.0, low=5.0, high=20.0), 40.0, "cost") == pytest.approx(2 * Z80, rel=1e-4)
    point = Estimate(value=1.0, low=1.0, high=1.0)
    assert (z_score(point, 1.0, "score"), z_score(point, 0.9, "score"), z_score(point, 9.0, "cost")) == (
        0.0,
        -MAX_Z,
        MAX_Z,
    )


@pytest.mark.parametrize("trials", [1, 10, 41, 2000])
def test_the_binomial_test_is_that_of_scipy(trials: int) -> None:
    for successes in {0, 1, trials // 2, round(0.8 * trials), trials - 1, trials}:
        expected = binomtest(successes, trials, 0.8).pvalue
        assert binomial_p_value(successes, trials, 0.8) == pytest.approx(expected, rel=1e-6, abs=1e-300)
