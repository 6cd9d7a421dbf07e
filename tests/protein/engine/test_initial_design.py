"""Where a sweep without an initial config begins: the middle of every range, in closed form and under constraints."""

import math

import numpy as np
import pytest

from protein.engine.candidates import middle, other_choices
from protein.space import Categorical, Float, Integer, Space
from protein.space.parameters import Parameter, Scale

PARAMETERS: list[Parameter] = [
    Float("rate", 1e-4, 1e-2, scale="log"),
    Float("clip", 0.1, 0.5),
    Float("gamma", 0.9, 0.99, scale="logit"),
    Integer("layers", 1, 5),
    Integer("epochs", 10, 1000, scale="log"),
    Integer("width", 8, 128, scale="pow2"),
    Categorical("optimizer", ("muon", "adam", "sgd")),
    Categorical("bias", (True, False)),
]


def test_the_middle_is_that_of_each_scale_and_of_choices_the_first() -> None:
    space = Space(PARAMETERS)
    params = space.from_unit(middle(space))
    space.validate(params)
    odds = math.sqrt(0.9 / 0.1 * 0.99 / 0.01)  # of gamma: the geometric mean of those at both ends
    assert params == {
        "rate": pytest.approx(1e-3),
        "clip": pytest.approx(0.3),
        "gamma": pytest.approx(odds / (1.0 + odds), abs=1e-4),
        "layers": 3,
        "epochs": round(math.sqrt(9.5 * 1000.5)),
        "width": 32,
        "optimizer": "muon",
        "bias": True,
    }


def test_defaults_are_no_initial_config() -> None:
    space = Space([Float("clip", 0.0, 1.0, default=0.9), Categorical("kind", ("a", "b"), default="b")])
    assert space.from_unit(middle(space)) == {"clip": 0.5, "kind": "a"}


def test_each_other_choice_comes_once_with_the_rest_in_the_middle() -> None:
    space = Space(PARAMETERS)
    x = middle(space)
    others = [space.from_unit(point) for point in other_choices(space, x)]
    assert [(params["optimizer"], params["bias"]) for params in others] == [("adam", False), ("sgd", True)]
    for params in others:
        assert {**params, "optimizer": "muon", "bias": True} == space.from_unit(x)


def test_other_choices_are_few_and_valid_and_none_without_choices() -> None:
    numbers = Space([Float("clip", 0.0, 1.0)])
    assert other_choices(numbers, middle(numbers)).shape == (0, 1)
    many = Space([Categorical("kind", tuple(range(9))), Float("clip", 0.0, 1.0)])
    kinds = [many.from_unit(x)["kind"] for x in other_choices(many, middle(many))]
    assert kinds == [1, 2, 3, 4]
    some = Space([Categorical("kind", ("a", "b", "c"))], constraints=("kind != 'b'",))
    assert [some.from_unit(x)["kind"] for x in other_choices(some, middle(some))] == ["c"]


@pytest.mark.parametrize(("scale", "third"), [("linear", 1.0 + 999.0 / 3.0), ("log", 10.0)])
def test_the_cost_parameter_is_at_its_lower_third(scale: Scale, third: float) -> None:
    space = Space([*PARAMETERS, Float("seconds", 1.0, 1000.0, scale=scale)], cost_parameter="seconds")
    params = space.from_unit(middle(space))
    assert params["seconds"] == pytest.approx(third)
    others = Space(PARAMETERS)
    assert {name: params[name] for name in others.names} == others.from_unit(middle(others))


def test_under_a_constraint_it_is_a_valid_point_near_the_middle() -> None:
    sides = [Float("x", 0.0, 1.0), Float("y", 0.0, 1.0)]
    within = Space(sides, constraints=("x + y <= 1.5",))
    assert np.array_equal(middle(within), [0.5, 0.5]), "nothing moves where the middle is allowed"
    beside = Space(sides, constraints=("x + y <= 0.8",))
    x = middle(beside)
    assert beside.is_valid(beside.from_unit(x)) and np.array_equal(x, middle(beside))
    assert math.hypot(*(x - 0.5)) < 0.1 * math.sqrt(2.0) + 0.1, "the nearest valid point of all is the first term away"


def test_it_is_a_point_that_comes_back_from_its_values() -> None:
    space = Space(PARAMETERS, constraints=("layers * width <= 64",))
    x = middle(space)
    assert space.is_valid(space.from_unit(x))
    assert np.allclose(space.canonical(space.to_unit(space.from_unit(x))[None, :])[0], x, atol=1e-9)
