"""The recommendation: whose true score is expected to be best, and at what cost."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from protein.engine import pareto
from protein.engine.gp import Array
from protein.engine.recommend import contenders, learn
from protein.engine.results import (
    MODEL,
    SURELY,
    Contender,
    best,
    expected_front,
    knee,
    recommendable,
    within_limits,
)
from protein.engine.score_model import ScoreModel
from protein.space import Float, Integer, Space
from protein.types import Limit, Measurement, Observation, Params, TrialEnd, TrialState

SPACE = Space([Float("x", 0.0, 1.0), Integer("steps", 100, 10_000, scale="log")], cost_parameter="steps")


def complete(x: float, score: float, steps: int = 1000, cost: float = 10.0) -> Observation:
    params: Params = {"x": x, "steps": steps}
    return Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=cost)


def noisy(num_points: int, noise: float, seed: int = 0) -> list[Observation]:
    """A parabola with its top, 1, at x = 0.3; the trials cover the range evenly."""
    rng = np.random.default_rng(seed)
    return [
        complete(float(x), 1.0 - 4.0 * (x - 0.3) ** 2 + noise * rng.standard_normal())
        for x in np.linspace(0.0, 1.0, num_points).round(6)
    ]


def test_a_lucky_outlier_is_not_recommended() -> None:
    history = [*noisy(40, 0.1), complete(0.81, 1.4)]  # true score there: -0.04
    found = contenders(SPACE, history)
    chosen = best(found)
    assert chosen is not None
    assert max(found, key=lambda c: max(c.measured)).params["x"] == 0.81
    assert abs(float(chosen.params["x"]) - 0.3) < 0.12
    assert chosen.score.low < 1.0 < chosen.score.high
    assert chosen.basis == MODEL


def test_without_noise_the_posterior_keeps_the_order_of_what_was_measured() -> None:
    history = noisy(25, 0.0)
    chosen = best(contenders(SPACE, history))
    assert chosen is not None and chosen.measured == (max(o.score for o in history if o.score is not None),)


def test_points_of_a_curve_are_no_further_witnesses_of_its_run() -> None:
    history = [
        dataclasses.replace(
            observation,
            curve=tuple(
                Measurement(steps=steps, elapsed_seconds=steps / 100, score=observation.score) for steps in (250, 500)
            ),
        )
        for observation in noisy(40, 0.3)
    ]
    assert contenders(SPACE, history) == contenders(SPACE, noisy(40, 0.3))


def test_runs_of_one_config_are_one_contender_and_narrow_its_interval() -> None:
    history = noisy(25, 0.2)
    again = [complete(float(history[7].params["x"]), score, cost=14.0) for score in (0.9, 1.1, 1.0)]
    (before,) = (c for c in contenders(SPACE, history) if c.trials == (7,))
    (after,) = (c for c in contenders(SPACE, [*history, *again]) if 7 in c.trials)
    assert (after.trials, after.runs, after.expected_cost_seconds) == ((7, 25, 26, 27), 4, 13.0)
    assert after.score.high - after.score.low < 0.8 * (before.score.high - before.score.low)


def test_only_what_was_trained_to_its_end_is_a_contender() -> None:
    cut = Observation(params={"x": 0.3, "steps": 5000}, state=TrialState.PRUNED, score=9.0, cost_seconds=1.0)
    broken = [
        Observation(params={"x": 0.2, "steps": 100}, state=end.state, score=None, cost_seconds=1.0, end=end)
        for end in (TrialEnd.DIVERGED, TrialEnd.INTERRUPTED)
    ]
    unreadable = complete(0.5, 99.0, steps=10**9)
    found = contenders(SPACE, [cut, complete(0.1, 1.0), *broken, unreadable, complete(0.9, 2.0)])
    assert [c.trials for c in found] == [(1,), (5,)]
    assert contenders(SPACE, [cut, *broken]) == []
    assert best([]) is None and knee([]) is None


def test_under_goes_by_the_expected_cost_and_ties_by_the_cheaper() -> None:
    def one(position: int, score: float, costs: tuple[float, ...]) -> list[Observation]:
        return [complete(0.1 * position, score, 1000 * position, cost) for cost in costs]

    history = [*one(1, 1.0, (10.0,)), *one(2, 3.0, (50.0, 90.0)), *one(3, 2.0, (60.0,)), *one(4, 4.0, (500.0,))]
    found = contenders(SPACE, history)
    limits = {5.0: None, 10.0: 1000, 60.0: 3000, 69.0: 3000, 70.0: 2000, math.inf: 4000}
    for limit, steps in limits.items():
        chosen = best(found, limit)
        assert (None if chosen is None else chosen.params["steps"]) == steps
    middle = knee(found)
    assert middle is not None and middle.params["steps"] == 2000
    same = contenders(SPACE, [complete(0.1, 1.0, 1000, 9.0), complete(0.1, 1.0, 100, 1.0)])
    cheapest = best([*same, *same])
    assert cheapest is not None and cheapest.expected_cost_seconds == 1.0


@pytest.mark.parametrize("scores", [[0.0] * 6, [1e300, -1e300, 0.0], [-1e6, 1.0, 2.0, 3.0, 2.5], [5.0]])
def test_no_scores_make_it_raise(scores: list[float]) -> None:
    for found in contenders(SPACE, [complete(0.1 * i, score) for i, score in enumerate(scores)]):
        assert math.isfinite(found.score.low) and math.isfinite(found.score.high)


def test_where_the_model_fails_plain_means_are_compared_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> tuple[Array, Array]:
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr(ScoreModel, "predict", fail)
    found = contenders(SPACE, [complete(0.1, 1.0), complete(0.2, 3.0), complete(0.2, 4.0), complete(0.3, 3.4)])
    chosen: Contender | None = best(found)
    assert chosen is not None and chosen.trials == (1, 2)
    assert (chosen.score.low, chosen.score.value, chosen.score.high) == pytest.approx(
        (3.5 - 0.5 / math.sqrt(2), 3.5, 3.5 + 0.5 / math.sqrt(2))
    )
    assert chosen.basis == "mean of its own runs, the score model failed (LinAlgError)"


def test_under_noise_as_large_as_the_signal_the_interval_holds_and_the_luckiest_trial_is_not_taken() -> None:
    """Forty distinct configs, each run once. Taking the noise's mode for known, 3 % of the intervals held the truth."""
    space = Space([Float(f"x{i}", 0.0, 1.0) for i in range(6)])
    held, regret, regret_of_measured = 0, 0.0, 0.0
    for seed in range(16):
        rng = np.random.default_rng(seed)
        x = space.sample(40, rng)
        truth = 3.0 * np.cos(2.0 * (x[:, 0] - rng.random())) + 1.5 * np.sin(4.0 * x[:, 1] + rng.random())
        truth = (truth - truth.mean()) / truth.std()
        measured = truth + rng.standard_normal(40)
        history = [
            Observation(params=space.from_unit(p), state=TrialState.COMPLETE, score=float(score), cost_seconds=1.0)
            for p, score in zip(x, measured, strict=True)
        ]
        chosen = best(contenders(space, history))
        assert chosen is not None
        true = float(truth[chosen.trials[0]])
        held += chosen.score.low <= true <= chosen.score.high
        regret += float(truth.max()) - true
        regret_of_measured += float(truth.max() - truth[int(np.argmax(measured))])
    assert 10 <= held <= 16
    assert regret < 0.9 * regret_of_measured


def test_an_excluded_run_is_not_recommended_and_teaches_nothing() -> None:
    history = noisy(20, 0.1)
    exploit = dataclasses.replace(complete(0.81, 50.0), excluded=True)
    again = dataclasses.replace(history[3], score=40.0, excluded=True)  # one of two runs of a config
    assert contenders(SPACE, [*history, exploit, again]) == contenders(SPACE, history)
    assert contenders(SPACE, [exploit]) == []
    assert pareto.front([*history, exploit]) == pareto.front(history)


def test_nothing_is_learnt_where_no_trial_has_a_score() -> None:
    failed = Observation(params={"x": 0.5, "steps": 1000}, state=TrialState.FAILED, score=None, cost_seconds=1.0)
    assert learn(SPACE, []) is None
    assert learn(SPACE, [failed]) is None


def measured(history: list[Observation], slope: float) -> list[Observation]:
    """With a metric that rises with x: 8 at x = 0.5."""
    return [
        dataclasses.replace(one, metrics={"gb": 8.0 + slope * (float(one.params["x"]) - 0.5)}, number=i)
        for i, one in enumerate(history)
    ]


def test_the_best_that_keeps_a_limit_is_recommended_with_its_probability() -> None:
    limit = Limit("gb", ">=", 8.0)  # the top of the parabola, at 0.3, breaks it
    history = measured(noisy(40, 0.05), 10.0)
    found = contenders(SPACE, history, limits=[limit])
    chosen = best(found)
    assert chosen is not None and chosen.keeps is not None
    assert 0.5 <= float(chosen.params["x"]) < 0.62 and chosen.keeps >= SURELY
    beyond = [one for one in found if float(one.params["x"]) < 0.4]
    assert all(one.keeps is not None and one.keeps < 0.01 for one in beyond)
    assert all(one in recommendable(found) for one in expected_front(found))
    without = contenders(SPACE, history)
    assert [one.keeps for one in without] == [None] * len(without)
    assert [dataclasses.replace(one, keeps=None) for one in found] == without, "limits change no expected score"
    unknown = contenders(SPACE, history, limits=[Limit("ms", "<=", 1.0)])
    assert unknown == without, "of a metric that nobody has reported nothing is known"


def test_where_no_config_keeps_a_limit_the_nearest_is_named() -> None:
    history = measured(noisy(20, 0.05), 1.0)
    chosen = best(contenders(SPACE, history, limits=[Limit("gb", ">=", 9.0)]))
    assert chosen is not None and chosen.keeps is not None and chosen.keeps < 0.5
    assert chosen.params["x"] == 1.0


@given(st.lists(st.none() | st.floats(0.0, 1.0), max_size=8))
def test_some_config_is_always_recommended_and_never_a_less_likely_kind(keeps: list[float | None]) -> None:
    able = within_limits(keeps)
    assert bool(able) == bool(keeps) and able == sorted(set(able))
    known = [1.0 if one is None else one for one in keeps]
    if able and len(able) < len(keeps):
        assert min(known[i] for i in able) >= max(known[i] for i in range(len(keeps)) if i not in able)
