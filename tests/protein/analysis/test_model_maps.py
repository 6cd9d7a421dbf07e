"""Slices and maps of the engine's model: they show a planted function, and hold what they say they hold."""

import math

import numpy as np
import pytest
from conditional_sweeps import CONDITIONAL
from conditional_sweeps import TRIALS as CONDITIONAL_TRIALS
from planted_sweeps import searched

from protein.analysis.model_maps import SweepModel
from protein.errors import UsageError
from protein.space import Categorical, Float, Integer, Space
from protein.types import Observation, TrialState

SPACE = Space(
    [
        Float("lr", 1e-4, 1e-1, scale="log"),
        Integer("steps", 100, 100_000, scale="log"),
        Integer("width", 16, 256, scale="pow2"),
        Categorical("kind", ("a", "b")),
    ],
    cost_parameter="steps",
)
TRIALS = searched(
    SPACE,
    lambda x: -8.0 * (x[0] - 0.7) ** 2 + x[1] + 0.5 * (x[3] > 0.5),
    num_trials=80,
    seed=0,
    noise=0.05,
    seconds=lambda x: 2.0 * 1000.0 ** x[1] * 2.0 ** x[2],
)


@pytest.fixture(scope="module")
def model() -> SweepModel:
    return SweepModel.fit(SPACE, TRIALS)


def test_a_slice_shows_the_planted_optimum_with_its_uncertainty(model: SweepModel) -> None:
    anchor = model.anchor()
    found = model.slice("lr", anchor)
    assert found.axis.scale == "log" and len(found.axis.values) == 41
    assert found.axis.values[0] == 1e-4 and found.axis.values[-1] == 1e-1
    top = int(np.argmax([one.value for one in found.scores]))
    assert abs(found.axis.x_unit[top] - 0.7) < 0.1
    true = -8.0 * (found.axis.x_unit - 0.7) ** 2 + anchor[1] + 0.5 * (anchor[3] > 0.5)
    near = np.abs(found.axis.x_unit - 0.7) < 0.25
    error = np.abs(np.array([one.value for one in found.scores]) - true)[near]
    assert error.max() < 0.5
    assert all(one.low <= one.value <= one.high for one in found.scores)
    # The anchor is near the optimum, so its distance to the best of the slice is small, that to the worst is large.
    assert found.gain < 0.3 < 2.0 < found.reach


def test_discrete_parameters_have_a_point_for_each_value(model: SweepModel) -> None:
    width, kind = (model.slice(name, model.anchor()) for name in ("width", "kind"))
    assert width.axis.values == (16, 32, 64, 128, 256) and width.axis.scale == "pow2"
    assert kind.axis.values == ("a", "b") and kind.axis.scale == "choices"
    assert kind.scores[1].value - kind.scores[0].value == pytest.approx(0.5, abs=0.25)


def test_a_slice_at_a_fixed_cost_costs_that(model: SweepModel) -> None:
    anchor = model.anchor()
    at_cost = model.slice("width", anchor, seconds=60.0)
    assert np.allclose(at_cost.cost_seconds, 60.0, rtol=0.15)
    held = model.slice("width", anchor)
    assert held.cost_seconds[-1] / held.cost_seconds[0] > 1.5, "wider networks cost more at the same steps"
    moving = model.slice("steps", anchor, seconds=60.0)
    assert moving.cost_seconds[-1] / moving.cost_seconds[0] > 100.0, "its own axis is not held"


def test_a_map_agrees_with_slices_and_estimates(model: SweepModel) -> None:
    anchor = model.anchor()
    found = model.map("lr", "width", anchor, num_points=21)
    assert found.value.shape == (5, 21)
    row = int(np.argmin(np.abs(found.y.x_unit - anchor[2])))
    along = model.slice("lr", anchor, num_points=21)
    assert found.value[row].tolist() == pytest.approx([one.value for one in along.scores])
    assert (found.low <= found.value).all() and (found.value <= found.high).all()
    x = anchor.copy()
    x[[0, 2]] = found.x.x_unit[3], found.y.x_unit[1]
    [estimate] = model.score.estimates(x[None, :], measured=False)
    assert found.value[1, 3] == pytest.approx(estimate.value)
    assert found.high[1, 3] == pytest.approx(estimate.high)


def test_the_anchor_is_what_is_recommended_within_a_cost(model: SweepModel) -> None:
    cheap = SPACE.from_unit(model.anchor(under_seconds=30.0))
    [contender] = [c for c in model.contenders if dict(c.params) == cheap]
    assert contender.expected_cost_seconds <= 30.0
    with pytest.raises(UsageError, match=r"for 0\.001 s or less"):
        model.anchor(under_seconds=0.001)


def test_closeness_is_1_on_the_slice_and_falls_with_distance(model: SweepModel) -> None:
    anchor = model.anchor()
    on, off = anchor.copy(), anchor.copy()
    on[0] = 0.1
    off[1] = 1.0 - anchor[1]
    here, along, away = model.closeness(np.stack([anchor, on, off]), anchor, ["lr"])
    assert here == pytest.approx(1.0) and along == pytest.approx(1.0)
    assert 0.0 <= away < 0.99


def test_points_that_violate_a_constraint_are_marked() -> None:
    space = Space(
        [Integer("batch", 16, 256, scale="pow2"), Integer("mini", 16, 256, scale="pow2")], constraints=["mini <= batch"]
    )
    trials = [
        Observation(params={"batch": b, "mini": m}, state=TrialState.COMPLETE, score=float(b - m), cost_seconds=1.0)
        for b in (64, 128, 256)
        for m in (16, 32, 64)
    ]
    model = SweepModel.fit(space, trials)
    found = model.map("batch", "mini", model.anchor())
    expected = [[int(m) <= int(b) for b in found.x.values] for m in found.y.values]
    assert found.valid.tolist() == expected


def test_failures_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"needs 4 trials with a score, and has 3"):
        SweepModel.fit(SPACE, TRIALS[:3])
    model = SweepModel.fit(SPACE, TRIALS[:10])
    anchor = model.anchor()
    with pytest.raises(UsageError, match="unknown parameter 'lrr'"):
        model.slice("lrr", anchor)
    with pytest.raises(UsageError, match="two different parameters"):
        model.map("lr", "lr", anchor)
    with pytest.raises(UsageError, match="2 to 101 points, got 1000"):
        model.slice("lr", anchor, num_points=1000)
    with pytest.raises(UsageError, match="above 0, got -1"):
        model.slice("lr", anchor, seconds=-1.0)
    with pytest.raises(UsageError, match="not of the sweep's space"):
        model.at({"lr": 1.0})


def test_scores_of_any_size_give_finite_maps() -> None:
    for factor in (1e-30, 1e200):
        trials = [
            Observation(params=o.params, state=o.state, score=(o.score or 0.0) * factor, cost_seconds=o.cost_seconds)
            for o in TRIALS[:20]
        ]
        model = SweepModel.fit(SPACE, trials)
        assert all(math.isfinite(one.value) for one in model.slice("lr", model.anchor()).scores)


def test_a_conditional_parameter_has_slices_through_configs_that_have_it_alone() -> None:
    found = SweepModel.fit(CONDITIONAL, CONDITIONAL_TRIALS)
    best = found.anchor()
    assert CONDITIONAL.from_unit(best)["model"] == "svc"
    with pytest.raises(UsageError, match="depth is not active in this config"):
        found.slice("depth", best)
    tree = found.at({"model": "tree", "depth": 10, "steps": 500})
    assert found.slice("depth", tree).valid.all()
    models = found.slice("model", best)
    assert models.valid.all() and models.scores[0].value > models.scores[1].value + 0.5
    # There is no C where the model is a tree.
    assert found.map("model", "C", best, num_points=5).valid.tolist() == [[True, False]] * 5
