"""What the models get to see of a history, and what they say of a suggestion."""

import numpy as np

from protein.engine.history import History
from protein.space import Float, Integer, Space
from protein.sweep.methods import make_designer
from protein.types import Budget, Measurement, Observation, TrialState

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


def test_steps_outside_the_range_count_as_its_ends() -> None:
    for reached, counted in ((10, 1_000), (900_000, 500_000)):
        data = History.of(SPACE, [stopped_at(reached)], [])
        np.testing.assert_allclose(data.x_scored, SPACE.to_unit({"rate": 0.01, "steps": counted})[None, :])


def test_on_a_scale_of_powers_of_two_the_steps_reached_count_as_the_nearest() -> None:
    space = Space([Integer("steps", 1, 64, scale="pow2")], cost_parameter="steps")
    for reached, counted in ((0, 1), (30, 32), (40, 32), (64, 64), (99, 64)):
        curve = (Measurement(steps=reached, elapsed_seconds=1.0, score=0.4),)
        cut = Observation(params={"steps": 64}, state=TrialState.PRUNED, score=0.4, cost_seconds=1.0, curve=curve)
        data = History.of(space, [cut], [])
        assert (data.num_trials, data.x_scored.tolist()) == (1, [space.to_unit({"steps": counted}).tolist()])


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
