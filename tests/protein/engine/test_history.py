"""What the models get to see of a history, and what they say of a suggestion."""

from typing import Any

import numpy as np
import pytest

from protein.engine.budget import AffordableCost
from protein.engine.history import History
from protein.space import Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Measurement, Observation, Params, TrialState

SPACE = Space(
    [Float("rate", 1e-4, 1e-1, scale="log"), Integer("steps", 1_000, 1_000_000, scale="log")], cost_parameter="steps"
)


def stopped_at(steps: int, *, score: float | None = 0.5) -> Observation:
    return Observation(
        params={"rate": 0.01, "steps": 500_000},
        state=TrialState.PRUNED,
        score=score,
        cost_seconds=10.0,
        curve=(Measurement(steps=steps, elapsed_seconds=10.0, score=0.4),),
    )


def test_a_trial_stopped_at_its_cap_teaches_score_and_cost_at_the_steps_it_reached() -> None:
    data = History.of(SPACE, [stopped_at(50_000)], [])
    assert data.ok.tolist() == [True]
    np.testing.assert_allclose(data.x_scored, SPACE.to_unit({"rate": 0.01, "steps": 50_000})[None, :])
    assert data.costs.tolist() == [10.0]
    asked = SPACE.canonical(SPACE.to_unit({"rate": 0.01, "steps": 500_000})[None, :])
    assert len(data.untried(asked)) == 0, "what was asked for was tried, too"


def test_a_trial_stopped_before_its_first_score_did_not_fail_but_was_tried() -> None:
    data = History.of(SPACE, [stopped_at(50_000, score=None)], [])
    assert (len(data.ok), len(data.x_tried), len(data.x_scored)) == (0, 0, 0)
    assert (data.num_trials, data.spent_seconds) == (1, 10.0)
    asked = SPACE.canonical(SPACE.to_unit({"rate": 0.01, "steps": 500_000})[None, :])
    assert len(data.untried(asked)) == 0


def test_steps_just_outside_the_range_count_as_its_ends() -> None:
    for reached, counted in ((900, 1_000), (510_000, 500_000)):
        data = History.of(SPACE, [stopped_at(reached)], [])
        np.testing.assert_allclose(data.x_scored, SPACE.to_unit({"rate": 0.01, "steps": counted})[None, :])


@pytest.mark.parametrize(("steps", "least_seconds"), [(0, 10.0), (10, 500_000.0)])
def test_a_trial_stopped_long_before_the_shortest_run_teaches_only_what_it_would_have_cost(
    steps: int, least_seconds: float
) -> None:
    data = History.of(SPACE, [stopped_at(steps)], [])
    assert (len(data.ok), len(data.x_scored)) == (0, 0)
    np.testing.assert_allclose(data.x_stopped, SPACE.to_unit({"rate": 0.01, "steps": 500_000})[None, :])
    assert data.least_costs.tolist() == [least_seconds]


def test_on_a_scale_of_powers_of_two_the_steps_reached_count_as_the_nearest() -> None:
    space = Space([Integer("steps", 1, 64, scale="pow2")], cost_parameter="steps")
    for reached, counted in ((1, 1), (30, 32), (40, 32), (64, 64), (70, 64)):
        curve = (Measurement(steps=reached, elapsed_seconds=1.0, score=0.4),)
        cut = Observation(params={"steps": 64}, state=TrialState.PRUNED, score=0.4, cost_seconds=1.0, curve=curve)
        data = History.of(space, [cut], [])
        assert (data.num_trials, data.x_scored.tolist()) == (1, [space.to_unit({"steps": counted}).tolist()])
        assert data.costs.tolist() == pytest.approx([counted / min(reached, 64)]), "at the same seconds a step"


COST_FREE = Space([Float("rate", 1e-4, 1e-1, scale="log"), Integer("width", 16, 256, scale="log")])


def run_of(params: Params, *, seconds: float, made: float = 1.0, steps: int | None = 5_000) -> Observation:
    """A trial of `seconds` that made a share of its run; `steps` that its curve counts in a whole run, or no curve."""
    state = TrialState.COMPLETE if made == 1.0 else TrialState.PRUNED
    cost = made * seconds
    points = () if steps is None else (Measurement(steps=round(made * steps), elapsed_seconds=cost, score=0.3),)
    return Observation(params=params, state=state, score=0.5 * made, cost_seconds=cost, curve=points)


def rows(num: int, made: float = 1.0, **more: Any) -> list[Observation]:
    """Trials of 100 s in a space without a cost parameter, every second one stopped at a share of its run."""
    x = COST_FREE.from_unit_many(COST_FREE.sample(num, np.random.default_rng(0)))
    return [run_of(params, seconds=100.0, made=made if i % 2 else 1.0, **more) for i, params in enumerate(x)]


def test_without_a_cost_parameter_a_stopped_trial_counts_with_its_share_of_the_others_steps() -> None:
    data = History.of(COST_FREE, rows(8, made=0.4), [])
    np.testing.assert_allclose(data.costs, 100.0)
    assert sorted(data.unfinished.tolist()) == [0.0] * 4 + [0.6] * 4
    assert data.spent_seconds == 4 * 100.0 + 4 * 40.0


@pytest.mark.parametrize("cost_parameter", [None, "width"])
def test_a_trial_stopped_after_an_unknown_share_teaches_no_score_and_the_least_cost(cost_parameter: str | None) -> None:
    space = Space(COST_FREE.parameters, cost_parameter=cost_parameter)
    untold = rows(8, made=0.4, steps=None)
    if cost_parameter is not None:  # the complete trials' steps are not in proportion to it
        untold = rows(8, made=0.4)
    data = History.of(space, untold, [])
    assert (len(data.scores), data.least_costs.tolist(), data.ok.tolist()) == (4, [40.0] * 4, [True] * 4)
    assert (data.num_trials, data.spent_seconds) == (8, 560.0)
    assert len(data.untried(space.canonical(space.to_unit_many([o.params for o in untold])))) == 0


@pytest.mark.parametrize("steps", [None, 5_000])
def test_stopped_trials_do_not_make_the_others_look_cheap(steps: int | None) -> None:
    data = History.of(COST_FREE, rows(24, made=0.4, steps=steps), [])
    cost = AffordableCost.of(COST_FREE, data, Budget()).model
    assert cost is not None
    assert np.exp(cost.predict(data.x_tried)[0]) == pytest.approx(100.0, rel=0.05)


def test_stopped_runs_of_unknown_length_cost_at_least_what_they_did() -> None:
    wide = [
        run_of({"rate": 10.0 ** -(1 + i / 3), "width": 250}, seconds=1000.0, made=0.3, steps=None) for i in range(9)
    ]
    narrow = [run_of({"rate": 10.0 ** -(1 + i / 3), "width": 20}, seconds=10.0) for i in range(9)]
    cost = AffordableCost.of(COST_FREE, History.of(COST_FREE, wide + narrow, []), Budget()).model
    assert cost is not None
    low, high = np.exp(cost.predict(COST_FREE.to_unit_many([{"rate": 0.01, "width": w} for w in (20, 250)]))[0])
    assert 8.0 < low < 12.0 and high > 200.0


def test_a_cost_parameter_in_another_unit_than_the_curves_steps() -> None:
    space = Space([Integer("epochs", 1, 100, scale="log")], cost_parameter="epochs")
    whole = [run_of({"epochs": n}, seconds=float(n), steps=1000 * n) for n in (5, 20, 60, 90)]
    data = History.of(space, [*whole, run_of({"epochs": 50}, seconds=50.0, made=0.4, steps=50_000)], [])
    stopped = data.unfinished > 0
    assert data.unfinished[stopped].tolist() == [0.6] and data.costs[stopped].tolist() == [20.0]
    np.testing.assert_allclose(data.x_scored[stopped], [space.to_unit({"epochs": 20})])


def test_a_trial_of_no_steps_has_no_points_on_the_way() -> None:
    space = Space([Integer("steps", 0, 100)], cost_parameter="steps")
    curve = (Measurement(steps=0, elapsed_seconds=0.0, score=0.4),)
    for state in (TrialState.COMPLETE, TrialState.PRUNED):
        none = Observation(params={"steps": 0}, state=state, score=0.4, cost_seconds=0.0, curve=curve)
        data = History.of(space, [none], [], max_curve_points=10)
        assert (data.scores.tolist(), data.unfinished.tolist(), len(data.x_curve)) == ([0.4], [0.0], 0)


def with_curve(steps: int, cost: float, scores: tuple[float | None, ...]) -> Observation:
    num = len(scores)
    curve = tuple(
        Measurement(steps=steps * (i + 1) // num, elapsed_seconds=cost * (i + 1) / num, score=score)
        for i, score in enumerate(scores)
    )
    params = {"rate": 0.01, "steps": steps}
    return Observation(params=params, state=TrialState.COMPLETE, score=9.0, cost_seconds=cost, curve=curve)


def test_a_point_of_a_curve_is_the_nearest_one_that_has_a_score() -> None:
    """A language model reports more often than it measures: here at each twentieth, and measured at 30 % and 55 %."""
    scores = tuple({6: 6.0, 11: 7.0}.get(number) for number in range(1, 21))
    data = History.of(SPACE, [with_curve(400_000, 50.0, scores)], [], max_curve_points=10)
    assert data.curve_scores.tolist() == [6.0, 7.0]
    np.testing.assert_allclose(data.curve_unfinished, [0.7, 0.45])


def test_curves_give_points_at_the_steps_reached_of_the_most_expensive_trials_first() -> None:
    cheap, expensive = with_curve(2_000, 1.0, (0.1, 0.2, 0.3, 0.4)), with_curve(400_000, 50.0, (None, 6.0, 7.0, 8.0))
    data = History.of(SPACE, [cheap, expensive], [], max_curve_points=10)
    assert data.curve_scores.tolist() == [6.0, 0.2], "None is no score, and below 1,000 steps is outside the space"
    assert data.curve_unfinished.tolist() == [0.5, 0.5]
    assert data.costs.tolist() == [1.0, 50.0]
    assert data.curve_runs.tolist() == [1, 0]
    reached = [SPACE.to_unit({"rate": 0.01, "steps": steps}) for steps in (200_000, 1_000)]
    np.testing.assert_allclose(data.x_curve, reached, atol=1e-9)
    assert History.of(SPACE, [cheap, expensive], [], max_curve_points=1).curve_scores.tolist() == [6.0]
    assert History.of(SPACE, [cheap, expensive], []).x_curve.shape == (0, 2)


def test_a_trial_stopped_early_is_known_to_be_unfinished() -> None:
    data = History.of(SPACE, [stopped_at(50_000), with_curve(2_000, 1.0, (0.5,))], [])
    assert sorted(data.unfinished.tolist()) == [0.0, 0.9]


def test_a_predicted_score_stays_near_what_was_seen() -> None:
    space = Space([Integer("arm", 0, 40)])
    history = []
    for arm in range(0, 41, 2):
        score = -20.0 if arm > 34 else 20.0 + 0.01 * (arm % 7)
        params = {"arm": arm}
        history.append(Observation(params=params, state=TrialState.COMPLETE, score=score, cost_seconds=1.0))
    running = [{"arm": arm} for arm in range(1, 36, 2)]  # what is left is among the bad ones
    designer = make_designer("protein", space, None)
    suggestion = designer.suggest(history, running, Budget(), seed=0)
    assert suggestion is not None and suggestion.predicted_score is not None
    assert suggestion.predicted_score.low >= -20.0 - 40.06


def test_after_one_trial_that_was_far_too_slow_only_shorter_ones_are_started() -> None:
    designer = make_designer("protein", SPACE, {"rate": 0.01, "steps": 500_000})
    budget = Budget(remaining_seconds=1_000.0, max_trial_seconds=250.0)
    suggestion = designer.suggest([stopped_at(1_000, score=None)], [], budget, seed=0)  # 10 s for 1,000 steps
    assert suggestion is not None and int(suggestion.params["steps"]) < 25_000
    small = Budget(remaining_seconds=1_000.0, max_trial_seconds=5.0)
    assert designer.suggest([stopped_at(100, score=None)], [], small, seed=0) is None


def test_devices_are_told_apart_only_where_there_are_two() -> None:
    def on_gpu(*metrics: dict[str, float]) -> list[float] | None:
        space = Space([Float("lr", 0.0, 1.0)])
        trials = [
            Observation(params={"lr": 0.1 * i}, state=TrialState.COMPLETE, score=1.0, cost_seconds=1.0, metrics=one)
            for i, one in enumerate(metrics)
        ]
        found = History.of(space, trials, []).on_gpu
        return None if found is None else found.tolist()

    assert on_gpu({}, {}) is on_gpu({"on_gpu": 1.0}, {"on_gpu": 1.0}) is on_gpu({"on_gpu": 0.0}, {}) is None
    assert on_gpu({}, {"on_gpu": 1.0}, {"on_gpu": 0.0}) == [0.0, 1.0, 0.0]  # of a machine without a GPU there is none
