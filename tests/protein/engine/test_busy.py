"""A busy machine does not make a config look expensive, and takes more of the budget."""

import dataclasses
import math

import numpy as np
import pytest

from protein.engine.budget import AffordableCost
from protein.engine.cost_model import CostModel
from protein.engine.gp import Array
from protein.engine.history import History
from protein.engine.recommend import contenders
from protein.engine.results import best
from protein.engine.settings import EngineSettings
from protein.space import Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import MAX_BUSY_SHARE, Budget, Observation, TrialState

SPACE = Space(
    [Float("rate", 1e-4, 1e-1, scale="log"), Integer("steps", 1_000, 1_000_000, scale="log")], cost_parameter="steps"
)


def trials(*, slowdowns: list[float], known: bool) -> list[Observation]:
    """Trials that take a second for 10,000 steps, each slowed down by its own factor."""
    found = []
    for i, slowdown in enumerate(slowdowns):
        steps = 10_000 * (1 + i % 5)
        found.append(
            Observation(
                params={"rate": 10 ** (-3.5 + 0.3 * (i % 7)), "steps": steps},
                state=TrialState.COMPLETE,
                score=math.log(steps) - abs(i % 7 - 3),
                cost_seconds=slowdown * steps / 10_000,
                busy_share=1.0 - 1.0 / slowdown if known else None,
                number=i,
            )
        )
    return found


def test_the_models_learn_the_cost_of_a_calm_machine() -> None:
    calm = trials(slowdowns=[1.0] * 10, known=False)
    busy = trials(slowdowns=[1.0, 3.0] * 5, known=True)
    np.testing.assert_allclose(History.of(SPACE, busy, []).costs, History.of(SPACE, calm, []).costs)
    assert History.of(SPACE, busy, []).spent_seconds == sum(trial.cost_seconds for trial in busy)


def test_what_is_not_known_counts_as_measured() -> None:
    busy = trials(slowdowns=[1.0, 3.0] * 5, known=False)
    data = History.of(SPACE, busy, [])
    assert sorted(data.costs.tolist()) == sorted(trial.cost_seconds for trial in busy)
    assert data.slowdown == 1.0


@pytest.mark.parametrize(
    ("slowdown", "behind", "clock_behind", "cap", "fits"),
    [
        (1.0, 5.0, 10.0, 28.0, True),  # 10 s by the clock of a busy machine, and 15 s to come
        (1.0, 5.0, 10.0, 24.0, False),
        (2.0, 15.0, 15.0, 35.0, True),  # 15 s of a calm machine, and 5 s to come, which will take 10
        (2.0, 15.0, 15.0, 20.0, False),
    ],
)
def test_the_cap_counts_the_beginning_of_a_run_by_the_clock_as_it_was(
    slowdown: float, behind: float, clock_behind: float, cap: float, fits: bool
) -> None:
    data = History.of(SPACE, trials(slowdowns=[slowdown] * 10, known=True), [])
    budget = Budget(remaining_seconds=1_000.0, max_trial_seconds=cap)
    x = SPACE.to_unit({"rate": 0.01, "steps": 200_000})[None, :]  # 20 s on a calm machine
    affordable = AffordableCost.of(SPACE, data, budget)
    assert affordable.fits(x, np.array([behind]), np.array([clock_behind])).tolist() == [fits]


def test_the_last_trials_say_how_busy_the_machine_is_now() -> None:
    data = History.of(SPACE, trials(slowdowns=[4.0] * 5 + [2.0] * 5, known=True), [])
    assert data.slowdown == pytest.approx(2.0)


def test_a_busy_machine_takes_more_of_the_budget() -> None:
    budget = Budget(remaining_seconds=12.0)
    x = SPACE.to_unit({"rate": 0.01, "steps": 80_000})[None, :]  # 8 s on a calm machine
    calm = AffordableCost.of(SPACE, History.of(SPACE, trials(slowdowns=[1.0] * 10, known=True), []), budget)
    busy = AffordableCost.of(SPACE, History.of(SPACE, trials(slowdowns=[2.0] * 10, known=True), []), budget)
    assert calm.fits(x).tolist() == [True]
    assert busy.fits(x).tolist() == [False]
    expected, measured = calm.estimate(x[0]), busy.estimate(x[0])
    assert expected is not None
    assert measured is not None
    assert measured.value == pytest.approx(2.0 * expected.value)


def test_an_evenly_busy_machine_changes_no_suggestion() -> None:
    designer = make_designer("protein", SPACE, None, seed=0, settings=EngineSettings())
    params, expected = [], []
    for slowdown in (1.0, 2.0):
        history = trials(slowdowns=[slowdown] * 14, known=True)
        suggestion = designer.suggest(history, [], Budget(remaining_seconds=100.0 * slowdown), 3)
        assert suggestion is not None
        assert suggestion.predicted_cost_seconds is not None
        params.append(suggestion.params)
        expected.append(suggestion.predicted_cost_seconds.value)
    assert params[0] == params[1]
    assert expected[1] == pytest.approx(2.0 * expected[0])


def test_the_expected_cost_of_a_config_is_that_of_a_calm_machine() -> None:
    history = trials(slowdowns=[3.0] * 10, known=True)
    chosen = best(contenders(SPACE, history))
    assert chosen is not None
    assert chosen.expected_cost_seconds == pytest.approx(history[chosen.trials[0]].cost_seconds / 3.0)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_share_must_be_possible(share: float) -> None:
    (trial,) = trials(slowdowns=[1.0], known=False)
    with pytest.raises(ValueError, match=f"busy_share must be within 0 and {MAX_BUSY_SHARE}"):
        dataclasses.replace(trial, busy_share=share)


def costs_of(*, noise: float, num_points: int, seed: int) -> tuple[Space, Array, Array]:
    """Costs in proportion to the steps, with log noise."""
    rng = np.random.default_rng(seed)
    x = SPACE.sample(num_points, rng)
    steps = np.array([float(SPACE.from_unit(row)["steps"]) for row in x])
    return SPACE, x, steps / 10_000 * np.exp(noise * rng.standard_normal(num_points))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("noise", "busy"), [(0.0, False), (0.05, False), (0.45, True)])
def test_the_cost_model_sees_from_the_costs_whether_the_machine_is_busy(noise: float, busy: bool, seed: int) -> None:
    model = CostModel.fit(*costs_of(noise=noise, num_points=40, seed=seed))
    assert model.busy is busy


@pytest.mark.parametrize("seed", range(5))
def test_on_a_busy_machine_a_single_cheap_trial_does_not_make_its_config_cheap(seed: int) -> None:
    space, x, costs = costs_of(noise=0.45, num_points=40, seed=seed)
    calm = np.array([float(space.from_unit(row)["steps"]) for row in x]) / 10_000
    error = CostModel.fit(space, x, costs).predict(x)[0] - np.log(calm)
    assert np.std(error) < 0.5 * np.std(np.log(costs / calm))
