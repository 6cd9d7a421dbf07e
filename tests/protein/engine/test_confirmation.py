"""Which contender is run again, and how sure it is then: against closed forms, and calibrated in simulation."""

import dataclasses
import math

import numpy as np
import pytest
from scipy.stats import norm

from protein.engine.confirmation import CONFIDENCE, INDIFFERENCE, MAX_FAILURES, MAX_RUNS, Posterior, question
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.space import Float, Integer, Space
from protein.types import Observation, TrialEnd, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 100, 10_000, "log")], cost_parameter="steps")


def posterior(mean: list[float], sd: list[float], noise: float = 1.0, **changes: object) -> Posterior:
    k = len(mean)
    found = Posterior(
        mean=np.array(mean),
        covariance=np.diag(np.square(sd)),
        noise=np.full(k, noise),
        costs=np.ones(k),
        left=np.full(k, 100),
        delta=0.0,
    )
    return dataclasses.replace(found, **changes)  # type: ignore[arg-type]


def run(x: float, score: float | None, cost: float = 10.0, steps: int = 1000, number: int = 0) -> Observation:
    state, end = (TrialState.COMPLETE, None) if score is not None else (TrialState.FAILED, TrialEnd.CRASHED)
    return Observation(
        params={"x": x, "steps": steps}, state=state, score=score, cost_seconds=cost, end=end, number=number
    )


def searched(noise: float, seed: int = 0, num: int = 24) -> list[Observation]:
    rng = np.random.default_rng(seed)
    x = rng.random(num)
    return [run(v, float(-8.0 * (v - 0.4) ** 2 + noise * rng.standard_normal()), number=i) for i, v in enumerate(x)]


def test_of_two_the_surety_is_that_of_the_closed_form() -> None:
    found = posterior([0.5, 0.0], [0.6, 0.8])
    sure, each = found.surety()
    assert sure == pytest.approx(norm.cdf(0.5), abs=0.02)
    assert each == pytest.approx([sure, 1.0 - sure])
    within, _ = dataclasses.replace(found, delta=0.3).surety()
    assert within == pytest.approx(norm.cdf(0.8), abs=0.02)
    # No true score is above 0: then nearly all draws of two far better ones are equal, and the first is as good.
    assert posterior([5.0, 4.9], [1.0, 1.0], highest=0.0).surety()[0] > 0.999


def test_a_run_updates_as_the_conjugate_formula_does() -> None:
    after = posterior([0.0, 1.0], [2.0, 1.0], noise=4.0).after(0, 3.0)
    assert (after.mean.tolist(), after.covariance.tolist()) == ([1.5, 1.0], [[2.0, 0.0], [0.0, 1.0]])
    assert after.left.tolist() == [99, 100]


def test_of_the_leader_and_its_likeliest_rival_the_one_is_run_that_tells_more_a_second() -> None:
    found = posterior([1.0, 0.8, 0.5], [0.3, 0.5, 0.5])
    assert found.next() == 1  # the wider one
    assert dataclasses.replace(found, costs=np.array([0.1, 1.0, 1.0])).next() == 0
    assert dataclasses.replace(found, noise=np.array([0.1, 9.0, 0.1])).next() == 0
    assert posterior([1.0, 0.8, 0.5], [0.0, 0.1, 0.9]).next() == 2  # the likelier one, although it is lower
    # Two that move together: a run of either tells nothing of their difference, so the third one is the rival.
    together = np.array([[1.0, 1.0, 0.0], [1.0, 1.0, 0.0], [0.0, 0.0, 0.5]])
    assert posterior([1.0, 0.9, 0.5], [1.0, 1.0, 1.0], covariance=together).next() == 0
    # What can't be run, or would not end in time, is not run.
    assert dataclasses.replace(found, left=np.array([9, 0, 9])).next() == 0
    assert dataclasses.replace(found, left=np.array([0, 0, 9])).next() == 2
    assert dataclasses.replace(found, left=np.zeros(3, dtype=int)).next() is None
    assert dataclasses.replace(found, costs=np.array([1.0, 5.0, 1.0])).next(4.0) == 0
    assert found.next(1.0) is None and posterior([1.0], [1.0]).next() is None


def test_it_is_right_as_often_as_it_says_and_sooner_than_by_turns() -> None:
    """160 times four contenders of a known prior, run until one is sure."""
    right, steps, sures = {"ours": 0, "turns": 0}, {"ours": 0, "turns": 0}, []
    rng = np.random.default_rng(0)
    for _ in range(160):
        truth = rng.standard_normal(4)
        for way in right:
            now, count, sure = posterior([0.0] * 4, [1.0] * 4, noise=0.3, delta=0.2), 0, 0.0
            while (sure := now.surety(200)[0]) < CONFIDENCE:
                x = now.next() if way == "ours" else count % 4
                assert x is not None
                now, count = now.after(x, truth[x] + math.sqrt(0.3) * float(rng.standard_normal())), count + 1
            right[way] += bool(truth[now.leader] >= truth.max() - 0.2)
            steps[way] += count
            sures += [sure] if way == "ours" else []
    assert right["ours"] / 160 == pytest.approx(float(np.mean(sures)), abs=0.07)  # three standard errors
    assert steps["ours"] < 0.85 * steps["turns"]


def test_the_price_is_that_of_the_simulated_runs_and_keeps_the_limit() -> None:
    certain, open_ = posterior([1.0, 0.0], [0.01, 0.01]), posterior([0.1, 0.0, -0.1], [0.5, 0.5, 0.5], noise=0.1)
    assert certain.expected_seconds() == 0.0
    assert 1.0 < open_.expected_seconds() < 100.0
    assert open_.expected_seconds(3.0) <= 3.0
    twice = dataclasses.replace(open_, costs=2.0 * open_.costs)
    assert twice.expected_seconds() == pytest.approx(2.0 * open_.expected_seconds())


def test_the_leader_is_what_is_recommended_and_others_have_a_chance() -> None:
    history = searched(0.8)
    found = question(SPACE, history)
    assert found is not None and not found.settled and found.next is not None
    assert found.contenders[0] == best(contenders(SPACE, history))
    assert sum(found.probabilities) == pytest.approx(1.0)
    assert found.indifference == pytest.approx(INDIFFERENCE * np.std([o.score or 0.0 for o in history]), rel=0.3)
    assert len(found.contenders) > 1
    two = question(SPACE, history, num=2)
    assert two is not None and len(two.contenders) == 2
    assert question(SPACE, history, remaining_seconds=9.0).next is None  # type: ignore[union-attr]


def test_without_noise_nothing_is_in_question() -> None:
    found = question(SPACE, [run(v, -8.0 * (v - 0.4) ** 2, number=i) for i, v in enumerate(np.linspace(0, 1, 30))])
    assert found is not None and found.settled and found.next is None


def test_runs_make_it_surer_and_the_order_of_trials_does_not_matter() -> None:
    history = searched(0.6, seed=3, num=16)
    before = question(SPACE, history)
    assert before is not None and before.next is not None
    again = before.contenders[before.next]
    history += [run(float(again.params["x"]), again.measured[0], number=16 + i) for i in range(MAX_RUNS - 1)]
    after = question(SPACE, history)
    assert after is not None and after.sure > before.sure
    assert after.next is None or after.contenders[after.next].runs < MAX_RUNS
    backwards = question(SPACE, history[::-1])
    assert backwards is not None and backwards.sure == pytest.approx(after.sure, abs=0.02)


def test_limits_of_cost_of_runs_and_of_failures_are_kept() -> None:
    history = searched(0.8)
    costly = [dataclasses.replace(o, cost_seconds=100.0) if i % 2 else o for i, o in enumerate(history)]
    under = question(SPACE, costly, under_seconds=50.0)
    assert under is not None and all(one.expected_cost_seconds <= 50.0 for one in under.contenders)
    assert question(SPACE, costly, under_seconds=1.0) is None and question(SPACE, []) is None
    first = question(SPACE, history)
    assert first is not None and first.next is not None
    again = first.contenders[first.next].params
    broken = [run(float(again["x"]), None, number=100 + i) for i in range(MAX_FAILURES)]
    found = question(SPACE, [*history, *broken])
    assert found is not None and found.next is not None and found.contenders[found.next].params != again
