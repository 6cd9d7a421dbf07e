"""What more budget is expected to buy: the break-even price of the Gittins index, units, order, sign, and hindsight."""

import dataclasses
import math
import random

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.stats import expon, norm

from protein.engine import outlook as module
from protein.engine import results
from protein.engine.cost_model import CostModel
from protein.engine.history import History
from protein.engine.outlook import MIN_CONTENDERS, hindsight, outlook
from protein.engine.results import BEST, BEST_80, BEST_ANY, FRONT, FRONT_80, FRONT_ANY, Outlook
from protein.engine.score_model import ScoreModel
from protein.engine.settings import EngineSettings
from protein.space import Categorical, Float, Integer, Space
from protein.types import Measurement, Observation, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 1000, 10_000, scale="log")], cost_parameter="steps")
NO_FLOOR = EngineSettings(price_floor=0.0)


def history(num_trials: int = 20, *, scale: float = 1.0, shift: float = 0.0, seed: int = 0) -> list[Observation]:
    """Noisy trials of a hill over x that rises with steps; a second for 1,000 steps."""
    rng = np.random.default_rng(seed)
    found = []
    for x, share in zip(rng.random(num_trials), rng.random(num_trials), strict=True):
        steps = round(1000 * 10**share)
        score = 1.0 - 2.0 * (x - 0.7) ** 2 + 0.2 * share + 0.02 * rng.standard_normal()
        found.append(
            Observation(
                params={"x": float(x), "steps": steps},
                state=TrialState.COMPLETE,
                score=scale * score + shift,
                cost_seconds=steps / 1000.0,
            )
        )
    return found


def found(trials: list[Observation]) -> Outlook:
    ahead = outlook(SPACE, trials)
    assert ahead is not None
    return ahead


def gittins_index(mean: float, sd: float, price: float) -> float:
    """Returns g with E max(0, N(mean, sd^2) - g) = price, by quadrature and root finding."""

    def excess(g: float) -> float:
        return float(quad(norm.sf, (g - mean) / sd, 12.0)[0]) * sd - price

    return float(brentq(excess, mean - 20.0 * sd - price, mean + 11.0 * sd, xtol=1e-12))


def models(trials: list[Observation]) -> tuple[ScoreModel, CostModel, np.ndarray]:
    data = History.of(SPACE, trials, [])
    score = ScoreModel.fit(SPACE, data.x_scored, data.scores)
    return score, CostModel.fit(SPACE, data.x_scored, data.costs), SPACE.sample(10, np.random.default_rng(1))


def test_the_price_is_where_the_highest_gittins_index_is_the_best_in_hand() -> None:
    score, cost, x = models(history())
    best = 0.5
    price = module._price(score, cost, x, best, NO_FLOOR, 100.0) / score.scale.sd  # a second's, in z
    seconds = np.exp(cost.predict(x)[0])
    mean, sd = score.predict(x)

    def highest(price: float) -> float:
        return max(gittins_index(m, s, price * c) for m, s, c in zip(mean, sd, seconds, strict=True))

    assert highest(price) == pytest.approx(best, abs=1e-6)
    # The index falls as opening a box becomes more expensive: below the price one goes on, above it one stops.
    assert highest(0.5 * price) > best + 1e-3 > best - 1e-3 > highest(2.0 * price)


def test_candidates_that_cost_nothing_are_not_worth_any_price() -> None:
    score, cost, x = models(history())
    free = module._price(score, cost, x, 0.5, NO_FLOOR, 100.0)
    assert 0.0 < module._price(score, cost, x, 0.5, EngineSettings(price_floor=0.1), 100.0) < free
    assert module._price(score, cost, x[:0], 0.5, NO_FLOOR, 100.0) == 0.0


def test_the_outlook_is_in_units_of_scores_and_seconds() -> None:
    plain = found(history())
    stretched = found(history(scale=1000.0, shift=-77.0))
    assert stretched.best_per_second == pytest.approx(1000.0 * plain.best_per_second, rel=1e-3)
    assert plain.front_per_second == pytest.approx(FRONT / BEST * plain.best_per_second)
    assert plain.spent_seconds == pytest.approx(sum(trial.cost_seconds for trial in history()))
    slower = found([dataclasses.replace(trial, cost_seconds=60.0 * trial.cost_seconds) for trial in history()])
    assert slower.best(600.0).expected == pytest.approx(plain.best(10.0).expected, rel=0.05)
    busy = [dataclasses.replace(o, cost_seconds=2.0 * o.cost_seconds, busy_share=0.5) for o in history()]
    assert found(busy).best(20.0).expected == pytest.approx(plain.best(10.0).expected, rel=0.05)
    assert plain.best(10.0).high == pytest.approx(BEST_80 * plain.best(10.0).expected)
    assert plain.front(10.0).high == pytest.approx(FRONT_80 * plain.front(10.0).expected)


def test_no_rise_goes_beyond_the_highest_possible_score() -> None:
    free, near = found(history()), outlook(SPACE, history(), 1.25)
    assert near is not None
    assert near.best_per_second == free.best_per_second and math.isinf(free.room)
    assert 0.0 < near.room < 0.2
    assert near.best(1e6).high == near.room and near.front(1e6).high == near.front_room
    for seconds in (1.0, 10.0, 100.0, 1e6, 1e9):
        for rise, whole in ((near.best(seconds), free.best(seconds)), (near.front(seconds), free.front(seconds))):
            assert 0.0 < rise.expected < rise.high and rise.expected <= whole.expected, (
                "what is expected lies inside the interval"
            )
    assert near.best(1e-6).expected == pytest.approx(free.best(1e-6).expected, rel=1e-3), "the limit is far away"
    assert near.room < near.front_room < 1.25 + 0.5, "cheap configs are further from it"
    passed = outlook(SPACE, history(), 0.5)  # a score above what was said to be possible
    assert passed is not None and passed.best(1e6).high == 0.0


@pytest.mark.parametrize(("factor", "probability"), [(BEST_80, BEST_ANY), (FRONT_80, FRONT_ANY)])
def test_the_rise_below_a_limit_is_that_of_its_distribution(factor: float, probability: float) -> None:
    mean, room = 2.0, 3.0
    law = expon(scale=mean / probability)  # of the rises above 0
    assert law.isf(0.2 / probability) == pytest.approx(factor * mean, rel=2e-3), "the 80 % quantile"
    below = probability * (law.expect(lambda rise: rise, lb=0.0, ub=room) + room * law.sf(room))
    assert results._rise(mean, factor, probability, room).expected == pytest.approx(below, rel=1e-6)


def test_a_front_below_the_highest_score_can_still_rise() -> None:
    """On average over ln cost: it lacks 3 from 1 to 10 s, 1 from 10 to 100 s and nothing from there to 1,000 s."""
    costs = np.array([100.0, 1.0, 1000.0, 10.0, 20.0])
    assert module._front_room([0.0, 3.0, 0.0, 1.0, 2.0], costs) == pytest.approx(4.0 / 3.0)
    assert module._front_room([0.5, 0.25], np.ones(2)) == 0.25
    assert module._front_room([math.inf] * 3, np.array([1.0, 1.0, 2.0])) == math.inf
    assert module._front_room([-1.0, -2.0], np.array([1.0, 2.0])) == 0.0, "a score above what was said to be possible"


def test_the_order_of_the_trials_does_not_matter() -> None:
    trials = history()
    shuffled = random.Random(4).sample(trials, len(trials))
    assert found(shuffled) == found(trials)


def test_more_is_expected_while_more_is_unknown() -> None:
    """Of the same hill: ten trials on its lower half, and forty all over it."""
    low = [trial for trial in history(40) if float(trial.params["x"]) < 0.5][:10]
    assert found(low).best_per_second > 2.0 * found(history(40)).best_per_second > 0.0


@pytest.mark.parametrize("outlier", [1e2, 1e6, 1e12])
def test_one_score_far_above_all_others_is_no_reason_to_expect_more_than_it(outlier: float) -> None:
    trials = history(40)
    most = max(range(len(trials)), key=lambda i: int(trials[i].params["steps"]))
    trials[most] = dataclasses.replace(trials[most], score=outlier)
    ahead = found(trials)
    assert ahead.best(ahead.spent_seconds / 10).expected < outlier


def test_without_enough_complete_trials_there_is_no_outlook() -> None:
    assert outlook(SPACE, []) is None
    assert outlook(SPACE, history(1)) is None
    assert outlook(SPACE, history(MIN_CONTENDERS - 1)) is None
    failed = [dataclasses.replace(trial, state=TrialState.FAILED, score=None, end=None) for trial in history(30)]
    assert outlook(SPACE, failed) is None
    assert hindsight(SPACE, []) == hindsight(SPACE, failed) == []


def test_where_nothing_is_left_to_find_nothing_is_expected() -> None:
    level = [dataclasses.replace(trial, score=3.0) for trial in history()]
    assert found(level).best(1e6).expected == 0.0
    free = [dataclasses.replace(trial, cost_seconds=0.0) for trial in history()]
    assert found(free).best(1e6).expected == 0.0
    space = Space([Categorical("a", list("abcdefghij"))])
    tried = [
        Observation(params={"a": a}, state=TrialState.COMPLETE, score=float(i), cost_seconds=1.0)
        for i, a in enumerate("abcdefghij")
    ]
    ahead = outlook(space, tried)
    assert ahead is not None and ahead.best(100.0).expected == 0.0


@pytest.mark.parametrize(
    ("spent", "expected"),
    [(7200.0, (600.0, 3600.0)), (20.0, (2.0, 10.0)), (0.5, (1.0,)), (4 * 86400.0, (43200.0, 172800.0))],
)
def test_the_spans_ahead_are_round_and_follow_what_was_spent(spent: float, expected: tuple[float, ...]) -> None:
    horizons = Outlook(best_per_second=1.0, front_per_second=1.0, spent_seconds=spent).horizons()
    if spent < 86400.0:
        assert horizons == expected
    assert all(abs(math.log(a / b)) < math.log(2.0) for a, b in zip(horizons, expected, strict=True))


def test_hindsight_compares_what_was_expected_with_what_came() -> None:
    trials = history(40)
    looks = hindsight(SPACE, trials)
    total = sum(trial.cost_seconds for trial in trials)
    assert [look.after_seconds for look in looks] == pytest.approx([0.25 * total, 0.5 * total, 0.75 * total])
    for look in looks:
        assert look.seconds == pytest.approx(0.25 * total)
        end = np.cumsum([trial.cost_seconds for trial in trials])
        before = trials[: int(np.searchsorted(end, look.after_seconds, side="right"))]
        assert look.forecast == found(before).best(look.seconds)  # made without what came later
        assert look.rise >= 0.0 and look.inside == (look.rise <= look.forecast.high)


def test_hindsight_knows_the_highest_possible_score() -> None:
    trials = history(40)
    free, limited = hindsight(SPACE, trials), hindsight(SPACE, trials, 1.16)
    assert len(free) == len(limited) > 0
    rooms = []
    for look in limited:
        end = np.cumsum([trial.cost_seconds for trial in trials])
        before = trials[: int(np.searchsorted(end, look.after_seconds, side="right"))]
        ahead = outlook(SPACE, before, 1.16)
        assert ahead is not None and look.forecast == ahead.best(look.seconds)
        assert look.forecast.high <= ahead.room < 0.05
        rooms.append(ahead.room)
    assert any(look.forecast.high > room for look, room in zip(free, rooms, strict=True)), "the limit matters"
    assert all(look.rise == 0.0 for look in hindsight(SPACE, trials, 0.1)), "both stand at the highest score"


def test_hindsight_sees_a_late_jump() -> None:
    low = [trial for trial in history(60) if float(trial.params["x"]) < 0.4][:20]
    high = [trial for trial in history(60, seed=1) if abs(float(trial.params["x"]) - 0.7) < 0.1][:6]
    looks = hindsight(SPACE, [*low, *high])
    assert looks[-1].rise > 0.1 > looks[0].rise


def test_curves_and_pruned_trials_do_not_break_it() -> None:
    trials = history()
    stopped = Observation(
        params={"x": 0.5, "steps": 8000},
        state=TrialState.PRUNED,
        score=0.4,
        cost_seconds=3.0,
        curve=(Measurement(steps=3000, elapsed_seconds=3.0, score=0.4),),
    )
    ahead = found([*trials, stopped])
    assert math.isfinite(ahead.best_per_second) and ahead.best_per_second > 0.0
