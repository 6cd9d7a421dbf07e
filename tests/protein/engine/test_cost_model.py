"""The cost model: proportional to the cost parameter at first, then what the data say."""

import math

import numpy as np
import pytest

from protein.engine.cost_model import CostModel
from protein.engine.pareto import MIN_COST_SECONDS
from protein.space import Categorical, Float, Integer, Space
from protein.types import Z80

pytestmark = pytest.mark.usefixtures("one_blas_thread")

SPACE = Space(
    [
        Float("lr", 1e-5, 1e-1, scale="log"),
        Integer("steps", 1000, 1_000_000, scale="log"),
        Categorical("opt", ("adam", "muon")),
        Integer("width", 16, 256, scale="pow2"),
    ],
    cost_parameter="steps",
)


def test_cost_is_proportional_to_the_cost_parameter_from_the_first_trial_on() -> None:
    one = SPACE.to_unit({"lr": 1e-3, "steps": 10_000, "opt": "adam", "width": 64})
    ten = SPACE.to_unit({"lr": 1e-3, "steps": 100_000, "opt": "adam", "width": 64})
    model = CostModel.fit(SPACE, one[None, :], np.array([2.0]))
    mean, sd = model.predict(np.stack([one, ten]))
    assert math.exp(mean[0]) == pytest.approx(2.0, rel=0.1)
    assert math.exp(mean[1]) == pytest.approx(20.0, rel=0.5)
    assert sd[1] > sd[0]


def test_the_cost_model_learns_what_is_expensive() -> None:
    rng = np.random.default_rng(1)
    x = SPACE.sample(40, rng)
    new = SPACE.sample(40, rng)

    def true_cost(points: np.ndarray) -> np.ndarray:
        params = SPACE.from_unit_many(points)
        return np.array([3.0 + float(p["steps"]) * float(p["width"]) / 1e5 for p in params])

    mean, sd = CostModel.fit(SPACE, x, true_cost(x)).predict(new)
    error = mean - np.log(true_cost(new))
    assert np.sqrt(np.mean(error**2)) < 0.15
    assert np.mean(np.abs(error) < Z80 * sd) > 0.6
    blind = Space(SPACE.parameters)
    mean, _ = CostModel.fit(blind, x, true_cost(x)).predict(new)
    assert np.sqrt(np.mean((mean - np.log(true_cost(new))) ** 2)) < 0.3


def test_zero_cost_has_a_logarithm() -> None:
    x = SPACE.sample(3, np.random.default_rng(0))
    mean, sd = CostModel.fit(SPACE, x, np.zeros(3)).predict(x)
    assert np.isfinite(mean).all()
    assert np.isfinite(sd).all()
    assert mean.min() >= math.log(MIN_COST_SECONDS) - 1.0


def test_a_cost_parameter_that_may_be_zero_is_a_plain_coordinate() -> None:
    space = Space([Float("depth", 0.0, 4.0)], cost_parameter="depth")
    x = np.linspace(0.0, 1.0, 9)[:, None]
    mean, _ = CostModel.fit(space, x, np.exp(3.0 * x[:, 0])).predict(x)
    assert mean == pytest.approx(3.0 * x[:, 0], abs=0.1)


def _rms(model: CostModel, x: np.ndarray, log_cost: np.ndarray) -> float:
    return float(np.sqrt(np.mean((model.predict(x)[0] - log_cost) ** 2)))


def test_trials_of_two_devices_have_costs_of_two_kinds() -> None:
    rng = np.random.default_rng(2)
    x, new = SPACE.sample(60, rng), SPACE.sample(200, rng)

    def steps_and_width(points: np.ndarray) -> np.ndarray:
        return np.array([(float(p["steps"]), float(p["width"])) for p in SPACE.from_unit_many(points)])

    def log_cost(points: np.ndarray, on_gpu: np.ndarray) -> np.ndarray:
        steps, width = steps_and_width(points).T
        return np.asarray(np.log(steps * np.where(on_gpu > 0, 1e-3, 4e-5 * width)))

    # Each on the faster one, as `auto` takes it: the GPU's cost does not rise with the width. That needs no input.
    faster = (steps_and_width(x)[:, 1] > 25).astype(float)
    costs = np.exp(log_cost(x, faster))
    model = CostModel.fit(SPACE, x, costs, on_gpu=faster)
    assert np.array_equal(model.predict(new)[0], CostModel.fit(SPACE, x, costs).predict(new)[0])
    assert _rms(model, new, log_cost(new, (steps_and_width(new)[:, 1] > 25).astype(float))) < 0.05
    # Each config on both, three times as fast on one. The device explains it, and the rest stays exact.
    x, either = np.repeat(x[::2], 2, axis=0), np.tile([0.0, 1.0], len(x) // 2)
    costs = np.exp(np.log(1e-3 * steps_and_width(x)[:, 0]) - np.log(3.0) * either)
    known, blind = CostModel.fit(SPACE, x, costs, on_gpu=either), CostModel.fit(SPACE, x, costs)
    middle = np.log(1e-3 * steps_and_width(new)[:, 0]) - np.log(3.0) * either.mean()
    assert known.process.noise < 0.05 * blind.process.noise
    assert _rms(known, new, middle) < 0.05
    stopped = known.at_least(new[:5], np.exp(middle[:5] + 3.0))
    assert np.all(stopped.predict(new[:5])[0] > known.predict(new[:5])[0] + 0.5)
    assert known.draws(2, np.random.default_rng(0))(new).shape == (200, 2)
    # Equally fast: the device is no input.
    alike = np.exp(np.log(1e-3 * steps_and_width(x)[:, 0]) + 0.05 * rng.standard_normal(len(x)))
    assert CostModel.fit(SPACE, x, alike, on_gpu=either).gpu_share is None
