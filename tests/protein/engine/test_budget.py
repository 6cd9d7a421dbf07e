"""The budget: what running trials are expected to cost, and why nothing was suggested."""

import numpy as np
import pytest

from protein.engine.budget import AffordableCost, RunningCost, budget_left, limit_reached, why_nothing
from protein.engine.history import History
from protein.space import Categorical, Float, Space
from protein.types import Budget, Observation, TrialState

SMALL = Space([Categorical("layers", (1, 2))])
LARGE = Space([Float("lr", 0.0, 1.0)])


@pytest.mark.parametrize(
    ("trial", "expected"),
    [
        (RunningCost(predicted_seconds=7.0), 7.0),
        (RunningCost(predicted_seconds=7.0, max_trial_seconds=25.0), 7.0),
        (RunningCost(predicted_seconds=30.0, max_trial_seconds=25.0), 25.0),  # it is ended at its cap
        (RunningCost(predicted_seconds=7.0, spent_seconds=9.0), 9.0),  # the prediction was too low
        (RunningCost(predicted_seconds=7.0, max_trial_seconds=8.0, spent_seconds=8.5), 8.5),
        (
            RunningCost(max_trial_seconds=25.0, spent_seconds=1.0),
            25.0,
        ),  # unpredicted: its cap, whatever the others cost
        (RunningCost(spent_seconds=1.0), 3.0),  # nothing better is known than the mean of the finished ones
        (RunningCost(spent_seconds=5.0), 5.0),
    ],
)
def test_what_a_running_trial_is_expected_to_cost(trial: RunningCost, expected: float) -> None:
    left = budget_left(100.0, [2.0, 4.0], [trial])
    assert (left.remaining_seconds, left.running_seconds) == (100.0 - 6.0 - expected, expected)
    assert budget_left(100.0, [2.0, 4.0], [trial, trial]).remaining_seconds == 100.0 - 6.0 - 2 * expected
    assert budget_left(None, [2.0, 4.0], [trial]) == Budget(running_seconds=expected)


def test_the_first_trials_without_a_cap_are_expected_to_cost_what_they_have_cost_so_far() -> None:
    assert budget_left(10.0, [], [RunningCost(), RunningCost(spent_seconds=4.0)]).remaining_seconds == 6.0
    assert budget_left(10.0, [8.0], [RunningCost()]).remaining_seconds == -6.0, "an overspent budget shows by how much"


def test_trials_that_start_within_what_is_left_cannot_overspend_a_budget() -> None:
    running: list[RunningCost] = []
    while (remaining := budget_left(100.0, [], running).remaining_seconds) and remaining > 0:
        running.append(
            RunningCost(max_trial_seconds=min(40.0, remaining))
        )  # as the loop does: the cap, or what is left
    assert sum(trial.max_trial_seconds or 0.0 for trial in running) == 100.0


def test_why_nothing_was_suggested_is_said() -> None:
    tried = [Observation(params={"layers": n}, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0) for n in (1, 2)]
    spent = Budget(remaining_seconds=0.0, max_trial_seconds=9.0)
    assert why_nothing(SMALL, [], [], spent) == "the budget is spent"
    assert why_nothing(SMALL, tried, [], Budget()) == "every config of the space was tried"
    assert why_nothing(SMALL, tried[:1], [{"layers": 2}], Budget()) == "every config of the space was tried"
    left, cap = Budget(remaining_seconds=1.0), Budget(remaining_seconds=9.0, max_trial_seconds=1.0)
    assert why_nothing(LARGE, [], [], left) == "no new config is expected to fit what is left of the budget"
    assert why_nothing(LARGE, [], [], cap) == "no new config is expected to fit what one trial may cost"
    assert why_nothing(LARGE, [], [], Budget()) == "no new config was found"
    assert (limit_reached(1), limit_reached(2)) == (
        "the limit of 1 trial is reached",
        "the limit of 2 trials is reached",
    )


def test_what_running_trials_hold_is_a_part_of_the_whole_budget() -> None:
    history = [Observation(params={"lr": x}, state=TrialState.COMPLETE, score=x, cost_seconds=40.0) for x in (0.1, 0.9)]
    data = History.of(LARGE, history, [{"lr": 0.5}])
    told = AffordableCost.of(LARGE, data, Budget(remaining_seconds=820.0, running_seconds=100.0))
    assert told.total_seconds == 80.0 + 100.0 + 820.0
    untold = AffordableCost.of(LARGE, data, Budget(remaining_seconds=820.0))
    assert untold.total_seconds == pytest.approx(80.0 + 40.0 + 820.0, rel=0.01)


def test_of_a_trial_that_goes_on_only_the_rest_counts_as_running() -> None:
    history = [Observation(params={"lr": x}, state=TrialState.COMPLETE, score=x, cost_seconds=40.0) for x in (0.1, 0.9)]
    data = History.of(LARGE, history, [{"lr": 0.5}])
    beside = [
        AffordableCost.of(
            LARGE, data, Budget(remaining_seconds=900.0, running_seconds=held, can_wait=True), running_share=0.5
        ).beside_seconds
        for held in (10.0, 500.0)
    ]
    assert beside[0] == 0.5 * 990.0 - 10.0
    assert beside[1] == pytest.approx(0.5 * 1480.0 - 40.0, abs=1.0), "a cap that is set aside is not yet a cost"


def test_the_time_at_which_all_is_to_end_limits_the_rest_of_a_trial_that_goes_on() -> None:
    space = Space([Float("steps", 1.0, 1000.0, scale="log")], cost_parameter="steps")
    history = [
        Observation(params={"steps": n}, state=TrialState.COMPLETE, score=n, cost_seconds=10.0 * n)
        for n in (40.0, 50.0, 80.0, 100.0, 160.0, 200.0, 320.0)
    ]
    in_time = Budget(remaining_seconds=1e5, max_trial_seconds=1e4, until_seconds=900.0)
    affordable = AffordableCost.of(space, History.of(space, history, []), in_time)
    x = space.to_unit_many([{"steps": 360.0}])  # 3,600 s in all
    assert not affordable.fits(x)[0]
    assert affordable.fits(x, np.array([3300.0]), np.array([3300.0]))[0]
    assert not affordable.fits(x, np.array([2400.0]), np.array([2400.0]))[0]
